"""Graphs that are kept for a prior are not taken for those of another."""

import numpy as np
import pymc as pm
import pytest

from pymc_dp.engine.conditional import log_prior_of
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.model import separate
from pymc_dp.model.harden import constrained


def records_of(mean=1.0, sd=2.0, shape=3.0):
    with pm.Model() as model:
        a = pm.Normal("a", mean, sd, shape=2)
        tau = pm.Gamma("tau", shape, 1.0)
        pm.Normal("y", a[0] + a[1], tau=tau, observed=np.zeros(4))
    return separate(constrained(model))[0]


def slope(records):
    return prior_gradient(records, "python")(np.full(3, 2.0))


def densities(records):
    return log_prior_of(records)(np.full((1, 3), 2.0))


@pytest.mark.parametrize("other", [{"mean": 5.0}, {"sd": 1.0}, {"shape": 7.0}])
def test_another_number_in_a_prior_makes_other_graphs(other):
    for of in (slope, densities):
        assert not np.array_equal(of(records_of()), of(records_of(**other)))


def test_another_number_of_latents_makes_other_graphs():
    for number in (2, 3):
        with pm.Model() as model:
            a = pm.Normal("a", shape=number)
            pm.Normal("y", a[0] + a[1], observed=np.zeros(7))
        point = np.linspace(1, 2, number)
        found = log_prior_of(separate(constrained(model))[0])(point[None])
        np.testing.assert_allclose(found, pm.logp(pm.Normal.dist(), point).eval().sum())
