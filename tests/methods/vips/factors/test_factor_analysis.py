"""Factor analysis without noise is variational Bayes; many records give principal components."""

import numpy as np
import pymc as pm

import pymc_dp
from pymc_dp.testing import deterministic_noise
from tests.methods.vips.factors.factor_fits import (
    NOISELESS,
    SPREAD,
    TRUE,
    J,
    K,
    N,
    Y,
    close,
    factor_analysis,
    fitted,
    model_of,
    moments,
    precision,
    until_still,
)


def known_noise():
    W, c = pm.Normal("W", 0, 0.3, shape=(J, K)), pm.Normal("c", 0, 2, shape=J)
    z = pm.Normal("z", 0, SPREAD, shape=(N, K))
    pm.Normal("y", pm.math.dot(z, W.T) + c, 0.6, observed=Y)


def vb_factor_analysis(y, M, V, c, v, tau, known=False, intercept=True):
    """Update latents, then loadings, intercept and precision; all entries of W independent."""

    def update(M, V, c, v, tau):
        covariance = np.linalg.inv(np.diag(SPREAD**-2) + tau * (M.T @ M + np.diag(V.sum(axis=0))))
        z = tau * (y - c) @ M @ covariance
        second = z.T @ z + len(y) * covariance
        V = np.tile(1 / (tau * np.diag(second) + 0.3**-2), (J, 1))
        M = tau * np.linalg.solve(tau * second + 0.3**-2 * np.eye(K), z.T @ (y - c)).T
        if intercept:
            v = np.full(J, 1 / (tau * len(y) + 1 / 4))
            c = v * tau * (y - z @ M.T).sum(axis=0)
        squares = ((y - z @ M.T - c) ** 2).sum() + len(y) * np.sum((M @ covariance) * M)
        squares += (V @ np.diag(second)).sum() + len(y) * v.sum()
        return M, V, c, v, tau if known else (2 + y.size / 2) / (1 + squares / 2)

    return until_still(update, M, V, c, v, tau)


def test_factor_analysis_is_that_of_variational_bayes():
    idata = fitted(factor_analysis)
    found = *moments(idata, "W"), *moments(idata, "c"), precision(idata)
    close(found, vb_factor_analysis(Y, *found))
    assert np.abs(found[0]).max() > 0.5


def test_factor_analysis_with_known_noise_is_that_of_variational_bayes():
    idata = fitted(known_noise, 700)
    found = *moments(idata, "W"), *moments(idata, "c"), 1 / 0.6**2
    close(found, vb_factor_analysis(Y, *found, known=True))


MANY = 3000
LONG = np.random.default_rng(9).normal(size=(MANY, K + J)) @ np.vstack([2 * TRUE.T, np.eye(J)]) + 3


def principal_components():
    W, c = pm.Normal("W", 0, 10, shape=(J, K)), pm.Normal("c", 0, 10, shape=J)
    tau, z = pm.Gamma("tau", 1, 1), pm.Normal("z", 0, 1, shape=(MANY, K))
    pm.Normal("y", z @ W.T + c, tau=tau, observed=LONG)


def covariance(idata):
    W = idata["fit"]["W.mean"].values
    return W @ W.T + np.eye(J) / precision(idata)


def closed_form():
    """Find the maximum of the likelihood; Tipping and Bishop 1999, equations 7 and 8."""
    values, vectors = np.linalg.eigh(np.cov(LONG.T, bias=True))
    noise = values[:-K].mean()
    return (vectors * np.where(np.arange(J) < J - K, noise, values)) @ vectors.T


def relative(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def test_a_hundred_releases_give_the_principal_components_of_many_records():
    assert relative(covariance(fitted(principal_components, 100)), closed_form()) < 0.01


def test_private_principal_components_are_close_to_the_closed_form():
    settings = {**NOISELESS, "epsilon": 2, "clip_norm": None, "delta": 1e-5}
    with deterministic_noise(1):
        idata = pymc_dp.fit(model=model_of(principal_components), **settings)
    assert relative(covariance(idata), closed_form()) < 0.15
