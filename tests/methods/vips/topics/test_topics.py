"""VIPS for topic models without noise is stochastic variational Bayes; with noise it finds topics.

The reference is the algorithm of Hoffman, Blei and Bach (2010), written out in NumPy for dense
arrays, and shares nothing with the library.
"""

import functools

import numpy as np
import pytest

import pymc_dp
from pymc_dp.methods.conjugate.exponential import DIRICHLET
from pymc_dp.methods.vips.topics import Released, shrunk
from pymc_dp.privacy import clipping
from pymc_dp.testing import deterministic_noise
from tests.methods.vips.topics.topic_fits import (
    QUICK,
    RNG,
    K,
    V,
    concentration,
    lda,
    result,
    stochastic_variational_bayes,
)


@pytest.mark.parametrize(
    "options", [{}, {"kappa": 0.0}, {"tau0": 4.0, "kappa": 0.9}, {"iterations": 3}]
)
def test_full_batches_give_variational_bayes(options):
    got = concentration(form="absolute", n=15, **options)
    expected = stochastic_variational_bayes([slice(None)] * 15, **options)
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_poisson_batches_give_stochastic_variational_bayes(monkeypatch):
    batches, draw = [], clipping.subset

    def spied(*args):
        batches.append(draw(*args))
        return batches[-1]

    monkeypatch.setattr(clipping, "subset", spied)
    got = concentration(form="absolute", n=25, sample_rate=0.2, tau0=2.0)
    assert len({len(rows) for rows in batches}) > 3
    expected = stochastic_variational_bayes(batches, rate=0.2, tau0=2.0)
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_without_noise_nothing_shrinks():
    counts = RNG.uniform(5, 10, (K, V))
    exact = shrunk(Released(counts.sum(axis=0), 0.0, counts, 0.0))
    np.testing.assert_allclose(exact.mass[:, None] * exact.beta, counts)


def test_counts_that_drown_in_noise_shrink_to_the_overall_frequencies():
    counts = RNG.uniform(5, 10, (K, V))
    overall = counts.sum(axis=0)
    beta = shrunk(Released(overall, 1e-3, counts, 1e6)).beta
    np.testing.assert_allclose(beta, np.tile(overall / overall.sum(), (K, 1)), rtol=1e-3)


@functools.cache
def corpus():
    """Three thousand documents of four topics over 300 words, and 200 more; 60 words each."""
    rng = np.random.default_rng(3)
    beta = rng.dirichlet(0.1 * np.ones(300), size=4)
    theta = rng.dirichlet(np.full(4, 0.1), size=3200)
    w = rng.multinomial(60, theta @ beta)
    return w[:3000], w[3000:], beta


@functools.cache
def private(epsilon):
    training, _, _ = corpus()
    model = lda(training, alpha=np.full(4, 0.25), eta=np.full(300, 0.1), n=60)
    # one start in four, that of random_seed=1, ends with two topics in one, also without noise
    with deterministic_noise(5):
        return pymc_dp.fit(model=model, **{**QUICK, "random_seed": 0}, epsilon=epsilon, delta=1e-4)


def test_private_topics_predict_new_documents_better_than_the_unigram():
    training, new, beta = corpus()
    words = training.sum(axis=0) + 0.1
    unigram = np.exp(-new.sum(axis=0) @ np.log(words / words.sum()) / new.sum())
    best = pymc_dp.perplexity(result(beta, np.full(4, 0.1), 1e9), new)
    found = pymc_dp.perplexity(private(5.0), new)
    assert best < found < best + 0.1 * (unigram - best)


def test_private_topics_are_those_of_the_corpus():
    _, _, beta = corpus()
    lam = private(5.0)["fit"]["concentration"].values
    apart = np.abs(lam[:, None] / lam.sum(axis=1)[:, None, None] - beta).sum(axis=2) / 2
    assert sorted(apart.argmin(axis=1)) == [0, 1, 2, 3]
    assert apart.min(axis=1).max() < 0.15


def test_the_result_shows_how_noisy_the_released_sums_are():
    fit, stats = private(5.0)["fit"], private(5.0)["fit_stats"]
    training, _, _ = corpus()
    kept = np.fmin(1, 7 / np.linalg.norm(training, axis=1)) @ training
    z = (fit["totals"].values - kept) / fit["totals_noise_sd"].item()
    assert abs(z.std() - 1) < 0.2
    assert 0 < fit["noise_sd"] < fit["totals_noise_sd"] * 5
    np.testing.assert_allclose(stats["topic_share"].sum("beta_dim_0"), 1)


# --- draws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiny", [1e-2, 1e-5, 1e-12])
def test_draws_of_tiny_concentrations_are_probabilities(tiny):
    draws = DIRICHLET.sample((np.array([[tiny, 3 * tiny]]) - 1,), 4000, np.random.default_rng(1))
    assert np.isfinite(draws).all()
    np.testing.assert_allclose(draws.sum(axis=-1), 1)
    if tiny > 1e-10:  # below, 1 - tiny has no room for it
        np.testing.assert_allclose(draws[:, 0, 1].mean(), 0.75, atol=0.05)
