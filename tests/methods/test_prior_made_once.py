"""What is made of a prior is made once for equal priors, and again for any other."""

import numpy as np
import pymc as pm
import pytest

from pymc_dp.methods import prior
from pymc_dp.methods.conjugate.blocks import prior_messages
from pymc_dp.methods.conjugate.exponential import GAMMA, NORMAL
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.model import separate
from pymc_dp.model.harden import constrained


def records_of(mean=1.0, sd=2.0, shape=3.0):
    with pm.Model() as model:
        a = pm.Normal("a", mean, sd, shape=2)
        tau = pm.Gamma("tau", shape, 1.0)
        pm.Normal("y", a[0] + a[1], tau=tau, observed=np.zeros(4))
    return separate(constrained(model))[0]


def of_precision(records):
    [_, message] = prior_messages(records, {"a": NORMAL, "tau": GAMMA}).values()
    return np.ravel(message({"a": np.ones(2), "tau": np.array(2.0)}))


def of_mean(records):
    [message, _] = prior_messages(records, {"a": NORMAL, "tau": GAMMA}).values()
    return message({"a": np.ones(2), "tau": np.array(2.0)})[0]


def slope(records):
    return prior_gradient(records, "python")(np.full(3, 2.0))


@pytest.fixture
def made(monkeypatch):
    """Count what is made anew, with nothing kept before."""
    monkeypatch.setattr(prior, "_kept", prior.Kept())
    return prior._kept.made


@pytest.mark.parametrize(("compute", "number"), [(of_mean, 2), (slope, 1)])
def test_an_equal_prior_is_not_derived_again(compute, number, made):
    first, second = compute(records_of()), compute(records_of())
    np.testing.assert_array_equal(first, second)
    assert len(made) == number


@pytest.mark.parametrize("other", [{"mean": 5.0}, {"sd": 1.0}, {"shape": 7.0}])
def test_another_number_in_a_prior_makes_other_graphs(other, made):
    of = of_precision if "shape" in other else of_mean
    assert not np.array_equal(of(records_of()), of(records_of(**other)))
    assert not np.array_equal(slope(records_of()), slope(records_of(**other)))
    np.testing.assert_allclose(of_mean(records_of(mean=5.0)), 5 / 4)


def test_what_may_change_is_made_every_time(made, monkeypatch):
    monkeypatch.setattr(prior, "graph_key", lambda *_: None)
    slope(records_of())
    assert not made
