"""A private unigram: what topics have to beat. One release of all documents' clipped counts."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

import pymc_dp
from pymc_dp.methods.vips.topics import DEFAULTS, denoised

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
