"""Fits warn of outcomes that cannot occur under a model, before any budget is spent.

PyMC's samplers refuse them. A private fit leaves such records out: a fit of costs of which a
quarter are 0 is one of the costs above 0.
"""

import numpy as np
import pymc as pm
import pytest

from pymc_dp.driver.fit import set_up
from pymc_dp.errors import PosteriorWarning
from pymc_dp.model import value_checks

RNG = np.random.default_rng(0)
ROWS = 300
COSTS = np.where(np.arange(ROWS) % 4 == 0, 0.0, RNG.gamma(2.0, 1.0, ROWS))
FROM_ONE = RNG.integers(1, 4, ROWS)
TIMES = RNG.weibull(1.5, ROWS)
COUNTS = RNG.poisson(1.0, ROWS)
IMPOSSIBLE_TEXT = "`y` has values that cannot occur under the model"


def gamma(y):
    return pm.Gamma("y", mu=pm.math.exp(pm.Normal("a")), sigma=1, observed=y)


def categorical(y):
    return pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), observed=y)


def censored(y):
    return pm.Censored("y", pm.Weibull.dist(1.5, pm.HalfNormal("b")), None, 1.0, observed=y)


def truncated(y):
    return pm.Truncated("y", pm.Poisson.dist(pm.HalfNormal("mu", 3)), lower=1, observed=y)


def mixture(y):
    parts = [pm.Gamma.dist(2, pm.HalfNormal("b")), pm.Gamma.dist(9, 1)]
    return pm.Mixture("y", w=[0.5, 0.5], comp_dists=parts, observed=y)


def log_of_zero(y):
    return pm.Potential("y", -pm.math.log(pm.Data("cost", y)) * pm.HalfNormal("b"))


IMPOSSIBLE = [
    (gamma, COSTS),
    (mixture, COSTS),
    (log_of_zero, COSTS),
    (categorical, FROM_ONE),
    (censored, TIMES + 0.5),
    (truncated, COUNTS),
]
POSSIBLE = [
    (gamma, COSTS + 0.1),
    (categorical, FROM_ONE - 1),
    (censored, np.minimum(TIMES, 1.0)),
    (truncated, COUNTS + 1),
]


def model_of(likelihood, y):
    with pm.Model() as model:
        likelihood(y)
    return model


def checked(model, **settings):
    return set_up(model, "dp_advi", None, epsilon=1, delta=1e-5, **settings)


@pytest.mark.parametrize(("likelihood", "y"), IMPOSSIBLE, ids=[x.__name__ for x, _ in IMPOSSIBLE])
def test_outcomes_that_cannot_occur_are_named(likelihood, y):
    with pytest.warns(PosteriorWarning, match=IMPOSSIBLE_TEXT):
        checked(model_of(likelihood, y))


@pytest.mark.parametrize(("likelihood", "y"), POSSIBLE, ids=[x.__name__ for x, _ in POSSIBLE])
def test_of_outcomes_that_can_occur_nothing_is_said(likelihood, y, recwarn):
    checked(model_of(likelihood, y))
    assert not recwarn.list


def test_the_first_impossible_record_may_come_late_and_from_data(monkeypatch):
    monkeypatch.setattr(value_checks, "ROWS", 50)
    y = np.ones(ROWS)
    checked(model_of(gamma, np.ones(2)), data={"y": y})
    y[-1] = 0.0
    with pytest.warns(PosteriorWarning, match=IMPOSSIBLE_TEXT):
        checked(model_of(gamma, np.ones(2)), data={"y": y})


def test_of_what_is_impossible_at_the_start_alone_nothing_is_said(recwarn):
    with pm.Model() as model:
        top = pm.HalfNormal("top", 5.0, initval=0.5)
        pm.Uniform("y", 0.0, top, observed=np.linspace(0.01, 0.9, ROWS))
    checked(model)
    assert not recwarn.list


def test_of_shares_that_belong_to_records_nothing_is_said(recwarn):
    words = RNG.multinomial(20, np.full(10, 0.1), ROWS)
    with pm.Model() as model:
        topic = pm.Dirichlet("topic", np.ones(10), shape=(4, 10))
        share = pm.Dirichlet("share", np.ones(4), shape=(ROWS, 4))
        pm.Multinomial("y", 20, pm.math.dot(share, topic), observed=words)
    checked(model)
    assert not recwarn.list
