"""Steps reach modes that are far away, and do not run from those that are near."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit

import pymc_dp
from pymc_dp.methods.gaussian.belief import Curvature
from pymc_dp.methods.gaussian.long_steps import LatestStep, shortened
from pymc_dp.methods.gaussian.mode import Mode
from pymc_dp.methods.gaussian.newton import newton_step
from pymc_dp.testing import deterministic_noise
from tests.methods.gaussian.posteriors import local_posterior_of

ROWS = 4000
PREDICTORS = 20
ONE, STILL, WEAKLY_CORRELATED = np.ones(1), np.zeros(1), np.full(1, True)
NO_PRIOR = np.zeros_like
QUIETLY = {"delta": 1e-5, "progressbar": False, "backend": "python", "random_seed": 1}


def test_a_slope_that_is_not_finite_is_lost():
    with pytest.raises(ArithmeticError):
        shortened(ONE * np.inf, np.eye(1), np.eye(1), reach=1.0)


def error_of_predictors_that_are_nearly_the_same():
    """Error of the predicted means over their sd, for predictors that differ by little."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(ROWS, 1)) + 0.1 * rng.normal(size=(ROWS, PREDICTORS))
    weights = 2 * rng.normal(size=PREDICTORS)
    line = X @ (weights - weights.mean())
    with pm.Model() as model:
        mean, tau = X @ pm.Normal("w", 0, 1, shape=PREDICTORS), pm.Gamma("tau", 2, 0.5)
        pm.Normal("y", mean, tau=tau, observed=line + 0.5 * rng.normal(size=ROWS))
    return max(error_of_line(model, X, line, key) for key in range(5, 9))


def error_of_line(model, X, line, key):
    """The error of the posterior's mean line with the noise of one key, in sds of the line."""
    with deterministic_noise(key):
        idata = pymc_dp.fit(model=model, epsilon=4, **QUIETLY)
    found = idata["posterior"]["w"].mean(("chain", "draw")).to_numpy()
    return np.std(X @ found - line) / np.std(line)


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_steps_keep_the_balance_of_predictors_that_are_nearly_the_same():
    assert error_of_predictors_that_are_nearly_the_same() < 0.2


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_noise_does_not_carry_effects_out_of_their_prior_where_a_scale_is_far():
    """Budgets of 235 households: with this noise an effect was 88 sds of its prior away."""
    rng = np.random.default_rng(0)
    income = np.exp(rng.normal(6.8, 0.45, 235))
    spent = 150 + 0.485 * income + 0.11 * income * rng.normal(size=235)
    with pm.Model() as model:
        line = pm.Normal("a", 0, 100) + pm.Normal("b", 0, 100) * pm.Data("income", income)
        pm.Normal("y", line, pm.HalfNormal("sigma", 500), observed=spent)
    with deterministic_noise(21):
        found = pymc_dp.fit(model=model, epsilon=1, **QUIETLY)["posterior"]
    assert max(abs(found["a"].mean()), abs(found["b"].mean())) < 400


def test_a_latent_goes_as_far_as_its_own_slope():
    wanted, slopes, every = np.array([9.0, 9.0]), np.array([0.1, 5.0]), np.full(2, True)
    last, unit = LatestStep.of(np.zeros(2)), np.ones(2)
    latest = last.then(wanted, slopes, unit, 0.0, np.zeros_like, 8.0, every)
    np.testing.assert_array_equal(latest.step, [1.0, 5.0])


def counts_far_from_their_prior():
    """Eighteen standard deviations of a logarithm of a count from the mean of its prior, 100."""
    y = np.random.default_rng(4).poisson(600.0, ROWS)
    with pm.Model() as model:
        pm.Poisson("y", pm.Gamma("rate", 1, 0.01), observed=y)
    with deterministic_noise(1):
        idata = pymc_dp.fit(model=model, epsilon=1, **QUIETLY)
    return idata["posterior"]["rate"].to_numpy(), y.mean(), (y.mean() / ROWS) ** 0.5


def test_a_rate_many_standard_deviations_of_a_count_away_is_found():
    values, mean, sd = counts_far_from_their_prior()
    assert abs(values.mean() - mean) < 2 * sd
    assert values.std() < 1.3 * sd


