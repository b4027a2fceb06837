"""Factor models without noise are variational Bayes, and with some noise come close to it.

The references are written out in NumPy, one update a line, and share nothing with the library.
They start where the fit ended and run until they stand still: what they move is the fit's error.
"""

import functools
import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import expit, kve

import pymc_dp
from pymc_dp.testing import deterministic_noise

N, J, K = 50, 5, 2
RNG = np.random.default_rng(8)
TRUE = np.array([[1.5, 0.0], [-1.0, 0.5], [0.0, 1.0], [0.8, -0.8], [0.3, 0.0]])
Z = RNG.normal(size=(N, K))
Y = Z @ TRUE.T + [0.5, -1.0, 0.0, 2.0, 0.3] + 0.6 * RNG.normal(size=(N, J))
CENTRED = Y - Y.mean(axis=0)
PARTS = np.array([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 4.0], [2.0, 2.0], [-3.0, 0.0]])
BITS = (RNG.random((N, 6)) < expit(RNG.integers(0, 2, (N, K)) @ PARTS.T - 1.5)).astype(int)
# latents of different spread: else every rotation would do as well
SPREAD = np.array([1.5, 0.7])
ROUNDS = 2000
NOISELESS = {
    "method": "vips",
    "epsilon": math.inf,
    "clip_norm": math.inf,
    "sampling": "full",
    "random_seed": 1,
    "progressbar": False,
    "backend": "python",
    "draws": 2,
}


def model_of(build):
    with pm.Model() as model:
        build()
    return model


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


# --- factor analysis -----------------------------------------------------------------------------


def factor_analysis():
    W, c = pm.Normal("W", 0, 0.3, shape=(J, K)), pm.Normal("c", 0, 2, shape=J)
    tau, z = pm.Gamma("tau", 2, 1), pm.Normal("z", 0, SPREAD, shape=(N, K))
    pm.Normal("y", pm.math.dot(z, W.T) + c, tau=tau, observed=Y)


def known_noise():
    W, c = pm.Normal("W", 0, 0.3, shape=(J, K)), pm.Normal("c", 0, 2, shape=J)
    z = pm.Normal("z", 0, SPREAD, shape=(N, K))
    pm.Normal("y", pm.math.dot(z, W.T) + c, 0.6, observed=Y)


def across():
    W, c = pm.Normal("W", 0, 0.3, shape=(K, J)), pm.Normal("c", 0, 2, shape=J)
    tau, z = pm.Gamma("tau", 2, 1), pm.Normal("z", 0, SPREAD, shape=(N, K))
    pm.Normal("y", z @ W + c, tau=tau, observed=Y)


def no_intercept():
    W, tau = pm.Normal("W", 0, 0.3, shape=(J, K)), pm.Gamma("tau", 2, 1)
    z = pm.Normal("z", 0, SPREAD, shape=(N, K))
    pm.Normal("y", pm.math.dot(z, W.T), tau=tau, observed=CENTRED)


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


def precision(idata):
    fit = idata["fit"]
    return float((fit["tau.log_coefficient"] + 1) / fit["tau.rate"])


def test_factor_analysis_is_that_of_variational_bayes():
    idata = fitted(factor_analysis)
    found = *moments(idata, "W"), *moments(idata, "c"), precision(idata)
    close(found, vb_factor_analysis(Y, *found))
    assert np.abs(found[0]).max() > 0.5


def test_factor_analysis_with_known_noise_is_that_of_variational_bayes():
    idata = fitted(known_noise, 700)
    found = *moments(idata, "W"), *moments(idata, "c"), 1 / 0.6**2
    close(found, vb_factor_analysis(Y, *found, known=True))


def test_loadings_may_have_a_row_for_each_latent():
    idata = fitted(across)
    W = [values.T for values in moments(idata, "W")]
    found = *W, *moments(idata, "c"), precision(idata)
    close(found, vb_factor_analysis(Y, *found))


def test_an_intercept_may_be_left_out():
    idata = fitted(no_intercept)
    found = *moments(idata, "W"), np.zeros(J), np.zeros(J), precision(idata)
    close(found, vb_factor_analysis(CENTRED, *found, intercept=False))


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


# --- sigmoid belief networks ---------------------------------------------------------------------


def belief_net():
    b, c = pm.Normal("b", 0, 2, shape=K), pm.Normal("c", 0, 3, shape=6)
    W = pm.Normal("W", 0, 2, shape=(6, K))
    z = pm.Bernoulli("z", logit_p=b, shape=(N, K))
    pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=BITS)


def belief_net_with_even_odds():
    W = pm.Normal("W", 0, 2, shape=(K, 6))
    z = pm.Bernoulli("z", p=0.5, shape=(N, K))
    pm.Bernoulli("y", p=pm.math.sigmoid(z @ W), observed=BITS)


