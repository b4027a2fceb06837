"""Finite mixtures without noise are those of variational Bayes, written out in NumPy."""

import functools

import numpy as np
import pymc as pm
import pytest
from scipy.special import digamma

from tests.methods.vips.vips_fits import TWO_BUMPS, fitted, parameters, same_to


def mixture():
    w = pm.Dirichlet("w", [2.0, 3.0])
    mu = pm.Normal("mu", 0.5, 3.0, shape=2, initval=[-1.0, 1.0])
    pm.NormalMixture("y", w, mu, tau=pm.Gamma("tau", 3.0, 2.0, shape=2), observed=TWO_BUMPS)


@functools.cache
def vb_mixture():
    y = TWO_BUMPS[:, None]
    alpha, shape, rate = np.array([2.0, 3.0]), np.full(2, 3.0), np.full(2, 2.0)
    mean, precision = np.array([-1.0, 1.0]), np.full(2, 10 / 9)
    for _ in range(1000):
        tau, log_tau = shape / rate, digamma(shape) - np.log(rate)
        log_w = digamma(alpha) - digamma(alpha.sum())
        logits = log_w + log_tau / 2 - tau / 2 * ((y - mean) ** 2 + 1 / precision)
        resp = np.exp(logits - logits.max(axis=1, keepdims=True))
        resp /= resp.sum(axis=1, keepdims=True)
        alpha = np.array([2.0, 3.0]) + resp.sum(axis=0)
        precision = 1 / 9 + tau * resp.sum(axis=0)
        mean = (0.5 / 9 + tau * (resp * y).sum(axis=0)) / precision
        shape = 3 + resp.sum(axis=0) / 2
        rate = 2 + (resp * ((y - mean) ** 2 + 1 / precision)).sum(axis=0) / 2
    return mean, precision**-0.5, alpha, shape, rate


def test_a_mixture_is_that_of_variational_bayes():
    idata = fitted(mixture, n=150)
    precision = idata["fit"]["mu.precision"].values
    mean = idata["fit"]["mu.precision_mean"].values / precision
    got = mean, precision**-0.5, *parameters(idata, "w"), *parameters(idata, "tau")
    same_to(1e-6, got, vb_mixture())


RATES, SHARES = np.array([2.0, 15.0]), np.array([[0.9, 0.8, 0.2], [0.1, 0.3, 0.7]])
GROUP = np.arange(600) % 3 == 0
COUNTS = np.random.default_rng(3).poisson(RATES[GROUP.astype(int)])
ANSWERS = np.random.default_rng(4).random((600, 3)) < SHARES[GROUP.astype(int)]


def counts(**start):
    rates = pm.Gamma("x", 2, 0.2, shape=2, **start)
    pm.Mixture("y", pm.Dirichlet("w", np.ones(2)), pm.Poisson.dist(rates), observed=COUNTS)


def counts_of_two_priors():
    parts = [pm.Poisson.dist(pm.Gamma(name, 2, 0.2)) for name in ("low", "high")]
    share = pm.Beta("w", 1, 1)
    pm.Mixture("y", pm.math.stack([share, 1 - share]), parts, observed=COUNTS)


def latent_classes():
    of_classes = pm.math.log(pm.Dirichlet("w", np.ones(2)))
    p = pm.Beta("x", 1, 1, shape=(2, 3))
    answers = pm.Data("answers", ANSWERS.astype(float))[:, None]
    each = answers * pm.math.log(p) + (1 - answers) * pm.math.log1p(-p)
    pm.Potential("y", pm.math.logsumexp(of_classes + each.sum(axis=-1), axis=-1))


@pytest.mark.parametrize(
    ("build", "names", "truth"),
    [
        (counts, ["x"], RATES),
        (counts_of_two_priors, ["low", "high"], RATES),
        (latent_classes, ["x"], SHARES[::-1]),
    ],
)
def test_components_without_gaussian_latents_start_apart(build, names, truth):
    posterior = fitted(build, n=30)["posterior"]
    means = np.concatenate([np.atleast_1d(posterior[x].mean(("chain", "draw"))) for x in names])
    in_order = means[np.argsort(means.reshape(2, -1)[:, 0])]
    np.testing.assert_allclose(in_order, truth, atol=0.1 * truth.max())


def test_their_initial_values_decide_which_is_which():
    for start in (RATES, RATES[::-1]):
        means = fitted(lambda start=start: counts(initval=start), n=30)["posterior"]["x"].mean(
            ("chain", "draw")
        )
        assert (np.argsort(means.values) == np.argsort(start)).all()
