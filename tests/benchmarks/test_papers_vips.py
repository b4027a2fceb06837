"""The experiments of the paper on VIPS measure what they say, at the privacy that they say."""

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_matrix

import pymc_dp
from benchmarks.papers import belief_net, topics, unigram
from benchmarks.papers.topics_fits import ONE_PASS, PAPERS_EPSILON, PAPERS_NOISE, papers_noises
from benchmarks.papers.vips_accountants import DELTA, MOMENTS, STRONG, TODAY, column, epsilons

ALPHA = 1e-6
CLIP_NORM = unigram.CLIP_NORM
WORDS = 50_000
CAPTION = {400: 2.3468, 800: 2.398, 1600: 3.2262, 3200: 4.8253}


@pytest.mark.parametrize("noise", [topics.NOISES[0], topics.NOISES[-1]])
def test_every_accountant_is_tighter_than_the_one_before(noise):
    found = epsilons(noise, ONE_PASS)
    assert found[column(TODAY)] < found[column(MOMENTS)] < found[column(STRONG)]


def test_at_one_epsilon_a_looser_accountant_asks_for_more_noise():
    noises = papers_noises()
    assert noises[TODAY] < noises[MOMENTS] == PAPERS_NOISE < noises[STRONG]


@pytest.mark.parametrize("accountant", [TODAY, MOMENTS, STRONG])
def test_the_noise_that_is_asked_for_costs_that_epsilon(accountant):
    spent = epsilons(papers_noises()[accountant], ONE_PASS)[column(accountant)]
    assert spent == pytest.approx(PAPERS_EPSILON, rel=1e-3)


@pytest.mark.parametrize("batch", CAPTION)
def test_the_belief_net_is_compared_at_the_captions_epsilons(batch):
    assert belief_net.papers_epsilon(batch) == CAPTION[batch]


def test_a_unigram_adds_the_noise_that_it_is_charged_for():
    assert pvalue_of_noise(NOISE) > ALPHA
    assert pymc_dp.epsilon(noise_multiplier=NOISE, delta=DELTA, sample_rate=1, n=1) <= 1


@pytest.mark.parametrize("fault", [0.95, 1.05])
def test_noise_of_another_size_is_caught(fault):
    assert pvalue_of_noise(fault * NOISE) < ALPHA


@pytest.mark.parametrize("length", [1, 8, 1000])
def test_no_document_moves_the_totals_beyond_the_clip_norm(length):
    one, other = documents(3, length), documents(2, length)
    moved = np.linalg.norm(totals(one) - totals(other))
    assert moved <= CLIP_NORM * (1 + 1e-9)
    assert moved >= min(length, CLIP_NORM) * (1 - 1e-9)  # and none is shortened for nothing


def test_a_release_that_does_not_clip_is_caught(monkeypatch):
    monkeypatch.setattr(unigram, "CLIP_NORM", 1e6)
    assert np.linalg.norm(totals(documents(3, 1000)) - totals(documents(2, 1000))) > CLIP_NORM


NOISE = unigram.noise_of(1.0, DELTA)


def pvalue_of_noise(noise):
    """Two-sided chi-square test of the noise on empty documents against what epsilon 1 asks for."""
    nothing = csr_matrix((5, WORDS), dtype=int)
    counts = unigram.released(nothing, noise, np.random.default_rng(0)).counts
    square = (counts**2).sum() / (CLIP_NORM * NOISE) ** 2
    return 2 * min(stats.chi2.cdf(square, WORDS), stats.chi2.sf(square, WORDS))


def documents(count, length):
    """Say one word again and again: the largest norm of a document of that length."""
    return csr_matrix(np.tile([length, 0, 0], (count, 1)))


def totals(w):
    """Release the same noise for neighbours."""
    return unigram.released(w, 1.0, np.random.default_rng(0)).counts
