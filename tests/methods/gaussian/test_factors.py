"""A curvature is a diagonal and a few factors, as far as the release does not say otherwise."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.methods.gaussian.belief import Curvature
from pymc_dp.methods.gaussian.factors import visible_along_steps, with_factors
from pymc_dp.methods.gaussian.mode import Mode
from pymc_dp.testing import deterministic_noise

QUIETLY = {"progressbar": False, "backend": "python", "random_seed": 1}


def test_a_damped_step_says_how_much_it_leaves():
    rng = np.random.default_rng(3)
    total, sd = np.diag([4.0, 0.5]), np.array([1.0, 0.5])
    away = rng.normal(size=(20_000, 2))
    slopes = away @ total + sd * rng.normal(size=away.shape)
    mode, noise = Mode(np.zeros(2), np.eye(2)), np.diag(sd**2)
    update = mode.update(slopes[0], total, noise, damping=lambda _: 0.4, number=1e9)
    spread = total @ total + noise
    gain = 0.4 * np.linalg.solve(spread, total).T
    left = away - slopes @ gain.T
    np.testing.assert_allclose(np.cov(left.T), update.covariance, atol=0.03)
    best = mode.update(slopes[0], total, noise)
    assert np.trace(best.covariance) < np.trace(update.covariance)


def test_what_a_damped_step_leaves_is_within_a_unit_however_wide_the_prior_is():
    total, noise = 4e4 * np.eye(2), 1e4 * np.eye(2)  # of 1e4 records
    wide = Mode(np.zeros(2), 1e6 * np.eye(2))
    left = wide.update(np.ones(2), total, noise, damping=lambda _: 0.5, number=1e4).covariance
    np.testing.assert_allclose(left, (0.5 * 0.5) ** 2 * np.eye(2), rtol=0.01)


def fitted_to_rare_predictors(number):
    """Sds of a fit with many rare predictors, over what the records tell without privacy."""
    rng = np.random.default_rng(4)
    X = (rng.uniform(size=(4000, number)) < rng.uniform(0.05, 0.2, number)).astype(float)
    b = 0.5 * rng.normal(size=number)
    p = 1 / (1 + np.exp(-X @ b))
    with pm.Model() as model:
        eta = pm.Normal("a", 0, 2) + X @ pm.Normal("b", 0, 2, shape=number)
        pm.Bernoulli("y", logit_p=eta, observed=(rng.uniform(size=4000) < p).astype(int))
    with deterministic_noise(1):
        idata = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, **QUIETLY)
    whole = np.column_stack([np.ones(4000), X])
    H = whole.T @ ((p * (1 - p))[:, None] * whole) + np.eye(number + 1) / 4
    draws = idata["posterior"]["b"].to_numpy()[0]
    error = (draws.mean(axis=0) - b) / draws.std(axis=0)
    return draws.std(axis=0) / np.sqrt(np.diag(np.linalg.inv(H)))[1:], error


def test_many_rare_predictors_get_intervals_of_their_size():
    width, error = fitted_to_rare_predictors(60)
    assert np.median(width) < 3.5
    assert 0.5 < np.sqrt(np.mean(error**2)) < 1.4


def error_of_strong_effects(number=16, effect=1.2):
    """The error along the truth, in sds of its own, of a logistic regression of strong effects."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(6000, number))
    b = effect * rng.choice([-1.0, 1.0], number)
    y = rng.uniform(size=6000) < 1 / (1 + np.exp(-X @ b))
    with pm.Model() as model:
        w = pm.Normal("b", 0, 1, shape=number)
        pm.Bernoulli("y", logit_p=X @ w, observed=y.astype(int))
    errors = []
    for key in range(4):
        with deterministic_noise(key):
            idata = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, **QUIETLY)
        along = idata["posterior"]["b"].to_numpy()[0] @ b / (b @ b)
        errors.append((along.mean() - 1) / along.std())
    return np.mean(np.square(errors)) ** 0.5


def test_strong_effects_are_found_though_curvature_falls_on_the_path_to_them():
    assert error_of_strong_effects() < 1.5


def test_many_strong_effects_are_found():
    assert error_of_strong_effects(24, 1.0) < 1.5


D = 60


def noise(rng, Q):
    """Draw Q^(1/2) G Q^(1/2) with svec(G) ~ N(0, I)."""
    root = np.linalg.cholesky(Q)
    G = rng.normal(size=Q.shape) / 2**0.5
    return root @ ((G + G.T) / 2**0.5) @ root.T


def found_in(rng, H, share):
    """Release a curvature with noise of this share of each latent's own."""
    Q = share * np.diag(np.diag(H))
    return Curvature(H + noise(rng, Q), Q)


@pytest.mark.parametrize("seed", range(3))
def test_a_curvature_of_another_form_is_believed_as_it_was_found(seed):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(D, 2 * D))
    H = a @ a.T
    found = found_in(rng, H, 0.01)
    believed = with_factors(found).curvature.estimate
    assert np.linalg.norm(believed - H) < 1.2 * np.linalg.norm(found.estimate - H)
    # as if it were a diagonal
    assert np.linalg.norm(np.diag(np.diag(H)) - H) > 10 * np.linalg.norm(found.estimate - H)


def test_a_step_is_as_short_as_the_curvature_along_it():
    rng = np.random.default_rng(2)
    stiff = np.ones(D) / D**0.5
    H = np.eye(D) + 20 * np.outer(stiff, stiff)
    found = Curvature(H + noise(rng, np.eye(D)), np.eye(D))
    hidden, prior = Curvature(np.eye(D), np.eye(D)), 0.01 * np.eye(D)
    slope = H @ stiff  # the mode is one unit away
    assert stiff @ np.linalg.solve(hidden.estimate + prior, slope) > 20
    seen = visible_along_steps(hidden, found, slope, prior).estimate
    assert stiff @ np.linalg.solve(seen + prior, slope) < 4
