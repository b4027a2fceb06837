"""Stochastic expectation propagation for mixtures: exact moments, fixed points, private starts."""

import functools

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.testing import deterministic_noise
from tests.zoo import build as model_of

RNG = np.random.default_rng(7)
N = 500
CENTRES = np.array([[-2.0, 0.0], [1.5, 1.0], [0.5, -2.5]])
COVARIANCE = np.array([[0.5, 0.2], [0.2, 0.4]])
SHARES = np.array([0.2, 0.5, 0.3])
LABEL = RNG.choice(3, N, p=SHARES)
POINTS = CENTRES[LABEL] + RNG.multivariate_normal(np.zeros(2), COVARIANCE, N)
LINE = np.where(LABEL == 0, -2.0, 2.0) + 0.7 * RNG.normal(size=N)


def components(mu):
    covariance = pm.Data("covariance", COVARIANCE)
    return [pm.MvNormal.dist(mu[k], cov=covariance) for k in range(3)]


def known_weights():
    mu = pm.Normal("mu", 0, 3, shape=(3, 2))
    pm.Mixture("x", w=pm.Data("w_known", SHARES), comp_dists=components(mu), observed=POINTS)


def unknown_weights():
    mu = pm.Normal("mu", 0, 3, shape=(3, 2))
    w = pm.Dirichlet("w", np.full(3, 2.0))
    pm.Mixture("x", w=w, comp_dists=components(mu), observed=POINTS)


def on_a_line():
    mu = pm.Normal("mu", 0, 3, shape=2)
    pm.NormalMixture("x", pm.Data("w_known", [0.2, 0.8]), mu, sigma=0.7, observed=LINE)


@functools.cache
def fitted(build, method="sep", **settings):
    model = model_of(build)
    public = [name for name in ("covariance", "w_known") if name in model.named_vars]
    settings = {"sampling": "full", "num_records": N, "n": 60, "public": public, **settings}
    settings |= {"progressbar": False, "draws": 50, "backend": "python", "random_seed": 3}
    return pymc_dp.fit(model=model, method=method, **settings)


@functools.cache
def started():
    model = model_of(known_weights)
    settings = {"sampling": "full", "num_records": N, "n": 60, "public": ("covariance", "w_known")}
    settings |= {"progressbar": False, "draws": 5, "backend": "python"}
    start = {"mu": CENTRES + 0.3}
    return pymc_dp.fit(model=model, method="sep", public_start=start, **settings)


def means(idata, shape=(3, 2)):
    return idata["fit"]["mean_vector"].values[-int(np.prod(shape)) :].reshape(shape)


def matched(found, wanted):
    order = [int(np.argmin(((found - centre) ** 2).sum(axis=1))) for centre in wanted]
    assert sorted(order) == list(range(len(wanted)))
    return order


# --- fits without noise --------------------------------------------------------------------------


def shared_sites(mean, precision, rounds=200):
    """Repeat: the average site out, one record's moments in, all records at once."""
    inside, prior = np.linalg.inv(COVARIANCE), np.eye(2) / 9
    for _ in range(rounds):
        left = np.linalg.inv(prior + (1 - 1 / N) * precision)
        centre = mean - np.einsum("kde,ef,kf->kd", left, prior, mean) / N
        off = POINTS[:, None] - centre
        both = left + COVARIANCE
        log = -np.einsum("nkd,kde,nke->nk", off, np.linalg.inv(both), off) / 2
        log += np.log(SHARES) - np.linalg.slogdet(both)[1] / 2
        r = np.exp(log - log.max(axis=1, keepdims=True))
        r /= r.sum(axis=1, keepdims=True)
        after = np.linalg.inv(np.linalg.inv(left) + inside)
        shift = np.einsum("kde,ef,nkf->nkd", after, inside, off)
        tilted = (1 - r)[..., None, None] * left + r[..., None, None] * after
        tilted = tilted + np.einsum("nk,nkd,nke->nkde", r * (1 - r), shift, shift)
        inverse = np.linalg.inv(tilted)
        new = (inverse - np.linalg.inv(left)).sum(axis=0)
        score = np.einsum("nkde,nke->kd", inverse, r[..., None] * shift)
        precision = (precision + new) / 2
        whole = np.linalg.inv(prior + precision)
        step = np.einsum("kde,ke->kd", whole, score - centre @ prior)
        mean = (mean + centre + step) / 2
    return mean, np.linalg.inv(prior + precision)


