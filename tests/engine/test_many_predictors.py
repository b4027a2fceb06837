"""A hundred rare predictors: noise hides their curvature, and the steps between scores show it."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit

import pymc_dp
from pymc_dp.engine import rounds
from pymc_dp.errors import PosteriorWarning
from pymc_dp.testing import deterministic_noise

ROWS, PREDICTORS = 10_000, 100


@pytest.fixture(scope="module")
def answers():
    rng = np.random.default_rng(11)
    yes = rng.random((ROWS, PREDICTORS)) < np.geomspace(0.01, 0.5, PREDICTORS)
    X = np.column_stack([np.ones(ROWS), yes])
    b = rng.normal(0, 0.7, PREDICTORS + 1)
    b[0] = -(yes @ b[1:]).mean()
    p = expit(X @ b)
    sd = np.linalg.inv((X.T * (p * (1 - p))) @ X + np.eye(len(b)) / 4).diagonal() ** 0.5
    with pm.Model() as model:
        slopes = pm.Normal("b", 0, 2, shape=len(b))
        pm.Bernoulli("y", logit_p=pm.Data("X", X) @ slopes, observed=rng.binomial(1, p))
    return model, sd


def width(answers):
    """The median sd of a fit at epsilon 1, over that without privacy."""
    model, sd = answers
    with deterministic_noise(3), pytest.warns(PosteriorWarning):
        idata = pymc_dp.fit(
            model=model, epsilon=1, delta=1e-5, progressbar=False, backend="python", random_seed=1
        )
    return np.median(idata["posterior"]["b"].std(("chain", "draw")) / sd)


def test_their_effects_are_found(answers):
    assert width(answers) < 8


def test_a_curvature_without_these_steps_does_not_show_them(answers, monkeypatch):
    """The planted fault."""
    monkeypatch.setattr(rounds, "with_secant", lambda H, *seen: H)
    assert width(answers) > 12
