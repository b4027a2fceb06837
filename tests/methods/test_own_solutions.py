"""Without noise each method ends at the solution of its own equation, on data where they differ."""

import math
import warnings
from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit, log_expit

import pymc_dp
from pymc_dp.engine import rounds
from pymc_dp.testing import deterministic_noise
from tests.methods.sep.expectation_propagation import propagate

PRIOR_SD = 2.0
# in posterior standard deviations: without noise, with little of it, and of other solutions
CLOSE, NEAR, APART = 0.01, 0.08, 0.1
METHODS = ("dp_advi", "vips", "dp_sep")
NODES, SHARES = np.polynomial.hermite_e.hermegauss(41)
SHARES = SHARES / SHARES.sum()


@cache
def skewed(number):
    """Few records, with strong effects: the mode is far from the mean."""
    records, effects, size = [(40, 3, 1.5), (60, 3, 2.0), (300, 10, 1.0)][number]
    rng = np.random.default_rng(number)
    X = rng.normal(size=(records, effects))
    b = size * rng.normal(size=effects)
    return X, (rng.uniform(size=records) < expit(X @ b)).astype(int)


def newton(X, y, solve, steps=400):
    """Iterate (m, S) -> (score, curvature, precision of S) to the solution; return m and S."""
    P = np.eye(X.shape[1]) / PRIOR_SD**2
    m, S = np.zeros(X.shape[1]), np.linalg.inv(X.T @ X / 4 + P)
    for _ in range(steps):
        r, h, own = solve(y, X @ m, np.sqrt(((X @ S) * X).sum(axis=1)))
        step = np.linalg.solve((X.T * h) @ X + P, X.T @ r - P @ m)
        m = m + 0.7 * step / max(1, np.abs(step).max())
        S = np.linalg.inv((X.T * own) @ X + P)
    return m, S


def at_mode(y, psi, s):
    p = expit(psi)
    return y - p, p * (1 - p), p * (1 - p)


def gaussian_vi(y, psi, s):
    p = expit(psi[:, None] + s[:, None] * NODES)
    curvature = (p * (1 - p)) @ SHARES
    return y - p @ SHARES, curvature, curvature


def coordinate_ascent(y, psi, s):
    c = np.hypot(psi, s)
    omega = np.tanh(c / 2) / (2 * c)
    return y - 0.5 - omega * psi, omega, omega


def counts_at_mode(y, psi, s):
    rate = np.exp(psi)
    return y - rate, rate, rate


def counts_gaussian_vi(y, psi, s):
    return counts_at_mode(y, psi + s**2 / 2, s)


def average_sites(X, y):
    def log_likelihood(psi):
        return log_expit((2 * y[:, None] - 1) * psi)

    prior = np.eye(X.shape[1]) / PRIOR_SD**2
    return propagate(X, log_likelihood, prior, shared=True, rounds=600)


@cache
def solutions(number):
    X, y = skewed(number)
    found = {
        "mode": newton(X, y, at_mode),
        "dp_advi": newton(X, y, gaussian_vi),
        "vips": newton(X, y, coordinate_ascent),
        "dp_sep": average_sites(X, y),
    }
    sd = np.sqrt(np.diag(found["dp_advi"][1]))
    return {name: m for name, (m, _) in found.items()}, sd


def product(X):
    return pm.Data("X", X) @ pm.Normal("w", 0, PRIOR_SD, shape=X.shape[1])


def fitted(number, method, **terms):
    X, y = skewed(number)
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=product(X), observed=y)
    return solved(model, method, **terms)


def solved(model, method, epsilon=math.inf, **terms):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pymc_dp.PrivacyWarning)
        idata = pymc_dp.fit(
            model=model,
            method=method,
            epsilon=epsilon,
            progressbar=False,
            backend="python",
            draws=2,
            **terms,
        )
    fit = idata["fit"].to_dataset()
    fit = fit.sortby(fit["mean_vector"].dims[0])
    return fit["mean_vector"].to_numpy(), fit["standard_deviation"].to_numpy()


def off_by(number, solution, mean):
    means, sd = solutions(number)
    return np.abs((mean - means[solution]) / sd).max()


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("method", METHODS)
def test_a_method_ends_at_its_own_solution_as_wide_as_the_posterior(method, number):
    """And not as wide as a bound says."""
    means, sd = solutions(number)
    mean, width = fitted(number, method)
    assert off_by(number, method, mean) < CLOSE
    assert off_by(number, "mode", means[method]) > APART
    np.testing.assert_allclose(width, sd, rtol=0.06)


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("method", METHODS)
def test_with_a_large_budget_a_method_ends_near_its_own_solution(method, number):
    with deterministic_noise(1):
        mean, _ = fitted(number, method, epsilon=1e6, delta=1e-5)
    assert off_by(number, method, mean) < NEAR


@cache
def few_counts(number):
    records, effects, size = [(40, 3, 0.7), (30, 2, 0.7), (12, 1, 0.7)][number]
    rng = np.random.default_rng(number)
    X = rng.normal(size=(records, effects))
    X[:, 0] = 1
    b = size * rng.normal(size=effects)
    b[0] = -1
    return X, rng.poisson(np.exp(X @ b))


@pytest.mark.parametrize("number", range(3))
def test_counts_end_at_full_rank_gaussian_inference(number):
    X, y = few_counts(number)
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(product(X)), observed=y)
    mean, width = solved(model, "dp_advi")
    (mode, _), (m, S) = (newton(X, y, way) for way in (counts_at_mode, counts_gaussian_vi))
    sd = np.sqrt(np.diag(S))
    assert np.abs((mean - m) / sd).max() < CLOSE
    assert np.abs((mode - m) / sd).max() > APART
    np.testing.assert_allclose(width, sd, rtol=0.01)


@pytest.mark.parametrize("method", ["dp_advi", "vips"])
def test_scores_at_the_point_end_at_the_mode(monkeypatch, method):
    prepared = rounds.prepared

    def without_width(*state_of_a_round):
        state = prepared(*state_of_a_round)
        return state._replace(at=state.at._replace(root=1e-6 * state.at.root))

    for module in ("rounds", "start"):
        monkeypatch.setattr(f"pymc_dp.engine.{module}.prepared", without_width)
    mean, _ = fitted(0, method)
    assert off_by(0, method, mean) > APART
    assert off_by(0, "mode", mean) < CLOSE