def test_a_fit_ends_at_the_fixed_point():
    idata = started()
    mean, covariance = shared_sites(CENTRES, 100 * np.tile(np.eye(2), (3, 1, 1)))
    last = idata["fit_stats"]["mean_path"].isel(release=-1).values.reshape(3, 2)
    np.testing.assert_allclose(last, mean, atol=1e-6)
    got = idata["fit"]["covariance_matrix"].values
    for k in range(3):
        block = slice(2 * k, 2 * k + 2)
        np.testing.assert_allclose(got[block, block], covariance[k], rtol=1e-4)


def test_weights_are_found_with_the_means():
    idata = fitted(unknown_weights)
    order = matched(means(idata), CENTRES)
    w = idata["posterior"]["w"].mean(("chain", "draw")).values[order]
    np.testing.assert_allclose(w, np.bincount(LABEL) / N, atol=0.02)


def test_a_normal_mixture_is_recognised():
    found = means(fitted(on_a_line), (2,))
    expected = [LINE[LABEL == 0].mean(), LINE[LABEL > 0].mean()]
    np.testing.assert_allclose(np.sort(found), expected, atol=0.05)


# --- private fits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "noise", "method", "form"),
    [
        (unknown_weights, 1, "dp_sep", "damped"),
        pytest.param(known_weights, 0, "dp_advi", "", marks=pytest.mark.slow),
        (unknown_weights, 1, "dp_sep", ""),
    ],
)
def test_a_private_fit_finds_the_components_whatever_the_noise(build, noise, method, form):
    own = {"form": form} if form else {}
    with deterministic_noise(noise):
        idata = fitted.__wrapped__(
            build, method, **own, epsilon=4.0, delta=1e-5, n=None, num_records=None
        )
    found = idata["posterior"]["mu"].mean(("chain", "draw")).values
    np.testing.assert_allclose(found[matched(found, CENTRES)], CENTRES, atol=0.3)
    assert np.isfinite(idata["posterior"]["mu"].values).all()


# --- refusals ------------------------------------------------------------------------------------


def refused(build):
    return pymc_dp.explain(model_of(build), public=["w_known"]).methods["dp_sep"].reason


def unknown_spread():
    mu, tau = pm.Normal("mu", 0, 3, shape=2), pm.Gamma("tau", 2, 1, shape=2)
    pm.NormalMixture("x", pm.Data("w_known", [0.2, 0.8]), mu, tau=tau, observed=LINE)


def one_mean_in_two_components():
    mu = pm.Normal("mu", 0, 3)
    pm.NormalMixture(
        "x", pm.Data("w_known", [0.2, 0.8]), pm.math.stack([mu, -mu]), sigma=0.7, observed=LINE
    )


def seen_at_different_places():
    mu = pm.Normal("mu", 0, 3, shape=2)
    offset = pm.Data("offset", [0.0, 1.0])
    pm.NormalMixture("x", pm.Data("w_known", [0.2, 0.8]), mu + offset, sigma=0.7, observed=LINE)


def test_sites_of_components_that_begin_at_one_point_need_a_start():
    terms = {"public": ["w_known", "offset"], "n": 3, "progressbar": False}
    with pytest.raises(ValueError, match="give initial values that differ"):
        pymc_dp.fit(model=model_of(seen_at_different_places), method="sep", **terms)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (unknown_spread, "the spread of a component is unknown: it depends on `tau`"),
        (one_mean_in_two_components, "components of `x` share a latent"),
    ],
)
def test_other_mixtures_are_refused_with_the_reason(build, reason):
    assert reason in refused(build)
