"""Strong effects are not pulled back to where rounds began: the mean lies beyond the mode."""

import numpy as np
import pymc as pm
from hypothesis import given
from hypothesis import strategies as st

import pymc_dp
from pymc_dp.methods.gaussian.posterior_mean import CurvatureFall, mean_beyond_mode
from pymc_dp.testing import deterministic_noise

RECORDS, EFFECTS, SETS = 1500, 30, 10


def mean_error_along_strong_effects():
    """The error along truths drawn from the prior, in sds of the posterior, over data sets."""
    X = np.random.default_rng(5).normal(size=(RECORDS, EFFECTS))
    with pm.Model() as model:
        w = pm.Normal("b", 0, 1, shape=EFFECTS)
        outcomes = pm.Data("outcomes", np.zeros(RECORDS, int))
        pm.Bernoulli("y", logit_p=pm.Data("X", X) @ w, observed=outcomes)
    errors = []
    for number in range(SETS):
        rng = np.random.default_rng(number)
        b = rng.normal(size=EFFECTS)
        y = (rng.uniform(size=RECORDS) < 1 / (1 + np.exp(-X @ b))).astype(int)
        with deterministic_noise(number):
            idata = pymc_dp.fit(
                model=model, data={"X": X, "outcomes": y}, epsilon=np.inf, progressbar=False
            )
        along = idata["posterior"]["b"].to_numpy()[0] @ b / (b @ b)
        errors.append((along.mean() - 1) / along.std())
    return np.mean(errors)


def test_posteriors_of_strong_effects_are_not_pulled_to_the_start():
    assert abs(mean_error_along_strong_effects()) < 0.35  # its standard error is .28


@given(st.integers(0, 10**6), st.floats(0, 1), st.integers(1, 8))
def test_the_mean_is_where_the_density_over_other_directions_is_largest(seed, power, d):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, d, d))
    covariance, metric = A @ A.T + 0.1 * np.eye(d), B @ B.T + 0.1 * np.eye(d)
    mode, start = rng.normal(size=(2, d))
    mode = mode * 10
    mean = mean_beyond_mode(mode, start, covariance, CurvatureFall(metric, power), d)
    before, path, spread = mode - start, mean - start, np.trace(metric @ covariance)
    sure = max(0.0, 1 - spread / (before @ metric @ before))
    multiplier = sure * power * d / 2 / (path @ metric @ path + spread)
    most = 0.5 / np.linalg.eigvals(metric @ covariance).real.max()
    slope = min(multiplier, most) * metric @ path
    pull = np.linalg.solve(covariance, mean - mode)
    np.testing.assert_allclose(pull, slope, atol=1e-5 * (1 + np.abs(slope).max()))


def weak_effects(number=50, records=4000):
    """Errors of weak effects of many predictors, in posterior sds, and the slope on the truth."""
    rng = np.random.default_rng(3)
    X, b = rng.normal(size=(records, number)), 0.3 * rng.normal(size=number)
    y = (rng.uniform(size=records) < 1 / (1 + np.exp(-X @ b))).astype(int)
    with pm.Model() as model:
        w = pm.Normal("b", 0, 1, shape=number)
        pm.Bernoulli("y", logit_p=pm.Data("X", X) @ w, observed=y)
    errors, slopes = [], []
    for key in range(4):
        with deterministic_noise(key):
            idata = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, progressbar=False)
        draws = idata["posterior"]["b"].to_numpy()[0]
        errors.append((draws.mean(axis=0) - b) / draws.std(axis=0))
        slopes.append(draws.mean(axis=0) @ b / (b @ b))
    return np.mean(np.square(errors)) ** 0.5, np.mean(slopes)


def test_weak_effects_are_not_made_stronger():
    error, slope = weak_effects()
    assert error < 1.2
    assert 0.8 < slope < 1.25
