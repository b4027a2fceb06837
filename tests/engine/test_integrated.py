"""Latents that are normal given others are integrated out of the posterior of these."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_dp.engine import conditional as module
from pymc_dp.engine.conditional import NormalLikelihood
from pymc_dp.engine.posterior import prior_as_written
from tests.zoo import separated

GROUPS, ROWS, NOISE = 5, 60, 0.4
rng = np.random.default_rng(3)
GROUP, Y = np.arange(ROWS) % GROUPS, rng.normal(size=ROWS)
OF_GROUP = rng.normal(0.3, 0.8, GROUPS)
GRID = np.arange(GROUPS)[:, None] * 1.0
LIKELIHOOD = NormalLikelihood(OF_GROUP / NOISE**2, np.eye(GROUPS) / NOISE**2)


def groups(draw=pm.Normal):
    mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1.0)
    return draw("a", mu=mu, sigma=tau, shape=GROUPS)


def heavy_tailed():
    return groups(lambda *name, **settings: pm.StudentT(*name, nu=4, **settings))


def process():
    length, height = pm.Gamma("length", 6, 2), pm.HalfNormal("height", 1.0)
    kernel = height**2 * pm.gp.cov.ExpQuad(1, ls=length)
    return pm.gp.Latent(cov_func=kernel).prior("f", X=GRID, reparameterize=False)


def crossed():
    """Two sets of groups, about a mean that both shift."""
    one, other = pm.HalfNormal("s"), pm.HalfNormal("t")
    a = pm.Normal("a", pm.Normal("mu"), one, shape=GROUPS)
    return (a[:, None] + pm.Normal("b", 0, other, shape=3)).ravel()


def of_unequal_spreads():
    return pm.Normal("a", 0, pm.HalfNormal("tau", shape=GROUPS), shape=GROUPS)


def walk():
    return pm.GaussianRandomWalk(
        "a", sigma=pm.HalfNormal("tau"), init_dist=pm.Normal.dist(), steps=GROUPS - 1
    )


@cache
def found(build):
    with pm.Model() as model:
        values = build()
        pm.Normal("y", values[pm.Data("group", GROUP)], 1.0, observed=Y)
    return prior_as_written(separated(model)[0])


@pytest.mark.parametrize(
    ("build", "normal"),
    [(groups, {"mu", "a"}), (heavy_tailed, set()), (process, {"f"})],
)
def test_latents_in_which_the_log_prior_is_quadratic_are_integrated_out(build, normal):
    hyper = found(build)
    assert {hyper.records.labels[i].split("[")[0] for i in hyper.integrated.u} == normal


def log_density_of_groups(theta):
    """The exact log density of log(tau): group means are normal, and so is their mean."""
    tau = np.exp(theta[:, 0])
    covariance = 4 + (tau**2 + NOISE**2)[:, None, None] * np.eye(GROUPS)
    exact = [stats.multivariate_normal.logpdf(OF_GROUP, cov=C) for C in covariance]
    return exact + stats.halfnorm.logpdf(tau) + theta[:, 0]


def log_density_of_process(theta):
    length, height = np.exp(theta.T)
    kernels = [
        e**2 * np.exp(-((GRID - GRID.T) ** 2) / 2 / s**2)
        for s, e in zip(length, height, strict=True)
    ]
    noise = (NOISE**2 + 1e-6) * np.eye(GROUPS)
    exact = [stats.multivariate_normal.logpdf(OF_GROUP, cov=K + noise) for K in kernels]
    priors = stats.gamma.logpdf(length, 6, scale=0.5) + stats.halfnorm.logpdf(height)
    return exact + priors + theta.sum(axis=1)


def density(hyper):
    return hyper.integrated.log_density(LIKELIHOOD.among(hyper.places, hyper.records.size))


@pytest.mark.parametrize(
    ("build", "exact"), [(groups, log_density_of_groups), (process, log_density_of_process)]
)
def test_the_density_of_the_others_is_the_exact_one(build, exact):
    hyper = found(build)
    theta = np.random.default_rng(0).normal(size=(6, len(hyper.integrated.theta)))
    value, _ = density(hyper)(theta)
    assert np.diff(value) == pytest.approx(np.diff(exact(theta)), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("build", [groups, heavy_tailed, process])
def test_gradients_are_those_of_the_density(build):
    hyper = found(build)
    log_density, d = density(hyper), len(hyper.integrated.theta)
    theta = 0.3 * np.random.default_rng(1).normal(size=(3, d))
    _, gradient = log_density(theta)
    for k, step in enumerate(1e-5 * np.eye(d)):
        slope = (log_density(theta + step)[0] - log_density(theta - step)[0]) / 2e-5
        assert gradient[:, k] == pytest.approx(slope, rel=1e-4, abs=1e-4)


def random_densities(hyper, *sizes):
    """Evaluate the density and its gradient, with some of u inverted."""
    rng, d = np.random.default_rng(0), len(hyper.places)
    root, theta = rng.normal(size=(d, d)), rng.normal(size=(6, len(hyper.integrated.theta)))
    likelihood = NormalLikelihood(rng.normal(size=d), root @ root.T)
    of_all = likelihood.among(hyper.places, hyper.records.size)
    return [
        np.column_stack(hyper.integrated._replace(dense=dense).log_density(of_all)(theta))
        for dense in sizes
    ]


@pytest.mark.parametrize("build", [groups, crossed, of_unequal_spreads, walk])
def test_the_density_is_that_of_the_whole_matrix(build):
    integrated = found(build).integrated
    own, whole = random_densities(found(build), integrated.dense, len(integrated.u))
    np.testing.assert_allclose(own, whole, rtol=1e-9, atol=1e-9)


def test_unequal_spreads_that_are_taken_for_one_are_seen(monkeypatch):
    monkeypatch.setattr(module, "_is_one_factor", lambda diagonal: True)
    own, whole = random_densities(found(of_unequal_spreads), 0, GROUPS)
    assert (abs(own - whole) > 1e-3).any(axis=1).all()


def test_groups_are_drawn_given_their_spread():
    """Exactly: each as the mean of its prior and of what the records say, and their mean too."""
    hyper = found(groups)
    theta = np.log(np.full((4000, 1), 0.7))
    likelihood = LIKELIHOOD.among(hyper.places, hyper.records.size)
    drawn = hyper.integrated.conditional(likelihood)(theta).draw(np.random.default_rng(0))
    prior = 4 + 0.49 * np.eye(GROUPS)
    covariance = np.linalg.inv(np.linalg.inv(prior) + np.eye(GROUPS) / NOISE**2)
    a = drawn[:, [hyper.records.labels[i] != "mu" for i in hyper.integrated.u]]
    assert a.mean(axis=0) == pytest.approx(covariance @ LIKELIHOOD.linear, abs=0.04)
    assert np.cov(a, rowvar=False) == pytest.approx(covariance, abs=0.02)


def of_floored_spreads():
    """Spreads that are one where the common one is large, as nearly everywhere under the prior."""
    floors = np.array([1e-3] * (GROUPS - 1) + [0.02])
    return pm.Normal("a", 0, pm.math.maximum(pm.HalfNormal("tau", 10.0), floors), shape=GROUPS)


@pytest.mark.parametrize("tau", [0.003, 5.0])
def test_spreads_that_differ_where_no_draw_of_the_prior_shows_it_have_their_own_precisions(tau):
    hyper = found(of_floored_spreads)
    integrated = hyper.integrated
    assert integrated.dense == 0
    theta, u = np.log([[tau]]), len(integrated.u)
    likelihood = NormalLikelihood(np.full(u, 50.0), 2500 * np.eye(u))
    of_all = likelihood.among(hyper.places, hyper.records.size)
    own, whole = (
        x.conditional(of_all)(theta).mean for x in (integrated, integrated._replace(dense=u))
    )
    np.testing.assert_allclose(own, whole, rtol=1e-9)
