"""The scale of outcomes is found with their location, however far both are."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.engine.outcomes import outcome_scale
from pymc_dp.testing import deterministic_noise
from tests import zoo

ROWS, SLOPES = 4000, 8
QUIETLY = {"delta": 1e-5, "progressbar": False, "backend": "python", "random_seed": 1}
rng = np.random.default_rng(8)
X = rng.normal(size=(ROWS, SLOPES))
TRUTH = rng.normal(0, 0.5, SLOPES)
Y = rng.normal(X @ TRUTH, 0.1)


def regression(outcome):
    with pm.Model() as model:
        b = pm.Normal("b", 0, 0.5, shape=SLOPES)
        outcome(pm.Data("X", X) @ b)
    return model


def normal(mu):
    pm.Normal("y", mu, pm.HalfNormal("s", 0.2), observed=Y)


def of_a_precision(mu):
    pm.Normal("y", mu, tau=pm.Gamma("tau", 2, 0.02), observed=Y)


def of_a_variance(mu):
    pm.Normal("y", mu, pm.InverseGamma("v", 3, 0.02) ** 0.5, observed=Y)


def lognormal(mu):
    pm.LogNormal("y", mu, pm.Exponential("s", 5), observed=np.exp(Y))


SLOPE_OF_LOG_SCALE = {
    normal: 1.0,
    of_a_precision: -0.5,
    of_a_variance: 0.5,
    lognormal: 1.0,
}


@pytest.mark.parametrize("outcome", SLOPE_OF_LOG_SCALE)
def test_the_latent_of_a_scale_is_recognised(outcome):
    records, _ = zoo.separated(regression(outcome))
    scale = outcome_scale(records)
    assert records.labels[scale.latent].split("_")[0] in ("s", "tau", "v")
    assert scale.slope == pytest.approx(SLOPE_OF_LOG_SCALE[outcome])
    named = [name for name, is_read in zip(records.labels, scale.location, strict=True) if is_read]
    assert named == [f"b[{k}]" for k in range(SLOPES)]


def known(mu):
    pm.Normal("y", mu, 0.1, observed=Y)


def of_records(mu):
    pm.Normal("y", mu, pm.math.exp(pm.Normal("c") * pm.Data("x", X[:, 0])), observed=Y)


def of_two_latents(mu):
    pm.Normal("y", mu, pm.HalfNormal("s") + pm.HalfNormal("t"), observed=Y)


def of_an_interval(mu):
    pm.Normal("y", mu, pm.Uniform("s", 0, 1), observed=Y)


def of_the_location(mu):
    s = pm.HalfNormal("s", 0.2)
    pm.Normal("y", mu * s, s, observed=Y)


def of_two_outcomes(mu):
    normal(mu)
    pm.Bernoulli("z", logit_p=mu, observed=(Y > 0).astype(int))


@pytest.mark.parametrize(
    "outcome",
    [*(known, of_records, of_two_latents), *(of_an_interval, of_the_location, of_two_outcomes)],
)
def test_other_scales_are_left_to_the_rounds(outcome):
    assert outcome_scale(zoo.separated(regression(outcome))[0]) is None


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_residuals_far_longer_than_the_scale_cost_few_rounds():
    # slopes add up to a hundred times the variance of the noise
    with deterministic_noise(1):
        idata = pymc_dp.fit(
            model=regression(normal), method="dp_advi", epsilon=0.5, draws=400, **QUIETLY
        )
    b = idata["posterior"]["b"].to_numpy().reshape(-1, SLOPES)
    least_squares = np.linalg.lstsq(X, Y, rcond=None)[0]
    exact = 0.1 * np.sqrt(np.diag(np.linalg.inv(X.T @ X)))
    assert np.median(b.std(axis=0) / exact) < 3
    assert abs((b.mean(axis=0) - least_squares) / exact).max() < 10