def test_a_scale_far_from_its_prior_is_found():
    s = 1e-2
    y = np.random.default_rng(3).normal(0.5, s, ROWS)
    with pm.Model() as model:
        mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
        pm.Normal("y", mu, sd, observed=y)
    with deterministic_noise(1):
        idata = pymc_dp.fit(model=model, epsilon=4, **QUIETLY)
    for name, answer, sd in (("mu", y.mean(), 1.0), ("sd", y.std(), 0.5**0.5)):
        values = idata["posterior"][name].to_numpy()
        assert abs(values.mean() - answer) < 1.5 * sd * s / ROWS**0.5
        assert 0.7 < values.std() / (sd * s / ROWS**0.5) < 1.6


def test_a_rate_is_found_however_rare():
    share = 0.01  # test_rounds has one of .1
    y = np.arange(2 * ROWS) < share * 2 * ROWS
    with pm.Model() as model:
        pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=y)
    with deterministic_noise(1):
        idata = pymc_dp.fit(model=model, epsilon=4, **QUIETLY)
    values, sd = idata["posterior"]["p"].to_numpy(), (share * (1 - share) / len(y)) ** 0.5
    assert abs(values.mean() - share) < 2 * sd
    assert 0.8 < values.std() / sd < 2.0


def share_of_the_way():
    """How far a fit goes to a mode where predictors are nearly the same, far beyond their prior."""
    rng, rows = np.random.default_rng(8), 5000
    X = np.clip(rng.uniform(size=(rows, 1)) + 0.05 * rng.normal(size=(rows, 6)), -0.2, 1.2)
    y = rng.binomial(1, expit(5 * X @ [9.0, -8.0, 7.0, -9.0, 8.0, -7.0]))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=6)
        pm.Bernoulli("y", logit_p=X @ b, observed=y)
    with deterministic_noise(1):
        idata = pymc_dp.fit(model=model, epsilon=2, **QUIETLY)
    mode = np.zeros(6)
    for _ in range(50):
        p = expit(X @ mode)
        H = X.T @ ((p * (1 - p))[:, None] * X) + np.eye(6)
        step = np.linalg.solve(H, X.T @ (y - p) - mode)
        mode += step / max(1.0, abs(step).max())
    return float(idata["posterior"]["b"].to_numpy()[0].mean(axis=0) @ mode / (mode @ mode))


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_predictors_that_are_nearly_the_same_go_beyond_their_prior():
    assert share_of_the_way() > 0.93


def test_a_long_slope_shortens_steps_in_all_directions():
    slope, even = np.array([9.0, 0.9]), np.eye(2)
    found = [shortened(slope, even, even, reach) for reach in (1.0, 4.0)]
    np.testing.assert_allclose(found, [[1.0, 0.1], [4.0, 0.4]])


def test_a_step_that_ends_within_the_reach_is_newtons():
    slope, even = np.array([9.0, 0.1]), np.eye(2)
    np.testing.assert_allclose(shortened(slope, 90 * even, even, reach=1.0), slope / 90)


def step_of(slope, noise_sd, belief_sd):
    """A step in two latents of which 1000 records say the same, (2,)."""
    still = np.zeros(2)
    local = local_posterior_of(
        1000 * np.eye(2),
        1e-4 * np.eye(2),
        gradient=1000 * slope,
        gradient_noise=np.diag((1000 * noise_sd) ** 2),
        number=1000.0,
    )
    mode = Mode(still, np.diag(belief_sd**2))
    return newton_step(mode, LatestStep.of(still), local).latest_step.step


def test_a_long_step_goes_nowhere_with_noise():
    slope, belief_sd = np.array([9.0, 3.0]), np.array([10.0, 0.1])
    far, noisy = step_of(slope, np.array([0.1, 3.0]), belief_sd)
    assert far > 0.9
    assert abs(noisy) < 0.01  # as far as 3 / 9 where the slope is taken as it was released
    assert step_of(slope, np.array([0.1, 0.001]), belief_sd)[1] > 0.2


def test_a_curvature_follows_the_scale_of_a_clearly_different_one_alone():
    before = Curvature(np.eye(2), 0.1 * np.eye(2))
    there = Curvature(np.diag([9.0, 1.1]), 0.1 * np.eye(2))
    found = before.scaled_like(there, np.full(2, True)).estimate
    np.testing.assert_allclose(found, np.diag([9.0, 1.0]))


def steps_down(distance, prior=NO_PRIOR, steps=8):
    """Newton's steps down a log sd, which are never longer than a half."""
    latest, place = LatestStep.of(STILL), distance
    for _ in range(steps):
        step = np.expm1(-2 * place) / 2
        latest = latest.then(step, step, ONE, 0.0, prior, 1.0, WEAKLY_CORRELATED)
        place = place + latest.step
    return place


def test_a_log_sd_far_too_large_is_brought_down():
    assert abs(steps_down(np.array([6.0]))) < 0.2