def shrunk_belief_net():
    xi = pm.Gamma("xi", 0.5, 1.0, shape=(6, K))
    zeta = pm.Gamma("zeta", 1.5, xi, shape=(6, K))
    b, c = pm.Normal("b", 0, 2, shape=K), pm.Normal("c", 0, 3, shape=6)
    W = pm.Normal("W", 0, pt.sqrt(zeta), shape=(6, K))
    z = pm.Bernoulli("z", logit_p=b, shape=(N, K))
    pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=BITS)


# means of a precision of W, and of its inverse
KNOWN = np.full((2, 6, K), [[[0.25]], [[4.0]]])


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


def vb_belief_net(M, V, c, v, b, u, alpha, log_odds=True, intercept=True, shrink=None):
    """Update latents, then rows of W and c; their variances have the largest curvature, 1/4."""

    def update(M, V, c, v, b, u, alpha):
        p, omega = infer(M, V, c, v, b)
        rows = np.column_stack([p, np.ones(N)])
        n = K + intercept
        found, prior = np.zeros((6, K + 1)), np.column_stack([alpha[0], np.full(6, 1 / 9)])
        for j in range(6):
            second = (rows.T * omega[:, j]) @ rows
            second[:K, :K] += np.diag(omega[:, j] @ (p * (1 - p)))
            precise = (second + np.diag(prior[j]))[:n, :n]
            found[j, :n] = np.linalg.solve(precise, (rows.T @ (BITS[:, j] - 0.5))[:n])
        V = 1 / (p.sum(axis=0) / 4 + alpha[0])
        M, c = found[:, :K], found[:, K]
        if intercept:
            v = np.full(6, 1 / (N / 4 + 1 / 9))
        if log_odds:
            omega = N * weight(b, u)
            u = 1 / (omega + 1 / 4)
            b = u * (p.sum(axis=0) - N / 2)
        return M, V, c, v, b, u, shrink(M, V, alpha) if shrink else alpha

    return until_still(update, M, V, c, v, b, u, alpha)


def test_a_belief_net_is_that_of_variational_bayes():
    idata = fitted(belief_net, 300)
    found = *moments(idata, "W"), *moments(idata, "c"), *moments(idata, "b"), KNOWN
    close(found, vb_belief_net(*found))
    assert np.abs(found[0]).max() > 1


def test_a_belief_net_with_constant_odds_and_no_intercept_is_that_of_variational_bayes():
    idata, nothing = fitted(belief_net_with_even_odds, 300), np.zeros(6)
    W = [values.T for values in moments(idata, "W")]
    found = *W, nothing, nothing, np.zeros(K), np.zeros(K), KNOWN
    close(found, vb_belief_net(*found, log_odds=False, intercept=False))


def inverse_gaussian(order, a, b):
    """Mean inverse and mean for the density x^(order - 1) exp(-a x - b / x)."""
    scale, omega = np.sqrt(b / a), 2 * np.sqrt(a * b)
    below, above = (kve(order + step, omega) / kve(order, omega) for step in (-1, 1))
    return np.stack([below / scale, scale * above])


def shrinkage(M, V, alpha):
    """Update xi, then zeta, of W ~ N(0, zeta), zeta ~ Gamma(3/2, xi), xi ~ Gamma(1/2, 1)."""
    xi = 2.0 / (1 + alpha[1])
    return inverse_gaussian(1.0, xi, (M**2 + V) / 2)


def test_shrinkage_of_a_belief_nets_loadings_is_that_of_variational_bayes():
    idata = fitted(shrunk_belief_net, 700)
    a, b = (idata["fit"][f"zeta.{x}"].values for x in ("rate", "inverse_coefficient"))
    alpha = inverse_gaussian(1.0, a, b)
    found = *moments(idata, "W"), *moments(idata, "c"), *moments(idata, "b"), alpha
    close(found, vb_belief_net(*found, shrink=shrinkage))
    np.testing.assert_allclose(idata["fit"]["xi.log_coefficient"], 1.0)  # 3/2 + 1/2 - 1
    assert np.ptp(alpha[0]) > 0.1


# --- private fits, bad records, refusals ---------------------------------------------------------

IMAGES = np.random.default_rng(3).integers(0, 2, (2000, K))
PIXELS = (np.random.default_rng(4).random((2000, 6)) < expit(IMAGES @ PARTS.T - 1.5)).astype(int)


def images():
    W, c = pm.Normal("W", 0, 2, shape=(6, K)), pm.Normal("c", 0, 3, shape=6)
    z = pm.Bernoulli("z", p=0.5, shape=(2000, K))
    pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=PIXELS)


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


def with_bad_rows(build, data, bad):
    worse = np.vstack([data.astype(float), bad]).astype(data.dtype)
    return [
        pymc_dp.fit(20, model=model_of(build), data={"y": rows}, **NOISELESS)["fit"]
        for rows in (data, worse)
    ]


