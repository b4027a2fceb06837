"""Gaussian outcomes without noise: exact Bayes, or variational Bayes where precisions are unknown.

The references are written out in NumPy, one update a line, and share nothing with the library.
"""

import numpy as np
import pymc as pm
import pytest

from tests.methods.vips.vips_fits import (
    GROUP,
    IN_GROUP,
    OFFSET,
    ONES,
    WITH_ONES,
    A,
    N,
    X,
    Y,
    coefficients,
    fitted,
    gaussian,
    parameters,
    same_to,
)


def linear():
    a, b = coefficients()
    pm.Normal("y", a + X @ b, 0.8, observed=Y)


def exact(design, y, sigma, prior_precision, prior_mean=0.0):
    precision = design.T @ design / sigma**2 + prior_precision
    prior_mean = np.broadcast_to(prior_mean, len(precision))
    covariance = np.linalg.inv(precision)
    return covariance @ (design.T @ y / sigma**2 + prior_precision @ prior_mean), covariance


LINEAR = exact(WITH_ONES, Y, 0.8, np.eye(3) / 4)


def hierarchical():
    mu = pm.Normal("mu", 1.0, 2.0)
    theta = pm.Normal("theta", mu, 0.5, shape=3)
    pm.Normal("y", theta[GROUP], 0.8, observed=Y)


THETA = ["mu", "theta[0]", "theta[1]", "theta[2]"]
# rows: theta_g - mu with precision 4, and mu - 1 with precision 1/4
APART = np.column_stack([-np.ones(3), np.eye(3)])
HIERARCHY = 4 * APART.T @ APART + np.diag([0.25, 0, 0, 0])
HIERARCHICAL = exact(np.column_stack([0 * ONES, IN_GROUP]), Y, 0.8, HIERARCHY, 1.0)
CORRELATED = np.array([[1.0, 0.6], [0.6, 2.0]])


def correlated_hierarchy():
    mu = pm.Normal("mu", 1.0, 2.0)
    b = pm.MvNormal("b", pm.math.stack([mu, mu]), CORRELATED)
    pm.Normal("y", X @ b, 0.8, observed=Y)


# b - mu with the precision of CORRELATED, and mu - 1 with precision 1/4
FROM_MU = np.column_stack([-np.ones(2), np.eye(2)])
AROUND_MU = FROM_MU.T @ np.linalg.inv(CORRELATED) @ FROM_MU + np.diag([0.25, 0, 0])
CORRELATED_HIERARCHICAL = exact(np.column_stack([0 * ONES, X]), Y, 0.8, AROUND_MU, 1.0)


def two_columns():
    W = pm.Normal("W", 0, 2, shape=(2, 2))
    pm.Normal("y", pm.Data("X", X) @ W, 0.8, observed=np.column_stack([Y, OFFSET]))


W = ["W[0, 0]", "W[1, 0]", "W[0, 1]", "W[1, 1]"]
COLUMNS = [exact(X, y, 0.8, np.eye(2) / 4) for y in (Y, OFFSET)]
TWO_COLUMNS = (np.concatenate([mean for mean, _ in COLUMNS]), np.kron(np.eye(2), COLUMNS[0][1]))


EXACT = [
    (linear, A, LINEAR),
    (hierarchical, THETA, HIERARCHICAL),
    (correlated_hierarchy, ["mu", *A[1:]], CORRELATED_HIERARCHICAL),
    (two_columns, W, TWO_COLUMNS),
]


@pytest.mark.parametrize(("build", "names", "expected"), EXACT)
def test_a_gaussian_posterior_is_exact(build, names, expected):
    same_to(1e-8, gaussian(fitted(build, n=5), names), expected)


def correlated_prior_and_faint_data():
    b = pm.MvNormal("b", np.array([1.0, -1.0]), CORRELATED)
    pm.Normal("y", X @ b, 30.0, observed=Y)


