"""Private topics of a corpus, and the two perplexities of documents that were held out.

The scores read public or generated data: they are not private.
"""

import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from scipy.sparse import csr_matrix, vstack

import pymc_dp
from benchmarks.data import load
from benchmarks.papers.experiment import NOT_PRIVATE, quiet_fit
from benchmarks.papers.paper_accounting import DELTA, MOMENTS, STRONG, TODAY, Schedule, noises
from pymc_dp.methods.vips.topics import DEFAULTS, denoised

# --- documents of blogs and news, and generated ones; some of them held out ----------------------

FILES = {"kos": "bow_kos.npz", "ap": "bow_ap.npz"}
GENERATED = "generated"
HELD_OUT_SHARE, HELD_OUT_GENERATED = 10, 2000
TOPICS, GENERATED_TOPICS = 10, 20
# of generated documents: the vocabulary, mean length, and how many are drawn at a time
WORDS, LENGTH, PART = 7000, 100, 20_000


class Split(NamedTuple):
    """Documents to fit and to score, by word; what a fit may know of them."""

    training: csr_matrix
    held_out: csr_matrix
    topics: int
    num_records: int | None = None  # of the training documents, where it is public


@functools.cache
def split(folder: Path | None, name: str, seed: int, documents: int) -> Split:
    """Return one split of a corpus; generated ones have so many ``documents``, and no folder."""
    if name == GENERATED:
        w = generated(documents + HELD_OUT_GENERATED, np.random.default_rng(seed))
        return Split(w[:documents], w[documents:], GENERATED_TOPICS, documents)
    w = _counts(load(folder, FILES[name]))
    rows = np.random.default_rng(seed).permutation(w.shape[0])
    cut = w.shape[0] // HELD_OUT_SHARE
    return Split(w[rows[cut:]], w[rows[:cut]], TOPICS)


def vocabulary(folder: Path, name: str) -> list[str]:
    """Return the words in the order of the counts."""
    return bytes(load(folder, FILES[name])["vocab"]).decode().split("\n")


def halves(w: csr_matrix, rng: np.random.Generator) -> tuple[csr_matrix, csr_matrix]:
    """Put every word of a document into one of two halves."""
    first = w.copy()
    first.data = rng.binomial(w.data, 0.5)
    return first, w - first


def generated(documents: int, rng: np.random.Generator) -> csr_matrix:
    """Draw documents from latent Dirichlet allocation; words are as frequent as in a language."""
    beta = 1 / (np.arange(WORDS) + 10) * rng.gamma(0.3, size=(GENERATED_TOPICS, WORDS))
    of_words = np.cumsum(beta, axis=1) / beta.sum(axis=1, keepdims=True)
    sizes = [min(PART, documents - k) for k in range(0, documents, PART)]
    return vstack([_part(size, of_words, rng) for size in sizes]).tocsr()


def _part(documents: int, of_words: np.ndarray, rng: np.random.Generator) -> csr_matrix:
    """Draw some documents, given the topics' cumulative probabilities of words."""
    shares = np.cumsum(rng.dirichlet(np.full(len(of_words), 0.1), documents), axis=1)
    document = np.repeat(np.arange(documents), np.maximum(rng.poisson(LENGTH, documents), 1))
    topic = (rng.random((document.size, 1)) > shares[document, :-1]).sum(axis=1)
    word = np.empty_like(topic)
    for k, cumulative in enumerate(of_words):
        of_topic = topic == k
        word[of_topic] = np.searchsorted(cumulative, rng.random(of_topic.sum()))
    word = np.minimum(word, WORDS - 1)
    return csr_matrix((np.ones_like(word), (document, word)), (documents, WORDS))


def _counts(arrays: dict[str, np.ndarray]) -> csr_matrix:
    shape = len(arrays["indptr"]) - 1, int(arrays["n_vocab"])
    return csr_matrix((arrays["counts"].astype(int), arrays["indices"], arrays["indptr"]), shape)


# --- a private unigram: what topics have to beat. One release of all documents' clipped counts ---

CLIP_NORM = DEFAULTS.clip_norm
# the prior's concentration of every word
ETA = 0.1


class Totals(NamedTuple):
    """Noisy sums over documents: how often each word occurs, and the noise's standard deviation."""

    counts: np.ndarray
    sd: float


def noise_of(epsilon: float, delta: float) -> float:
    """Noise multiplier of one release of all documents."""
    return pymc_dp.calibrate(epsilon=epsilon, delta=delta, sample_rate=1, n=1)


