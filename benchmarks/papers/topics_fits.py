"""Private topics of a corpus, and the two perplexities of documents that were held out.

The scores read public or generated data: they are not private.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from scipy.sparse import csr_matrix

import pymc_dp
from benchmarks.papers import unigram
from benchmarks.papers.experiment import NOT_PRIVATE
from benchmarks.papers.quiet import quiet_fit
from benchmarks.papers.topics_corpora import Split, halves
from benchmarks.papers.unigram import ETA
from benchmarks.papers.vips_accountants import DELTA, MOMENTS, STRONG, TODAY, Schedule, noises

# a template's documents, and the prior's concentration of topics in total
TEMPLATE, ALPHA = 3, 1.0
# neither noise nor clipping
PUBLIC = {"epsilon": math.inf, "clip_norm": math.inf}
# the paper's: a twentieth of the documents a release; the noise and the epsilon of its table 1
ONE_PASS = Schedule(0.05, 20)
PAPERS_NOISE, PAPERS_EPSILON = 1.24, 2.44


class Scores(NamedTuple):
    """Perplexities of held-out documents.

    Attributes
    ----------
    bound : float
        Of all their words, by the evidence lower bound.
    half : float
        Of a random half of their words given the other half.
    """

    bound: float
    half: float


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
    noise = unigram.noise_of(epsilon, DELTA)
    totals = unigram.released(split.training, noise, np.random.default_rng(seed))
    words = unigram.frequencies(totals)
    asked = _halves(split.held_out, seed)[1]
    return Scores(unigram.perplexity(split.held_out, words), unigram.perplexity(asked, words))


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
