"""Belief nets: variational Bayes without noise, bad records, other models, reconstructions."""

import functools

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit

import pymc_dp
from pymc_dp.testing import deterministic_noise
from tests.zoo import build as model_of

N, K = 50, 2
RNG = np.random.default_rng(8)
PARTS = np.array([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 4.0], [2.0, 2.0], [-3.0, 0.0]])
BITS = (RNG.random((N, 6)) < expit(RNG.integers(0, 2, (N, K)) @ PARTS.T - 1.5)).astype(int)
ROUNDS = 2000
NOISELESS = {
    "method": "vips",
    "epsilon": np.inf,
    "clip_norm": np.inf,
    "sampling": "full",
    "random_seed": 1,
    "progressbar": False,
    "backend": "python",
    "draws": 2,
}


@functools.cache
def fitted(build, n=500):
    return pymc_dp.fit(n, model=model_of(build), **NOISELESS)


def until_still(update, *values):
    """Repeat an update until it changes nothing."""
    for _ in range(ROUNDS):
        before, values = values, update(*values)
        pairs = zip(before, values, strict=True)
        if all(np.allclose(a, b, rtol=1e-11, atol=1e-12) for a, b in pairs):
            return values
    raise AssertionError("the reference does not converge")


def moments(idata, name):
    fit = idata["fit"]
    return fit[f"{name}.mean"].values, fit[f"{name}.sd"].values ** 2


def close(got, expected, tolerance=1e-6):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def belief_net():
    b, c = pm.Normal("b", 0, 2, shape=K), pm.Normal("c", 0, 3, shape=6)
    W = pm.Normal("W", 0, 2, shape=(6, K))
    z = pm.Bernoulli("z", logit_p=b, shape=(N, K))
    pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=BITS)


IMAGES = np.random.default_rng(3).integers(0, 2, (2000, K))


PIXELS = (np.random.default_rng(4).random((2000, 6)) < expit(IMAGES @ PARTS.T - 1.5)).astype(int)


def images():
    W, c = pm.Normal("W", 0, 2, shape=(6, K)), pm.Normal("c", 0, 3, shape=6)
    z = pm.Bernoulli("z", p=0.5, shape=(2000, K))
    pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=PIXELS)


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


REAL = np.random.default_rng(8).normal(size=(N, 5))


def with_bad_rows(build, data, bad):
    worse = np.vstack([data.astype(float), bad]).astype(data.dtype)
    return [
        pymc_dp.fit(20, model=model_of(build), data={"y": rows}, **NOISELESS)["fit"]
        for rows in (data, worse)
    ]


def test_a_bad_record_adds_nothing():
    bad = [[2, 0, 0, 0, 0, 0], [0, 1, -1, 0, 1, 0]]
    without, with_bad = with_bad_rows(belief_net, BITS, bad)
    for name in without:
        assert np.isfinite(without[name]).all()
        np.testing.assert_allclose(with_bad[name], without[name], rtol=1e-9)


def beside_the_predictor():
    W, z = pm.Normal("W", shape=(6, K)), pm.Bernoulli("z", 0.5, shape=(N, K))
    pm.Bernoulli("y", logit_p=(z @ W.T) * pm.math.exp(z[:, :1]), observed=BITS)


def two_local_latents():
    W, z = pm.Normal("W", shape=(6, K)), pm.Bernoulli("z", 0.5, shape=(N, K))
    pm.Bernoulli("y", logit_p=z @ W.T + pm.Normal("e", shape=(N, 1)), observed=BITS)


def factor_analysis():
    W, z = pm.Normal("W", shape=(5, K)), pm.Normal("z", shape=(N, K))
    pm.Normal("y", z @ W.T, 1.0, observed=REAL)


def shrunk():
    scale = pm.math.sqrt(pm.Gamma("zeta", 1.5, 1.0, shape=(6, K)))
    W, z = pm.Normal("W", 0, scale, shape=(6, K)), pm.Bernoulli("z", 0.5, shape=(N, K))
    pm.Bernoulli("y", logit_p=z @ W.T, observed=BITS)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (beside_the_predictor, "`W` is neither the loadings of `z` nor an intercept"),
        (two_local_latents, "belong to single records, where there must be one"),
        (factor_analysis, "`z`, which belongs to single records, is not binary.*'dp_advi'"),
        (shrunk, "the prior of `zeta` is not conjugate"),
    ],
)
def test_what_is_no_belief_net_is_refused(build, reason):
    with pytest.raises(pymc_dp.NotSeparableError, match="belief nets: .*" + reason):
        pymc_dp.fit(model=model_of(build), **NOISELESS)


# --- reconstructions -----------------------------------------------------------------------------


def test_a_reconstruction_needs_only_the_released_fit():
    idata = fitted(images, 20)
    only = pymc_dp.reconstruct({"fit": idata["fit"]}, model_of(images), {"y": PIXELS[:3]})
    np.testing.assert_array_equal(
        only, pymc_dp.reconstruct(idata, model_of(images), {"y": PIXELS})[:3]
    )
    assert only.dims == ("y_dim_0", "y_dim_1")
    assert ((only > 0) & (only < 1)).all()


def test_a_reconstruction_has_the_models_dims():
    def labelled():
        pm.modelcontext(None).add_coords({"pixel": list("abcdef"), "image": range(2000)})
        W = pm.Normal("W", 0, 2, dims=("pixel", "part"), shape=(6, K))
        z = pm.Bernoulli("z", p=0.5, shape=(2000, K))
        pm.Bernoulli("y", logit_p=z @ W.T, observed=PIXELS, dims=("image", "pixel"))

    idata = pymc_dp.fit(5, model=model_of(labelled), **NOISELESS)
    found = pymc_dp.reconstruct(idata, model_of(labelled), {"y": PIXELS[:2]})
    assert found.dims == ("image", "pixel")
    assert list(found["pixel"].values) == list("abcdef")


def test_impossible_rows_and_other_models_are_refused():
    idata, bad = fitted(images, 20), np.array([[0] * 6, [3] * 6])
    with pytest.raises(ValueError, match="data=`y` is outside the support .* first in row 1 "):
        pymc_dp.reconstruct(idata, model_of(images), {"y": bad})
    with pytest.raises(ValueError, match="it lacks"):
        pymc_dp.reconstruct(idata, model_of(belief_net), {"y": BITS})
    with pytest.raises(ValueError, match="no belief net that vips fits: .*`z`"):
        pymc_dp.reconstruct(idata, model_of(two_local_latents), {"y": BITS})
