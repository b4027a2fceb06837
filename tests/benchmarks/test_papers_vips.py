"""The experiments of the paper on VIPS measure what they say, at the privacy that they say."""

import argparse
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from scipy import stats
from scipy.sparse import csr_matrix

import pymc_dp
from benchmarks.papers import belief_net, topics, topics_picture, topics_words, unigram
from benchmarks.papers.experiment import NOT_PRIVATE
from benchmarks.papers.topics_corpora import halves
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


def test_without_noise_no_accountant_claims_anything():
    assert set(epsilons(0.0, ONE_PASS).values()) == {math.inf}


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


def test_perplexity_of_a_public_unigram_is_what_the_hand_computes():
    w = csr_matrix([[3, 0], [0, 1]])
    counts = unigram.released(w, noise=0.0, rng=np.random.default_rng(0))
    words = unigram.frequencies(counts)
    assert words == pytest.approx([3.1 / 4.2, 1.1 / 4.2])
    by_hand = ((3.1 / 4.2) ** 2 * (1.1 / 4.2)) ** (-1 / 3)
    assert unigram.perplexity(csr_matrix([[2, 1]]), words) == pytest.approx(by_hand)


def test_words_that_are_alike_have_the_perplexity_of_their_number():
    w = csr_matrix(np.ones((2, 7), int))
    assert unigram.perplexity(w, np.full(7, 1 / 7)) == pytest.approx(7)


def test_a_word_is_either_known_or_asked():
    w = csr_matrix(np.random.default_rng(0).poisson(3, (20, 30)))
    known, asked = halves(w, np.random.default_rng(1))
    assert (known + asked != w).nnz == 0
    assert min(known.min(), asked.min()) >= 0
    assert 0.4 < known.sum() / w.sum() < 0.6


def test_topics_are_found_again_in_another_order():
    beta = np.random.default_rng(0).dirichlet(np.full(50, 0.1), size=4)
    assert (topics_words.matched(beta[[2, 0, 3, 1]], beta) == beta).all()


def test_every_fit_is_measured_once():
    arguments = argparse.Namespace(seeds=2)
    listed = list(topics.cells("kos", arguments))
    assert len(listed) == len(set(map(str, listed)))


def test_the_picture_of_topics_shows_every_line():
    made_up = topics.cells("kos", argparse.Namespace(seeds=1))
    rows = [cell._asdict() | {"bound": 2000.0} | read(cell.noise) for cell in made_up]
    figure = topics_picture.draw(pd.DataFrame(rows))
    by_epsilon, by_release = figure.axes
    assert len(by_epsilon.get_legend_handles_labels()[1]) == 7
    assert len(by_release.get_legend_handles_labels()[1]) == 4
    plt.close("all")


def test_the_picture_of_the_belief_net_shows_every_line():
    fits = {TODAY: 0.66, MOMENTS: 1.0, STRONG: 2.69, NOT_PRIVATE: 0.0}
    cells = [belief_net.Cell(fit, noise, 800, 75, 0) for fit, noise in fits.items()]
    cells.append(belief_net.Cell(belief_net.DEFAULTS, 1.4, 3000, 40, 0))
    rows = [
        cell._asdict() | {"accuracy": 0.9} | epsilons(cell.noise, cell.schedule) for cell in cells
    ]
    by_batch, by_epsilon = belief_net.draw(pd.DataFrame(rows)).axes
    assert len(by_batch.get_legend_handles_labels()[1]) == 4
    assert len(by_epsilon.get_legend_handles_labels()[1]) == 5
    plt.close("all")


NOISE = unigram.noise_of(1.0, DELTA)


def pvalue_of_noise(noise):
    """Two-sided chi-square test of the noise on empty documents against what epsilon 1 asks for."""
    nothing = csr_matrix((5, WORDS), dtype=int)
    counts = unigram.released(nothing, noise, np.random.default_rng(0)).counts
    square = (counts**2).sum() / (CLIP_NORM * NOISE) ** 2
    return 2 * min(stats.chi2.cdf(square, WORDS), stats.chi2.sf(square, WORDS))


def read(noise):
    """An empty noise is that of a fit at an epsilon: nobody reads it."""
    return {} if math.isnan(noise) else epsilons(noise, ONE_PASS)


def documents(count, length):
    """Say one word again and again: the largest norm of a document of that length."""
    return csr_matrix(np.tile([length, 0, 0], (count, 1)))


def totals(w):
    """Release the same noise for neighbours."""
    return unigram.released(w, 1.0, np.random.default_rng(0)).counts
