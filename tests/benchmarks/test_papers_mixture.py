"""The experiments on the mixture and the networks measure what they say."""

import math

import numpy as np
import pytest
from scipy import stats

import pymc_dp
from benchmarks.papers import full_ep, private_em
from benchmarks.papers.mixture_data import (
    COMPONENTS,
    NOISE_VARIANCE,
    PRIOR_VARIANCE,
    D,
    Posterior,
    compare,
    generated,
)
from benchmarks.papers.mixture_fits import fitter
from pymc_dp.privacy.noise import SecretRandom

ALPHA = 1e-6
SIGMA, BOUND = 3.0, 5.0


@pytest.fixture(scope="module")
def easy():
    return generated(0)


def relative(fit, reference):
    """Squared errors, over the size of the posterior that they are errors of."""
    error = compare(fit, reference)
    variance = np.trace(reference.covariances, axis1=1, axis2=2).mean()
    size = (reference.covariances**2).sum(axis=(1, 2)).mean()
    return error.means / variance, error.covariances / size


def conjugate(X, label):
    """The posterior of the centres when labels are known."""
    counts = np.bincount(label, minlength=COMPONENTS)
    variance = 1 / (counts / NOISE_VARIANCE + 1 / PRIOR_VARIANCE)
    sums = np.stack([X[label == k].sum(axis=0) for k in range(COMPONENTS)])
    means = variance[:, None] * sums / NOISE_VARIANCE
    return Posterior(means, variance[:, None, None] * np.eye(D))


# expectation propagation


def test_ep_is_the_conjugate_posterior_where_no_label_is_in_doubt():
    rng = np.random.default_rng(0)
    label = rng.integers(COMPONENTS, size=80)
    X = 20 * np.eye(COMPONENTS)[label] + 0.5 * rng.normal(size=(80, D))
    fit = full_ep.fit(X, seed=0)
    assert max(compare(fit, conjugate(X, label))[:2]) < 1e-12


def test_ep_agrees_with_gibbs_sampling_and_with_sep(easy):
    found, sep = full_ep.fit(easy.X, seed=0), fitter("sep", math.inf)(easy.X, 0)
    assert max(relative(found, easy.reference)) < 0.01
    assert max(relative(sep, found)) < 0.01


# DP-EM


def em(X, centres, iterations):
    """Maximise the posterior density of the centres, record by record."""
    for _ in range(iterations):
        counts, sums = np.zeros(COMPONENTS), np.zeros((COMPONENTS, D))
        for x in X:
            density = [stats.multivariate_normal.pdf(x, c, NOISE_VARIANCE) for c in centres]
            r = np.array(density) / sum(density)
            counts, sums = counts + r, sums + np.outer(r, x)
        ridge = NOISE_VARIANCE / PRIOR_VARIANCE
        centres = sums / (counts + ridge)[:, None]
    return centres


def test_dp_em_without_noise_and_clipping_is_em(easy, monkeypatch):
    X = easy.X[:200]
    monkeypatch.setattr(private_em, "ITERATIONS", 3)
    monkeypatch.setattr(private_em, "BOUND", 1e3)
    start = private_em.START * np.random.default_rng(0).normal(size=(COMPONENTS, D))
    fit = private_em.fit(X, seed=0, epsilon=math.inf, delta=1e-5)
    np.testing.assert_allclose(fit.means, em(X, start, 3), rtol=1e-6)


def vector(statistics):
    """What was released, as one vector."""
    return np.column_stack([BOUND * statistics.counts, statistics.sums]).ravel()


def has_scale(noise, sd):
    """Whether a two-sided chi-square test takes the noise for N(0, sd^2)."""
    p = stats.chi2.cdf(np.sum((noise / sd) ** 2), df=noise.size)
    return ALPHA / 2 < p < 1 - ALPHA / 2


@pytest.mark.parametrize(
    ("sigma", "right"), [(SIGMA, True), (0.95 * SIGMA, False), (SIGMA / 2**0.5, False)]
)
def test_dp_ems_noise_covers_its_sensitivity(sigma, right):
    empty, centres, random = np.empty((0, D)), np.zeros((COMPONENTS, D)), SecretRandom()
    noise = [vector(private_em.release(empty, centres, BOUND, sigma, random)) for _ in range(5000)]
    assert has_scale(np.concatenate(noise), SIGMA * 2**0.5 * BOUND) == right


@pytest.mark.parametrize("size", [0.0, 1.0, BOUND, 10 * BOUND, 1e100])
def test_one_record_moves_dp_ems_sums_by_at_most_the_sensitivity(easy, size):
    record = np.full((1, D), size / D**0.5)
    centres, random = easy.reference.means, SecretRandom()
    before, after = (
        vector(private_em.release(X, centres, BOUND, 0.0, random))
        for X in (easy.X[:50], np.concatenate([easy.X[:50], record]))
    )
    moved = np.linalg.norm(after - before)
    assert moved <= 2**0.5 * BOUND * (1 + 1e-9)
    if size == 10 * BOUND:
        assert moved > 0.9 * 2**0.5 * BOUND


class Spy(SecretRandom):
    """Notes the scale of all noise."""

    def __init__(self):
        super().__init__()
        self.scales = []

    def rounded_gaussian(self, sd, step, size):
        self.scales.append(sd)
        return super().rounded_gaussian(sd, step, size)


@pytest.mark.parametrize(("more", "within"), [(0, True), (1, False)])
def test_a_fit_of_dp_em_costs_its_epsilon_and_no_more_releases_fit_in(
    easy, monkeypatch, more, within
):
    spy = Spy()
    monkeypatch.setattr(private_em, "SecretRandom", lambda: spy)
    private_em.fit(easy.X, seed=0, epsilon=1.0, delta=1e-5)
    [scale] = set(spy.scales)
    cost = pymc_dp.epsilon(
        noise_multiplier=scale / (2**0.5 * private_em.BOUND),
        sample_rate=1.0,
        sampling="full",
        n=len(spy.scales) + more,
        delta=1e-5,
    )
    assert (cost <= 1) == within
    assert cost > 0.99


# errors


# pictures
