"""What benchmarks release by mechanisms of their own has the noise that its epsilon asks for."""

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_matrix

import pymc_dp
from benchmarks.papers import private_em, topics_fits
from benchmarks.papers.mixture_data import COMPONENTS, D, generated
from benchmarks.papers.paper_accounting import DELTA, MOMENTS, STRONG, TODAY, column, epsilons
from benchmarks.papers.topics_fits import ONE_PASS, PAPERS_EPSILON, PAPERS_NOISE, papers_noises
from pymc_dp.privacy.randomness import SecretRandom

ALPHA = 1e-6
SIGMA, BOUND = 3.0, 5.0
CLIP_NORM, NOISE = topics_fits.CLIP_NORM, topics_fits.noise_of(1.0, DELTA)


def has_scale(noise, sd):
    """Whether a two-sided chi-square test takes the noise for N(0, sd^2)."""
    p = stats.chi2.cdf(np.sum((noise / sd) ** 2), df=noise.size)
    return ALPHA / 2 < p < 1 - ALPHA / 2


# --- expectation maximisation --------------------------------------------------------------------


def vector(statistics):
    """What was released, as one vector."""
    return np.column_stack([BOUND * statistics.counts, statistics.sums]).ravel()


@pytest.mark.parametrize(("sigma", "right"), [(SIGMA, True), (0.95 * SIGMA, False)])
def test_dp_ems_noise_covers_its_sensitivity(sigma, right):
    empty, centres, random = np.empty((0, D)), np.zeros((COMPONENTS, D)), SecretRandom()
    noise = [vector(private_em.release(empty, centres, BOUND, sigma, random)) for _ in range(1000)]
    assert has_scale(np.concatenate(noise), SIGMA * 2**0.5 * BOUND) == right


@pytest.mark.parametrize("size", [1.0, 10 * BOUND, 1e100])
def test_one_record_moves_dp_ems_sums_by_at_most_the_sensitivity(size):
    data, record = generated(0), np.full((1, D), size / D**0.5)
    before, after = (
        vector(private_em.release(X, data.reference.means, BOUND, 0.0, SecretRandom()))
        for X in (data.X[:50], np.concatenate([data.X[:50], record]))
    )
    moved = np.linalg.norm(after - before)
    assert moved <= 2**0.5 * BOUND * (1 + 1e-9)
    if size == 10 * BOUND:
        assert moved > 0.9 * 2**0.5 * BOUND


def test_a_fit_of_dp_em_costs_its_epsilon_and_no_more_releases_fit_in(monkeypatch):
    scales, gaussian = [], SecretRandom.rounded_gaussian

    def spy(self, sd, step, size):
        scales.append(sd)
        return gaussian(self, sd, step, size)

    monkeypatch.setattr(SecretRandom, "rounded_gaussian", spy)
    private_em.fit(generated(0).X, seed=0, epsilon=1.0, delta=1e-5)
    [scale] = set(scales)
    terms = {"noise_multiplier": scale / (2**0.5 * private_em.BOUND), "delta": 1e-5}
    terms |= {"sample_rate": 1.0, "sampling": "full"}
    assert 0.99 < pymc_dp.epsilon(n=len(scales), **terms) <= 1
    assert pymc_dp.epsilon(n=len(scales) + 1, **terms) > 1


# --- a unigram of documents ----------------------------------------------------------------------


def totals(w, noise=1.0):
    """Release the same noise for neighbours."""
    return topics_fits.released(w, noise, np.random.default_rng(0)).counts


@pytest.mark.parametrize(("fault", "right"), [(1.0, True), (0.95, False)])
def test_a_unigram_adds_the_noise_that_it_is_charged_for(fault, right):
    assert (
        has_scale(totals(csr_matrix((5, 50_000), dtype=int), fault * NOISE), CLIP_NORM * NOISE)
        == right
    )
    assert pymc_dp.epsilon(noise_multiplier=NOISE, delta=DELTA, sample_rate=1, n=1) <= 1


def moved_by_a_document(length):
    """Say one word again and again: the largest norm of a document of that length."""
    one, other = (csr_matrix(np.tile([length, 0, 0], (count, 1))) for count in (3, 2))
    return np.linalg.norm(totals(one) - totals(other))


@pytest.mark.parametrize("length", [1, 8, 1000])
def test_no_document_moves_the_totals_beyond_the_clip_norm(length, monkeypatch):
    assert moved_by_a_document(length) == pytest.approx(min(length, CLIP_NORM))
    monkeypatch.setattr(topics_fits, "CLIP_NORM", 1e6)  # a release that does not clip
    assert (moved_by_a_document(length) > CLIP_NORM) == (length > CLIP_NORM)


# --- accountants ---------------------------------------------------------------------------------


@pytest.mark.parametrize("accountant", [TODAY, MOMENTS, STRONG])
def test_the_noise_that_is_asked_for_costs_that_epsilon(accountant):
    noises = papers_noises()
    assert noises[TODAY] < noises[MOMENTS] == PAPERS_NOISE < noises[STRONG]
    spent = epsilons(noises[accountant], ONE_PASS)[column(accountant)]
    assert spent == pytest.approx(PAPERS_EPSILON, rel=1e-3)
