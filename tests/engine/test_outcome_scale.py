"""The scale of outcomes is found with their location, however far both are."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.engine.outcomes import OutcomeScale, outcome_scale
from pymc_dp.methods.gaussian.belief import Curvature
from pymc_dp.methods.gaussian.long_steps import LatestStep
from pymc_dp.methods.gaussian.mode import Mode
from pymc_dp.methods.gaussian.newton import Step, _without_excess
from pymc_dp.methods.gaussian.scale_at_mode import NO_EXCESS, Excess, log_of_noisy
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


def student_t(mu):
    pm.StudentT("y", nu=pm.Gamma("nu", 2, 0.1), mu=mu, sigma=pm.HalfNormal("s", 0.2), observed=Y)


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


def of_a_bounded_logarithm(mu):
    pm.Normal("y", mu, pm.math.exp(pm.Uniform("s", -1, 1)), observed=Y)


def of_a_sum(mu):
    pm.Normal("y", mu, 0.1 + pm.HalfNormal("s"), observed=Y)


def of_the_location(mu):
    s = pm.HalfNormal("s", 0.2)
    pm.Normal("y", mu * s, s, observed=Y)


def of_two_outcomes(mu):
    normal(mu)
    pm.Bernoulli("z", logit_p=mu, observed=(Y > 0).astype(int))


def of_counts(mu):
    pm.NegativeBinomial("y", pm.math.exp(mu), pm.HalfNormal("s"), observed=np.ones(ROWS, int))


@pytest.mark.parametrize(
    "outcome",
    [
        *(known, of_records, of_two_latents, of_an_interval, of_a_sum),
        *(of_a_bounded_logarithm, of_the_location, of_two_outcomes, of_counts, student_t),
    ],
)
def test_other_scales_are_left_to_the_rounds(outcome):
    assert outcome_scale(zoo.separated(regression(outcome))[0]) is None


@pytest.mark.parametrize("outcome", [normal, of_a_precision, of_a_variance])
def test_a_curvature_at_another_scale_is_what_it_is_there(outcome):
    scale = outcome_scale(zoo.separated(regression(outcome))[0])
    points = np.zeros((2, SLOPES + 1))
    points[:, scale.latent] = -1.0, 0.7
    b = SLOPE_OF_LOG_SCALE[outcome]

    def curvature(point):
        sd = np.exp(b * point[scale.latent])
        H = np.zeros((SLOPES + 1, SLOPES + 1))
        H[np.ix_(scale.location, scale.location)] = X.T @ X / sd**2
        H[scale.latent, scale.latent] = 2 * b**2 * ROWS
        return Curvature(H, np.eye(SLOPES + 1))

    moved = curvature(points[0]).in_units(scale.units(*points))
    np.testing.assert_allclose(moved.estimate, curvature(points[1]).estimate, rtol=1e-5)


def errors_of_logarithms(owed_to_location, allowed_for):
    """Errors of log R, in their own sds, of ratios that are measured with noise and an excess."""
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 0.8, 1000)
    owed = owed_to_location.mean * rng.chisquare(4, 1000) / 4
    measured = np.exp(truth) + owed + rng.normal(0, 0.3, 1000)
    found = [log_of_noisy(r, 0.3, 0.8, allowed_for) for r in measured]
    return (truth - [one.mean for one in found]) / [one.sd for one in found]


@pytest.mark.parametrize("owed", [NO_EXCESS, Excess(0.5, 0.125), Excess(3.0, 4.5)])
def test_logarithms_of_noisy_ratios_are_as_uncertain_as_they_say(owed):
    z = errors_of_logarithms(owed, allowed_for=owed)
    assert abs(z.mean()) < 5 / 1000**0.5
    assert np.mean(z**2) == pytest.approx(1.0, abs=0.25)


def test_residuals_that_are_owed_to_the_location_would_make_a_scale_too_large():
    z = errors_of_logarithms(Excess(3.0, 4.5), allowed_for=NO_EXCESS)
    assert z.mean() < -1


@pytest.mark.parametrize("too_wide", [1, 3, 10])
def test_a_location_that_is_believed_to_be_too_wide_leaves_a_scale(too_wide):
    owed = Excess.of(0.2 * too_wide * np.eye(20) / 20, np.eye(20))
    found = log_of_noisy(1.2, 0.03, prior_sd=1.2, excess=owed)
    assert abs(found.mean) < 2.5 * found.sd


@pytest.mark.parametrize("owed", [Excess(np.inf, 1.0), Excess(1.0, np.nan)])
def test_a_location_that_is_lost_is_not_taken_for_a_scale(owed):
    with pytest.raises(FloatingPointError, match="not finite"):
        log_of_noisy(1.0, 0.1, 1.0, owed)


def width_and_error():
    with deterministic_noise(1):
        idata = pymc_dp.fit(
            model=regression(normal), method="dp_advi", epsilon=0.5, draws=400, **QUIETLY
        )
    b = idata["posterior"]["b"].to_numpy().reshape(-1, SLOPES)
    least_squares = np.linalg.lstsq(X, Y, rcond=None)[0]
    exact = 0.1 * np.sqrt(np.diag(np.linalg.inv(X.T @ X)))
    return np.median(b.std(axis=0) / exact), abs((b.mean(axis=0) - least_squares) / exact).max()


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_residuals_far_longer_than_the_scale_cost_few_rounds():
    # slopes add up to a hundred times the variance of the noise
    width, error = width_and_error()
    assert width < 3
    assert error < 10


def log_scales_far_from_the_mode(correct, draws=200):
    """The logarithm of the sd of residuals at points around the mode, as a round estimates it."""
    d, rows, noise = 20, 1000, 0.05
    draw = np.random.default_rng(7)
    X = draw.normal(size=(rows, d))
    H = np.zeros((d + 1, d + 1))
    H[:d, :d], H[d, d] = X.T @ X, 2 * rows
    before = Mode(np.zeros(d + 1), np.diag([*np.full(d, noise**2), 1e-4]))
    local: Any = SimpleNamespace(total_curvature=H, likelihood_curvature=H, number=float(rows))
    scale = OutcomeScale(d, np.arange(d + 1) < d, 1.0, 1)
    found = []
    for _ in range(draws):
        residuals = draw.normal(size=rows) - X @ (noise * draw.normal(size=d))
        mode = before._replace(mean=np.append(np.zeros(d), np.log(residuals.std())))
        step = Step(mode, mode.mean, LatestStep.of(np.zeros(d + 1)), 0.0)
        found.append(correct(step, scale, before, local).mode.mean[d])
    return np.array(found)


def test_residuals_that_owe_nothing_to_the_location_leave_a_scale_as_it_was_found():
    H, C = np.diag([1000.0, 500.0]), np.array([[1.0, 0.45], [0.45, 0.25]])
    before = Mode(np.zeros(2), np.diag([0.0, 4.0]))
    local: Any = SimpleNamespace(total_curvature=H, likelihood_curvature=H, number=500.0)
    step = Step(Mode(np.ones(2), C), np.ones(2), LatestStep.of(np.zeros(2)), 0.0)
    found = _without_excess(step, OutcomeScale(1, np.array([True, False]), 1.0, 1), before, local)
    np.testing.assert_allclose(found.mode.mean, 1, atol=1e-5)
    np.testing.assert_allclose(found.mode.covariance, C, atol=1e-5)


def test_a_scale_is_not_widened_by_what_is_not_known_of_the_location():
    corrected = log_scales_far_from_the_mode(_without_excess)
    assert abs(corrected.mean()) < 5 * corrected.std() / len(corrected) ** 0.5
    as_found = log_scales_far_from_the_mode(lambda step, *_: step)
    assert as_found.mean() > 5 * as_found.std() / len(as_found) ** 0.5
