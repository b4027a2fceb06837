"""Belief nets without noise are variational Bayes; private ones come close to it."""

import numpy as np
import pymc as pm
from scipy.special import expit

import pymc_dp
from pymc_dp.testing import deterministic_noise
from tests.methods.vips.net_fits import (
    BITS,
    NOISELESS,
    PIXELS,
    K,
    N,
    belief_net,
    close,
    fitted,
    images,
    model_of,
    moments,
    until_still,
)


def belief_net_with_even_odds():
    W = pm.Normal("W", 0, 2, shape=(K, 6))
    z = pm.Bernoulli("z", p=0.5, shape=(N, K))
    pm.Bernoulli("y", p=pm.math.sigmoid(z @ W), observed=BITS)


ALPHA = np.full((6, K), 0.25)  # the prior precision of W


def weight(mean, variance):
    """Mean of a Pólya-Gamma variable at the second moment of what it multiplies."""
    c = np.sqrt(mean**2 + variance)
    return np.tanh(c / 2) / (2 * c)


def infer(M, V, c, v, b):
    """Eight damped sweeps over all latents at once, from the prior."""
    odds = np.tile(b, (N, 1))
    for sweep in range(9):
        p = expit(odds)
        of_latents = sum(
            p[:, [k]] * (M[:, k] ** 2 + V[:, k]) - (p[:, [k]] * M[:, k]) ** 2 for k in range(K)
        )
        omega = weight(p @ M.T + c, of_latents + v)
        if sweep == 8:
            return p, omega
        fresh = np.empty_like(odds)
        for k in range(K):
            others = np.delete(p, k, axis=1) @ np.delete(M, k, axis=1).T + c
            gain = (BITS - 0.5) * M[:, k] - omega * (
                others * M[:, k] + (M[:, k] ** 2 + V[:, k]) / 2
            )
            fresh[:, k] = b[k] + gain.sum(axis=1)
        odds = (odds + fresh) / 2


def vb_belief_net(M, V, c, v, b, u, log_odds=True, intercept=True):
    """Update latents, then rows of W and c; their variances have the largest curvature, 1/4."""

    def update(M, V, c, v, b, u):
        p, omega = infer(M, V, c, v, b)
        rows = np.column_stack([p, np.ones(N)])
        n = K + intercept
        found, prior = np.zeros((6, K + 1)), np.column_stack([ALPHA, np.full(6, 1 / 9)])
        for j in range(6):
            second = (rows.T * omega[:, j]) @ rows
            second[:K, :K] += np.diag(omega[:, j] @ (p * (1 - p)))
            precise = (second + np.diag(prior[j]))[:n, :n]
            found[j, :n] = np.linalg.solve(precise, (rows.T @ (BITS[:, j] - 0.5))[:n])
        V = 1 / (p.sum(axis=0) / 4 + ALPHA)
        M, c = found[:, :K], found[:, K]
        if intercept:
            v = np.full(6, 1 / (N / 4 + 1 / 9))
        if log_odds:
            omega = N * weight(b, u)
            u = 1 / (omega + 1 / 4)
            b = u * (p.sum(axis=0) - N / 2)
        return M, V, c, v, b, u

    return until_still(update, M, V, c, v, b, u)


def test_a_belief_net_is_that_of_variational_bayes():
    idata = fitted(belief_net, 400)
    found = *moments(idata, "W"), *moments(idata, "c"), *moments(idata, "b")
    close(found, vb_belief_net(*found))
    assert np.abs(found[0]).max() > 1


def test_a_belief_net_with_constant_odds_and_no_intercept_is_that_of_variational_bayes():
    idata, nothing = fitted(belief_net_with_even_odds, 400), np.zeros(6)
    W = [values.T for values in moments(idata, "W")]
    found = *W, nothing, nothing, np.zeros(K), np.zeros(K)
    close(found, vb_belief_net(*found, log_odds=False, intercept=False))


# --- private fits, bad records, refusals ---------------------------------------------------------


def right_pixels(idata):
    found = pymc_dp.reconstruct(idata, model_of(images), {"y": PIXELS}) > 0.5
    return float((found == PIXELS).mean())


def test_a_private_belief_net_is_close_to_one_without_noise():
    settings = {**NOISELESS, "epsilon": 2, "clip_norm": None, "delta": 1e-5}
    with deterministic_noise(1):
        idata = pymc_dp.fit(model=model_of(images), **settings)
    without_noise = right_pixels(fitted(images, 100))
    assert right_pixels(idata) > without_noise - 0.02
    assert without_noise > 0.05 + np.maximum(PIXELS.mean(axis=0), 1 - PIXELS.mean(axis=0)).mean()
