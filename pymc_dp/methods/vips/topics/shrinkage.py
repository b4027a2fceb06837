"""Topics from noisy counts: every topic shrinks towards the words' overall frequencies.

Most of a vocabulary is rare: each of its counts is smaller than the noise, while their distribution
can be estimated (empirical Bayes; Robbins 1956, Efron 2016). All of it is post-processing of
released numbers.
"""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.vips.topics.defaults import DEFAULTS

# possible means of totals, in standard deviations of the noise
GRID = np.append(0.0, np.geomspace(*DEFAULTS.grid))
TINY = 1e-300


class Released(NamedTuple):
    """Noisy sums over documents."""

    totals: np.ndarray  # shape (words,)
    totals_sd: float  # standard deviation of the noise on each of them
    # shape (topics, words): by topic, averaged over releases; raw, so they may be negative
    counts: np.ndarray
    counts_sd: float


class Shrunk(NamedTuple):
    """Estimated topics."""

    beta: np.ndarray  # shape (topics, words): topics' words; each topic sums to 1
    mass: np.ndarray  # shape (topics,)
    variance: np.ndarray  # shape (topics, words): of the counts, given what was released


def denoised(noisy: np.ndarray, sd: float) -> np.ndarray:
    """Posterior means of non-negative numbers, under the prior that fits all of them best.

    ``noisy``, shape (words,), are the numbers plus Gaussian noise of standard deviation ``sd``.

    >>> denoised(np.array([100.0, 40.0, 0.4, -0.3, 0.2]), sd=1.0).round(1)
    array([100. ,  40. ,   0.1,   0.1,   0.1])
    """
    if sd == 0:
        return noisy.clip(min=0.0)
    mean = noisy.astype("float64")
    uncertain = noisy < DEFAULTS.certain * sd
    distance = (noisy[uncertain, None] / sd - GRID) ** 2 / 2
    likelihood = np.exp(distance.min(axis=1, initial=np.inf, keepdims=True) - distance)
    weights = np.full(GRID.size, 1 / GRID.size)
    for _ in range(DEFAULTS.grid_steps if uncertain.any() else 0):
        weights = weights * (likelihood.T @ (1 / (likelihood @ weights))) / len(likelihood)
    mean[uncertain] = sd * (likelihood @ (weights * GRID)) / (likelihood @ weights)
    return mean.clip(min=DEFAULTS.least_mean * sd)


def shrunk(released: Released) -> Shrunk:
    """Estimate topics and their masses from released sums."""
    overall = _overall(released)
    frequent = _frequent(overall)
    share = released.counts[:, frequent].sum(axis=1) / max(
        overall[frequent].sum(), DEFAULTS.least_mean
    )
    expected = np.outer(np.maximum(share, DEFAULTS.least_share / len(share)), overall)
    slope = _slope(released.counts, expected, released.counts_sd)
    counts = expected * np.maximum(1 + slope * (released.counts - expected), DEFAULTS.least_ratio)
    of_all = counts.sum(axis=0)
    shares = np.divide(counts, of_all, out=np.zeros_like(counts), where=of_all > 0)
    variance = released.counts_sd**2 * slope * expected
    return Shrunk(normalised(overall * shares), counts.sum(axis=1), variance)


def normalised(counts: np.ndarray) -> np.ndarray:
    """Make every row sum to 1; a row of zeros becomes even."""
    total = counts.sum(axis=1, keepdims=True)
    even = np.full_like(counts, 1 / counts.shape[1])
    np.divide(counts, total, out=even, where=total > 0)
    return even


def _overall(released: Released) -> np.ndarray:
    """Pool the totals with the topics' sums: both estimate a word's frequency, up to a scale."""
    overall = denoised(released.totals, released.totals_sd)
    if released.totals_sd == 0 or released.counts_sd == 0:
        return overall
    frequent = _frequent(overall)
    sums = released.counts.sum(axis=0)
    scale = max(sums[frequent].sum() / overall[frequent].sum(), 0.0)
    of_totals = released.totals_sd**-2
    of_sums = scale / (len(released.counts) * released.counts_sd**2)
    precision = of_totals + scale * of_sums
    pooled = (of_totals * released.totals + of_sums * sums) / precision
    return denoised(pooled, precision**-0.5)


def _frequent(overall: np.ndarray) -> np.ndarray:
    count = min(
        max(DEFAULTS.fewest_frequent, int(DEFAULTS.frequent_share * overall.size)), overall.size
    )
    return np.asarray(overall >= np.partition(overall, -count)[-count])


def _slope(counts: np.ndarray, expected: np.ndarray, sd: float) -> np.ndarray:
    """How far counts move the posterior means of their ratios to what is expected."""
    # ratios vary around 1 with one variance, which is estimated by moments, from the entries above
    # half a standard deviation of the noise
    large = (expected > sd / 2) & (expected > 0)
    noise, square = sd**2, expected[large] ** 2
    weight = square / (square + noise) ** 2
    excess = (counts[large] - expected[large]) ** 2 - noise
    total = (weight * square).sum()
    variance = max((weight * excess).sum() / total if large.any() else 0.0, DEFAULTS.least_variance)
    return np.asarray(variance * expected / np.maximum(variance * expected**2 + noise, TINY))