@pytest.mark.parametrize(
    ("build", "data", "bad"),
    [
        (belief_net, BITS, [[2, 0, 0, 0, 0, 0], [0, 1, -1, 0, 1, 0]]),
        (factor_analysis, Y, [[np.nan] * J, [np.inf, 0, 0, 0, 0], [1e300, 0, 0, 0, 0]]),
    ],
)
def test_a_bad_record_adds_nothing(build, data, bad):
    without, with_bad = with_bad_rows(build, data, bad)
    for name in without:
        assert np.isfinite(without[name]).all()
        np.testing.assert_allclose(with_bad[name], without[name], rtol=1e-9)


def beside_the_predictor():
    W, z = pm.Normal("W", shape=(J, K)), pm.Normal("z", 0, 1, shape=(N, K))
    tau = pm.Gamma("tau", 2, 1)
    pm.Normal("y", z @ W.T, tau=tau * pm.math.exp(z[:, :1]), observed=Y)


def two_local_latents():
    W, z = pm.Normal("W", shape=(J, K)), pm.Normal("z", 0, 1, shape=(N, K))
    e = pm.Normal("e", 0, 1, shape=(N, 1))
    pm.Normal("y", z @ W.T + e, 1.0, observed=Y)


def poisson():
    W, z = pm.Normal("W", shape=(6, K)), pm.Normal("z", 0, 1, shape=(N, K))
    pm.Poisson("y", pm.math.exp(z @ W.T), observed=BITS)


def binary_latents_of_real_outcomes():
    W, z = pm.Normal("W", shape=(J, K)), pm.Bernoulli("z", p=0.5, shape=(N, K))
    pm.Normal("y", z @ W.T, 1.0, observed=Y)


def heavy_tailed_latents():
    W, z = pm.Normal("W", shape=(J, K)), pm.StudentT("z", 4, shape=(N, K))
    pm.Normal("y", z @ W.T, 1.0, observed=Y)


def latents_around_one():
    W, z = pm.Normal("W", shape=(J, K)), pm.Normal("z", 1, 1, shape=(N, K))
    pm.Normal("y", z @ W.T, 1.0, observed=Y)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (beside_the_predictor, "`z`"),
        (two_local_latents, "belong to single records, where there must be one"),
        (poisson, "the likelihood of `y` is neither Gaussian nor logistic in its linear predictor"),
        (binary_latents_of_real_outcomes, "`z` must be Gaussian where outcomes are"),
        (heavy_tailed_latents, "`z`, which belongs to single records, is neither Gaussian nor"),
        (latents_around_one, "the prior of `z` is not Gaussian around 0"),
    ],
)
def test_what_is_no_factor_model_is_refused(build, reason):
    with pytest.raises(pymc_dp.NotSeparableError, match="factor models: .*" + reason):
        pymc_dp.fit(model=model_of(build), **NOISELESS)


def test_other_forms_are_refused():
    with pytest.raises(ValueError, match="form='absolute' is not for factor models"):
        pymc_dp.fit(model=model_of(factor_analysis), form="absolute", **NOISELESS)


# --- reconstructions -----------------------------------------------------------------------------


def test_a_reconstruction_needs_only_the_released_fit():
    idata = fitted(images, 100)
    only = pymc_dp.reconstruct({"fit": idata["fit"]}, model_of(images), {"y": PIXELS[:3]})
    np.testing.assert_array_equal(
        only, pymc_dp.reconstruct(idata, model_of(images), {"y": PIXELS})[:3]
    )
    assert only.dims == ("y_dim_0", "y_dim_1")
    assert ((only > 0) & (only < 1)).all()


def test_a_reconstruction_of_gaussian_outcomes_is_the_expected_outcome():
    idata = fitted(factor_analysis)
    (M, V), (c, _), tau = moments(idata, "W"), moments(idata, "c"), precision(idata)
    covariance = np.linalg.inv(np.diag(SPREAD**-2) + tau * (M.T @ M + np.diag(V.sum(axis=0))))
    expected = tau * (Y - c) @ M @ covariance @ M.T + c
    found = pymc_dp.reconstruct(idata, model_of(factor_analysis), {"y": Y})
    np.testing.assert_allclose(found, expected, rtol=1e-9)


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
    idata, bad = fitted(images, 100), np.array([[0] * 6, [3] * 6])
    with pytest.raises(ValueError, match="1 row of data=`y` lies outside the support"):
        pymc_dp.reconstruct(idata, model_of(images), {"y": bad})
    with pytest.raises(ValueError, match="it lacks"):
        pymc_dp.reconstruct(idata, model_of(factor_analysis), {"y": Y})
    with pytest.raises(ValueError, match="no factor model that vips fits: .*`z`"):
        pymc_dp.reconstruct(idata, model_of(two_local_latents), {"y": Y})
