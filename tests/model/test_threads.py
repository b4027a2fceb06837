"""Threads may share a model: nothing of the author's own changes, even while it is copied."""

import numpy as np
import pymc as pm
import pytest
from pymc.model.transform import conditioning

from pymc_dp.model import harden as hardening

START = np.array([0.3, 0.4])


def model():
    with pm.Model(coords={"t": ["u", "v"]}) as built:
        b = pm.Normal("b", dims="t", initval=START)
        c = pm.Normal("c", shape=(2, 2), initval=np.full((2, 2), 0.7))
        mean = pm.Data("X", np.eye(8)[:, :2], dims=(None, "t")) @ (b + c.sum(axis=0))
        pm.Normal("y", mean, pm.HalfNormal("s"), observed=np.arange(8.0))
    return built


def own(built):
    """The author's initial values, by identity, and dims."""
    starts = {rv.name: id(start) for rv, start in built.rvs_to_initial_values.items()}
    return starts, dict(built.named_vars_to_dims)


@pytest.mark.parametrize("copy", [hardening.harden, hardening.constrained])
def test_a_model_is_as_it_was_while_it_is_copied(copy, monkeypatch):
    built = model()
    before, seen = own(built), []
    genuine = hardening.fgraph_from_model

    def watched(*args, **kwargs):
        seen.append(own(built))
        return genuine(*args, **kwargs)

    monkeypatch.setattr(hardening, "fgraph_from_model", watched)
    monkeypatch.setattr(conditioning, "fgraph_from_model", watched)
    copied = copy(built)
    copied = getattr(copied, "model", copied)
    assert seen == [before]
    assert own(built) == before
    assert copied.named_vars_to_dims["X"] == (None, "t")