def released(w: csr_matrix, noise: float, rng: np.random.Generator) -> Totals:
    """Release words' totals; without noise there is no clipping either.

    Notes
    -----
    **Privacy.** A document's counts are clipped to ``CLIP_NORM``, so under add/remove neighbours
    this is a Gaussian mechanism of that sensitivity. ``rng`` is seeded: an experiment's, no user's.
    """
    norms = np.sqrt(w.multiply(w).sum(axis=1).A1)
    weights = CLIP_NORM / np.maximum(norms, CLIP_NORM) if noise else np.ones_like(norms)
    sd = CLIP_NORM * noise
    return Totals(weights @ w + rng.normal(0, sd, w.shape[1]), sd)


def frequencies(totals: Totals) -> np.ndarray:
    """Words' posterior mean frequencies, from denoised totals."""
    counts = denoised(totals.counts, totals.sd) + ETA
    return counts / counts.sum()


def perplexity(w: csr_matrix, frequencies: np.ndarray) -> float:
    """One over the geometric mean of the probabilities of all documents' words."""
    counts = w.sum(axis=0).A1
    return float(np.exp(-counts @ np.log(frequencies) / counts.sum()))


# --- private topics of a corpus, and the two perplexities of documents that were held out --------

# a template's documents, and the prior's concentration of topics in total
TEMPLATE, ALPHA = 3, 1.0
# neither noise nor clipping
PUBLIC = {"epsilon": math.inf, "clip_norm": math.inf}
# the paper's: a twentieth of the documents a release; the noise and the epsilon of its table 1
ONE_PASS = Schedule(0.05, 20)
PAPERS_NOISE, PAPERS_EPSILON = 1.24, 2.44


class Scores(NamedTuple):
    """Perplexities of held-out documents."""

    bound: float  # of all their words, by the evidence lower bound
    half: float  # of a random half of their words given the other half


@functools.cache
def papers_noises() -> dict[str, float]:
    """Noise multipliers of one pass that the accountants ask for at the paper's epsilon."""
    asked = noises(PAPERS_EPSILON, ONE_PASS)
    private = {TODAY: asked[TODAY], MOMENTS: PAPERS_NOISE, STRONG: asked[STRONG]}
    return {NOT_PRIVATE: 0.0} | private


def template(topics: int, words: int) -> pm.Model:
    """Build the model on a few made-up documents."""
    w = np.random.default_rng(0).poisson(0.1, (TEMPLATE, words))
    with pm.Model() as model:
        beta = pm.Dirichlet("beta", np.full(words, ETA), shape=(topics, words))
        theta = pm.Dirichlet("theta", np.full(topics, ALPHA / topics), shape=(TEMPLATE, topics))
        pm.Multinomial("w", n=w.sum(axis=1), p=pm.math.dot(theta, beta), observed=w)
    return model


def by_defaults(split: Split, seed: int, epsilon: float) -> xr.DataTree:
    """Fit with the package's settings; without noise there is no clipping either."""
    return _fitted(split, seed, **(PUBLIC if math.isinf(epsilon) else {"epsilon": epsilon}))


def by_paper(split: Split, seed: int, noise: float, releases: int) -> xr.DataTree:
    """Fit by the paper's algorithm and schedule, cut short after some releases."""
    schedule = ONE_PASS._replace(n=releases)._asdict()
    privacy = {"noise_multiplier": noise} if noise else PUBLIC
    return _fitted(split, seed, form="absolute", **schedule, **privacy)


def scores(idata: xr.DataTree, held_out: csr_matrix, seed: int) -> Scores:
    """Score topics; the seed chooses the halves."""
    known, asked = _halves(held_out, seed)
    half = pymc_dp.perplexity(idata, asked, given=known)
    return Scores(pymc_dp.perplexity(idata, held_out), half)


def unigram_scores(split: Split, seed: int, epsilon: float) -> Scores:
    """Score a unigram that has the whole budget for one release."""
    noise = noise_of(epsilon, DELTA)
    totals = released(split.training, noise, np.random.default_rng(seed))
    words = frequencies(totals)
    asked = _halves(split.held_out, seed)[1]
    return Scores(perplexity(split.held_out, words), perplexity(asked, words))


def _halves(held_out: csr_matrix, seed: int) -> tuple[csr_matrix, csr_matrix]:
    return halves(held_out, np.random.default_rng([seed, 1]))


def _fitted(split: Split, seed: int, **settings: Any) -> xr.DataTree:
    return quiet_fit(
        model=template(split.topics, split.training.shape[1]),
        method="vips",
        delta=DELTA,
        data={"w": split.training},
        num_records=split.num_records,
        random_seed=seed,
        draws=1,
        **settings,
    )
