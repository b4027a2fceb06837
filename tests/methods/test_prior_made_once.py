"""What is made of a prior is made once for equal priors, and again for any other."""

import numpy as np
import pymc as pm
import pytest

from pymc_dp.methods import prior
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


@pytest.fixture
def made(monkeypatch):
    """Count what is made anew, with nothing kept before."""
    monkeypatch.setattr(prior, "_kept", prior.Kept())
    return prior._kept.made


def test_an_equal_prior_is_not_derived_again(made):
    first, second = slope(records_of()), slope(records_of())
    np.testing.assert_array_equal(first, second)
    assert len(made) == 1


@pytest.mark.parametrize("other", [{"mean": 5.0}, {"sd": 1.0}, {"shape": 7.0}])
def test_another_number_in_a_prior_makes_other_graphs(other, made):
    assert not np.array_equal(slope(records_of()), slope(records_of(**other)))