def test_draws_are_from_the_joint_gaussian():
    draws = fitted(correlated_prior_and_faint_data, draws=4000)["posterior"]["b"].values[0]
    mean, covariance = exact(X, Y, 30.0, np.linalg.inv(CORRELATED), [1.0, -1.0])
    assert covariance[0, 1] > 0.3 * np.sqrt(covariance[0, 0] * covariance[1, 1])
    standard = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    np.testing.assert_allclose(standard.mean(axis=1), 0, atol=6 / 4000**0.5)
    np.testing.assert_allclose(np.cov(standard), np.eye(2), atol=9 / 4000**0.5)


def linear_with_noise_precision():
    a, b = coefficients()
    pm.Normal("y", a + X @ b, tau=pm.Gamma("tau", 2.0, 1.0), observed=Y)


def vb_linear():
    tau = 1.0
    for _ in range(300):
        covariance = np.linalg.inv(tau * WITH_ONES.T @ WITH_ONES + np.eye(3) / 4)
        mean = covariance @ (tau * WITH_ONES.T @ Y)
        shape = 2 + N / 2
        squares = ((Y - WITH_ONES @ mean) ** 2).sum()
        rate = 1 + (squares + np.trace(WITH_ONES @ covariance @ WITH_ONES.T)) / 2
        tau = shape / rate
    return mean, covariance, shape, rate


def linear_with_scaled_weights():
    tau = pm.Gamma("tau", 2.0, 1.0)
    b = pm.Normal("b", 0, tau=tau, shape=2)
    pm.Normal("y", X @ b, tau=tau, observed=Y)


def vb_scaled():
    tau = 1.0
    for _ in range(300):
        covariance = np.linalg.inv(tau * (X.T @ X + np.eye(2)))
        mean = tau * covariance @ X.T @ Y
        shape = 2 + N / 2 + 2 / 2
        squares = ((Y - X @ mean) ** 2).sum() + np.trace(X @ covariance @ X.T)
        rate = 1 + (squares + mean @ mean + np.trace(covariance)) / 2
        tau = shape / rate
    return mean, covariance, shape, rate


SCALED = [
    (linear_with_noise_precision, A, vb_linear),
    (linear_with_scaled_weights, A[1:], vb_scaled),
]


@pytest.mark.parametrize(("build", "names", "reference"), SCALED)
def test_a_precision_is_that_of_variational_bayes(build, names, reference):
    idata = fitted(build, n=40)
    same_to(1e-8, (*gaussian(idata, names), *parameters(idata, "tau")), reference())


def hierarchical_with_precisions():
    mu = pm.Normal("mu", 1.0, 2.0)
    between, within = pm.Gamma("between", 2.0, 1.0), pm.Gamma("within", 3.0, 2.0)
    theta = pm.Normal("theta", mu, tau=between, shape=3)
    pm.Normal("y", theta[GROUP], tau=within, observed=Y)


def vb_hierarchical():
    design = np.column_stack([0 * ONES, IN_GROUP])
    between = within = 1.0
    for _ in range(2000):
        prior = between * APART.T @ APART + np.diag([0.25, 0, 0, 0])
        covariance = np.linalg.inv(within * design.T @ design + prior)
        mean = covariance @ (within * design.T @ Y + prior @ np.ones(4))
        spread = ((APART @ mean) ** 2).sum() + np.trace(APART @ covariance @ APART.T)
        squares = ((Y - design @ mean) ** 2).sum() + np.trace(design @ covariance @ design.T)
        of_between = 2 + 3 / 2, 1 + spread / 2
        of_within = 3 + N / 2, 2 + squares / 2
        between, within = of_between[0] / of_between[1], of_within[0] / of_within[1]
    return mean, covariance, *of_between, *of_within


def test_a_hierarchy_with_unknown_precisions_is_that_of_variational_bayes():
    idata = fitted(hierarchical_with_precisions)
    got = *gaussian(idata, THETA), *parameters(idata, "between"), *parameters(idata, "within")
    same_to(1e-8, got, vb_hierarchical())
