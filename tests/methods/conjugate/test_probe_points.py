"""Graphs at a few points: as they are written, and rewritten where that is not finite."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_dp.methods.conjugate import blocks
from pymc_dp.methods.conjugate.blocks import at_few_points, probe_rows
from pymc_dp.model.modes import as_written
from tests import zoo
from tests.zoo import REAL, separated


def evaluated(graph_of, at):
    """Evaluate a graph of the latent of a model at a probe row."""
    model = zoo.mean(REAL, name="a")
    records, _ = separated(model)
    evaluate = at_few_points(records, [graph_of(records.latents["a"])])
    [value] = evaluate(probe_rows(records, np.random.default_rng(0), [1]), {"a": np.array(at)})
    return float(value)


def slope_beside_a_pole(a):
    """As written it is 0 times infinity at 0."""
    return pt.grad(pt.switch(a > 0, pt.log(a), 0.0), a)


def test_what_is_finite_is_not_rewritten(monkeypatch):
    monkeypatch.setattr(blocks, "function", lambda *_: pytest.fail("it was rewritten"))
    assert evaluated(slope_beside_a_pole, 0.5) == pytest.approx(2.0)


def test_what_is_not_finite_as_written_is_rewritten(monkeypatch):
    assert evaluated(slope_beside_a_pole, 0.0) == 0
    monkeypatch.setattr(blocks, "function", lambda ins, outs, _: as_written(ins, outs))
    assert np.isnan(evaluated(slope_beside_a_pole, 0.0))
