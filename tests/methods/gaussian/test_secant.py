"""What the scores at both ends of a step say keeps steps from going back and forth."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.methods.gaussian.secant import Secant

ROWS = 4000
rng = np.random.default_rng(2)
X = np.column_stack(
    [rng.binomial(1, 0.3, ROWS), rng.normal(12, 2, ROWS), rng.integers(0, 40, ROWS)]
)
LATENT = X @ [-7.0, 0.7, 0.35] - 3 + rng.normal(0, 10.0, ROWS)
HOURS = np.maximum(100 * LATENT, 0.0)


def error_of_the_last_step():
    """How many sds a censored regression without noise still moved; its mode is far."""
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1000), pm.Normal("b", 0, 1000, shape=3)
        sigma = pm.HalfNormal("sigma", 2000)
        mean = pm.Normal.dist(a + pm.Data("X", X.astype(float)) @ b, sigma)
        pm.Censored("hours", mean, lower=0.0, upper=None, observed=HOURS)
    idata = pymc_dp.fit(
        model=model, epsilon=np.inf, progressbar=False, backend="python", random_seed=1
    )
    path, sd = idata["fit_stats"]["mean_path"].to_numpy(), idata["fit"]["standard_deviation"]
    return float(np.abs((path[-1] - path[-2]) / sd.to_numpy()).max())


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_steps_without_noise_end():
    assert error_of_the_last_step() < 0.01


TINY = 1e-9 * np.eye(2)


STEP = np.array([1.0, 0.0])


def missing(gradient, noise=TINY):
    """What is missing of a curvature of I where a slope of (1, 1) has become this one."""
    there = Secant(np.ones(2), noise, STEP, reach=1.0)
    return there.missing(np.eye(2), np.array(gradient), noise)


def test_a_slope_that_falls_as_the_curvature_says_adds_nothing():
    assert not missing([0.0, 1.0]).any()


def test_one_that_falls_by_more_adds_what_is_missing_along_the_step_alone():
    np.testing.assert_allclose(missing([-2.0, 5.0]), [[2.0, 0.0], [0.0, 0.0]])


def test_a_fall_within_the_noise_adds_nothing():
    assert not missing([-2.0, 5.0], noise=np.eye(2)).any()


def test_one_that_falls_by_less_takes_nothing_away():
    assert not missing([0.9, 1.0]).any()
