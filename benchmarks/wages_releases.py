"""Regressions of one table, released by several methods: by this package, by others, by hand.

All of them get the same rows, with predictors in [-1, 1] by public ranges: the scaling that is
kindest to releases with one bound for all columns. Others clip outcomes to a public range, too.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pymc as pm
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import norm, t

from benchmarks.papers.experiment import quiet_fit
from benchmarks.papers.peers import fit_peers, objective_perturbation

DELTA = 1e-5
PROB = 0.9
# outcomes within the public center give or take this: wages of 800 to 2.4 million dollars
OUTCOME_BOUND = 4.0
PRIOR_SD = 2.0
DRAWS = 4000
NEWTON_STEPS = 25
# an upper triangle has each product once: with this factor its norm is that of the full matrix
PAIR = math.sqrt(2)


class Estimate(NamedTuple):
    """Coefficients and their intervals, and the sd of outcomes: nan where a method has none."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class Rows(NamedTuple):
    """Predictors, whose first column is 1, and outcomes."""

    X: np.ndarray
    y: np.ndarray


def interval(mean: np.ndarray, se: np.ndarray, freedom: float = math.inf) -> Estimate:
    """Return estimates with the intervals of their standard errors."""
    half = t.ppf((1 + PROB) / 2, freedom) * se
    return Estimate(mean, mean - half, mean + half)


def alone(mean: np.ndarray, size: int) -> Estimate:
    """Return estimates without intervals, and without an sd of outcomes where none is estimated."""
    full = np.append(mean, np.full(size - len(mean), np.nan))
    return Estimate(full, np.full(size, np.nan), np.full(size, np.nan))


def least_squares(rows: Rows) -> Estimate:
    """Return ordinary least squares with the usual intervals; last the sd of outcomes."""
    freedom = len(rows.y) - rows.X.shape[1]
    b = np.linalg.lstsq(rows.X, rows.y, rcond=None)[0]
    s = math.sqrt(np.sum((rows.y - rows.X @ b) ** 2) / freedom)
    se = s * np.sqrt(np.diag(np.linalg.inv(rows.X.T @ rows.X)))
    return interval(np.append(b, s), np.append(se, s / math.sqrt(2 * freedom)), freedom)


def maximum_likelihood(rows: Rows) -> Estimate:
    """Return a logistic regression by Newton steps, with the usual intervals."""
    b = np.zeros(rows.X.shape[1])
    for _ in range(NEWTON_STEPS):
        p = expit(rows.X @ b)
        covariance = np.linalg.inv((rows.X.T * (p * (1 - p))) @ rows.X)
        b = b + covariance @ (rows.X.T @ (rows.y - p))
    return interval(b, np.sqrt(np.diag(covariance)))


def linear_model(rows: Rows) -> None:
    """Add the linear regression of this page to the model of the context."""
    b = pm.Normal("b", 0, PRIOR_SD, shape=rows.X.shape[1])
    s = pm.HalfNormal("s", 1)
    pm.Normal("y", pm.Data("X", rows.X) @ b, s, observed=rows.y)


def logistic_model(rows: Rows) -> None:
    """Add the logistic regression of this page."""
    b = pm.Normal("b", 0, PRIOR_SD, shape=rows.X.shape[1])
    pm.Bernoulli("y", logit_p=pm.Data("X", rows.X) @ b, observed=rows.y)


def ours(
    describe: Callable[[Rows], None], rows: Rows, epsilon: float, rng: np.random.Generator
) -> Estimate:
    """Fit by default settings; noise comes from the system."""
    settings = {"epsilon": epsilon, "delta": DELTA, "backend": "python", "draws": DRAWS}
    with pm.Model() as model:
        describe(rows)
    posterior = quiet_fit(model=model, **settings)["posterior"].to_dataset().isel(chain=0)
    draws = np.column_stack([posterior[v].to_numpy().reshape(DRAWS, -1) for v in posterior])
    lower, upper = np.quantile(draws, [(1 - PROB) / 2, (1 + PROB) / 2], axis=0)
    return Estimate(draws.mean(axis=0), lower, upper)


def by_hand(rows: Rows, epsilon: float, rng: np.random.Generator) -> Estimate:
    """Release all products of a row's columns and outcome at once, by one Gaussian mechanism.

    A row's matrix of products has the norm of the row, squared. Adding or removing one row.
    """
    X, y = _bounded(rows)
    Z = np.column_stack([X, y])
    sigma = Z.shape[1] * analytic_sigma(epsilon)
    S = Z.T @ Z + sigma * _symmetric(rng, Z.shape[1], 1 / PAIR)
    b = np.linalg.solve(S[:-1, :-1], S[:-1, -1])
    return alone(OUTCOME_BOUND * b, len(b) + 1)


