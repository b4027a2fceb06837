"""A belief net of hundreds of outcomes has graphs of the size of one of a few."""

import numpy as np
import pymc as pm
import pytest
from pytensor.graph.traversal import toposort

from pymc_dp.methods.conjugate import blocks
from pymc_dp.methods.linear import features
from pymc_dp.methods.vips import belief_nets
from pymc_dp.methods.vips.belief_nets import recognise, scores_at_zero
from pymc_dp.model import constrained
from tests.zoo import build as model_of
from tests.zoo import separated

FEW, MANY = 4, 40


def belief_net(pixels):
    def build():
        W, c = pm.Normal("W", shape=(pixels, 2)), pm.Normal("c", shape=pixels)
        z = pm.Bernoulli("z", p=0.3, shape=(10, 2))
        pm.Bernoulli("y", logit_p=z @ W.T + c, observed=np.eye(10, pixels, dtype=int))

    records, _ = separated(constrained(model_of(build)))
    return records


def nodes_compiled(pixels, monkeypatch):
    """Count the nodes of all graphs that a fit's set-up compiles."""
    sizes, function = [], blocks.function

    def counting(inputs, outputs, backend):
        sizes.append(len(list(toposort(outputs))))
        return function(inputs, outputs, backend)

    with monkeypatch.context() as patched:
        patched.setattr(blocks, "function", counting)
        records = belief_net(pixels)
        structure = recognise(records)
        scores_at_zero(records, structure.predictor, structure.latent, "python")
    return sum(sizes)


def test_the_graphs_of_a_belief_net_do_not_grow_with_its_outcomes(monkeypatch):
    assert nodes_compiled(MANY, monkeypatch) == nodes_compiled(FEW, monkeypatch)


def test_a_gradient_for_each_outcome_is_rejected(monkeypatch):
    def with_design(records, predictor, backend):
        return lambda rows: features(records, (predictor,), backend)(rows)[0]

    monkeypatch.setattr(belief_nets, "expansion", with_design)
    with pytest.raises(AssertionError):
        test_the_graphs_of_a_belief_net_do_not_grow_with_its_outcomes(monkeypatch)
