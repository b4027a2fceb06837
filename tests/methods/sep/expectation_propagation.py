"""Expectation propagation with a site for every record, on a dense grid: the oracle of the tests.

Its state holds a site of every record, so it cannot be released; it is no part of the package.
"""

import numpy as np

GRID = np.linspace(-8, 8, 401)


def moments(log_likelihood, mean, variance):
    """Mean and variance of N(mean, variance) times a likelihood of psi, record by record."""
    psi = mean[:, None] + np.sqrt(variance)[:, None] * GRID
    weights = log_likelihood(psi) - GRID**2 / 2
    weights = np.exp(weights - weights.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    first = (weights * psi).sum(axis=1)
    return first, (weights * (psi - first[:, None]) ** 2).sum(axis=1)


def posterior(X, prior_precision, nu, tau):
    covariance = np.linalg.inv(prior_precision + (X.T * tau) @ X)
    return covariance @ X.T @ nu, covariance


def cavity(mean, covariance, X, nu, tau):
    """Marginal of each record's predictor without its own site."""
    psi, variance = X @ mean, ((X @ covariance) * X).sum(axis=1)
    without = 1 / (1 / variance - tau)
    return without * (psi / variance - nu), without


def propagate(X, log_likelihood, prior_precision, *, shared, rounds=80, damping=0.7):
    """Run to the fixed point; ``shared`` gives every record the average site, as SEP does."""
    nu, tau, count = np.zeros(len(X)), np.full(len(X), 0.1), len(X)
    for _ in range(rounds):
        before = nu, tau
        mean, covariance = posterior(X, prior_precision, nu, tau)
        if shared:
            sites = (X.T * tau) @ X / count
            left = np.linalg.inv(prior_precision + (count - 1) * sites)
            centre = left @ (X.T @ nu) * (1 - 1 / count)
            at, variance = X @ centre, ((X @ left) * X).sum(axis=1)
        else:
            at, variance = cavity(mean, covariance, X, nu, tau)
        first, second = moments(log_likelihood, at, variance)
        tau = (1 - damping) * tau + damping * (1 / second - 1 / variance)
        nu = (1 - damping) * nu + damping * (first / second - at / variance)
        if max(abs(new - old).max() for new, old in zip((nu, tau), before, strict=True)) < 1e-13:
            break
    return posterior(X, prior_precision, nu, tau)