def analytic_sigma(epsilon: float) -> float:
    """Return the noise of the Gaussian mechanism per unit of sensitivity (Balle and Wang 2018).

    >>> round(analytic_sigma(1.0), 2)
    3.73
    """

    def excess(sigma: float) -> float:
        a, b = 1 / (2 * sigma), epsilon * sigma
        return norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b) - DELTA

    return brentq(excess, 0.01, 1000)


def three_mechanisms(rows: Rows, epsilon: float, rng: np.random.Generator) -> Estimate:
    """Release X'X, X'y and y'y apart, with intervals that contain the noise.

    So does dp-statsmodels 0.1.0 (github.com/MaxGhenis/dp-statsmodels, commit 5f223c0, models/ols.py
    and privacy/): .4, .4 and .2 of epsilon, a third of delta each, noise by the classical formula,
    one bound for all columns.
    """
    X, y = _bounded(rows)
    (n, k), noise = X.shape, math.sqrt(2 * math.log(1.25 * 3 / DELTA)) / epsilon
    xx_sd, xy_sd, yy_sd = k * noise / 0.4, math.sqrt(k) * noise / 0.4, noise / 0.2
    xx = X.T @ X + xx_sd * _symmetric(rng, k, 1)
    lowest = np.linalg.eigvalsh(xx)[0]
    if lowest <= 0:
        xx = xx + (abs(lowest) + 1e-6) * np.eye(k)
    xy = X.T @ y + xy_sd * rng.standard_normal(k)
    inverse = np.linalg.inv(xx)
    b = inverse @ xy
    residual = max((y @ y + yy_sd * rng.standard_normal() - b @ xy) / (n - k), 1e-10)
    spread = np.diag(inverse @ inverse)
    variance = residual * np.diag(inverse) + (xy_sd**2 + xx_sd**2 * b @ b) * spread
    se = np.sqrt(np.maximum(variance, 1e-10))
    found = interval(OUTCOME_BOUND * b, OUTCOME_BOUND * se, n - k)
    s = OUTCOME_BOUND * math.sqrt(residual)
    return Estimate(
        np.append(found.mean, s), np.append(found.lower, np.nan), np.append(found.upper, np.nan)
    )


def _bounded(rows: Rows) -> Rows:
    """Bring outcomes to [-1, 1]; predictors are there."""
    return Rows(rows.X, np.clip(rows.y / OUTCOME_BOUND, -1, 1))


def _symmetric(rng: np.random.Generator, size: int, pairs: float) -> np.ndarray:
    """Return symmetric standard normal noise, off the diagonal times ``pairs``."""
    upper = np.triu(rng.standard_normal((size, size)))
    off = pairs * np.triu(upper, 1)
    return np.diag(np.diag(upper)) + off + off.T


def diffprivlib_linear(rows: Rows, epsilon: float, rng: np.random.Generator) -> Estimate:
    """Release a linear regression; noise comes from the system.

    The constant is a column: with an intercept of its own the peer moves its bounds, and reads the
    lower one alone for squares, so that these have to be symmetric.
    """
    X, y = _bounded(rows)
    size = X.shape[1]
    bounds = {"bounds_X": [[1.0] + [-1.0] * (size - 1), [1.0] * size], "bounds_y": [-1.0, 1.0]}
    fixed = {"estimator": "LinearRegression", "fit_intercept": False, "epsilon": epsilon}
    [b] = fit_peers(X, y, np.eye(size), [fixed | bounds])
    return alone(OUTCOME_BOUND * b, size + 1)


def diffprivlib_logistic(rows: Rows, epsilon: float, rng: np.random.Generator) -> Estimate:
    """Release a logistic regression with the prior of this page; noise comes from the system."""
    size = rows.X.shape[1]
    bound = math.sqrt(size)  # of a row's norm: all columns are in [-1, 1]
    setting = objective_perturbation(PRIOR_SD**2, epsilon, bound)
    step = 0.01  # the probabilities of longer rows may be 1
    [p] = fit_peers(rows.X / bound, rows.y, step * np.eye(size), [setting])
    return alone(logit(p) / step / bound, size)
