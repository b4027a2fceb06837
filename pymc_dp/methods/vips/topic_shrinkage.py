"""Topics from noisy counts: every topic shrinks towards the words' overall frequencies.

Most of a vocabulary is rare: its counts drown in noise one by one, while their distribution does
not (empirical Bayes; Robbins 1956, Efron 2016). All of it is post-processing of released numbers.
"""

from typing import NamedTuple

import numpy as np

# totals this many standard deviations of the noise above 0 are taken as they are
CLEAR = 8.0
# possible means of the others, in standard deviations of the noise, and steps to weight them
GRID = np.append(0.0, np.geomspace(0.02, CLEAR + 2, 60))
STEPS = 100
# the least mean, in the same units
FLOOR = 1e-3
# how many words are frequent: their sums are nearly free of noise
FREQUENT_SHARE, FEWEST_FREQUENT = 0.05, 50
# the least share of a topic among frequent words, times the number of topics
LEAST_SHARE = 1e-3
# the least ratio of a topic's count to the overall frequency, and the least variance of ratios
LEAST_RATIO, LEAST_VARIANCE = 0.02, 1e-3
TINY = 1e-300


class Released(NamedTuple):
    """Noisy sums over documents.

    Attributes
    ----------
    totals : ndarray, shape (words,)
    totals_sd : float
        Standard deviation of the noise on each of them.
    counts : ndarray, shape (topics, words)
        By topic, averaged over releases; raw, so they may be negative.
    counts_sd : float
    """

    totals: np.ndarray
    totals_sd: float
    counts: np.ndarray
    counts_sd: float


class Shrunk(NamedTuple):
    """Topics as far as noise lets them be seen.

    Attributes
    ----------
    beta : ndarray, shape (topics, words)
        Topics' words; each topic sums to 1.
    mass : ndarray, shape (topics,)
    variance : ndarray, shape (topics, words)
        Of the counts, given what was released.
    """

    beta: np.ndarray
    mass: np.ndarray
    variance: np.ndarray


def denoised(noisy: np.ndarray, sd: float) -> np.ndarray:
    """Posterior means of non-negative numbers, under the prior that fits all of them best.

    Parameters
    ----------
    noisy : ndarray, shape (words,)
        The numbers plus Gaussian noise.
    sd : float
        The noise's standard deviation; without noise the numbers stay.

    Returns
    -------
    ndarray, shape (words,)

    Examples
    --------
    >>> denoised(np.array([100.0, 40.0, 0.4, -0.3, 0.2]), sd=1.0).round(1)
    array([100. ,  40. ,   0.1,   0.1,   0.1])
    """
    if sd == 0:
        return np.maximum(noisy, 0.0)
    mean = noisy.astype("float64")
    drowned = noisy < CLEAR * sd
    distance = (noisy[drowned, None] / sd - GRID) ** 2 / 2
    likelihood = np.exp(distance.min(axis=1, initial=np.inf, keepdims=True) - distance)
    weights = np.full(GRID.size, 1 / GRID.size)
    for _ in range(STEPS if drowned.any() else 0):
        weights = weights * (likelihood.T @ (1 / (likelihood @ weights))) / len(likelihood)
    mean[drowned] = sd * (likelihood @ (weights * GRID)) / (likelihood @ weights)
    return np.maximum(mean, FLOOR * sd)


def shrunk(released: Released) -> Shrunk:
    """Estimate topics and their masses from released sums.

    Returns
    -------
    Shrunk
    """
    overall = _overall(released)
    frequent = _frequent(overall)
    share = released.counts[:, frequent].sum(axis=1) / max(overall[frequent].sum(), FLOOR)
    expected = np.outer(np.maximum(share, LEAST_SHARE / len(share)), overall)
    slope = _slope(released.counts, expected, released.counts_sd)
    counts = expected * np.maximum(1 + slope * (released.counts - expected), LEAST_RATIO)
    of_all = counts.sum(axis=0)
    shares = np.divide(counts, of_all, out=np.zeros_like(counts), where=of_all > 0)
    variance = released.counts_sd**2 * slope * expected
    return Shrunk(normalised(overall * shares), counts.sum(axis=1), variance)


def normalised(counts: np.ndarray) -> np.ndarray:
    """Make every row sum to 1; a row of zeros becomes even."""
    total = counts.sum(axis=1, keepdims=True)
    even = np.full_like(counts, 1 / counts.shape[1])
    return np.divide(counts, total, out=even, where=total > 0)


def _overall(released: Released) -> np.ndarray:
    """Pool the totals with the topics' sums: both tell how frequent a word is, up to a scale."""
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
    count = min(max(FEWEST_FREQUENT, int(FREQUENT_SHARE * overall.size)), overall.size)
    return overall >= np.partition(overall, -count)[-count]


def _slope(counts: np.ndarray, expected: np.ndarray, sd: float) -> np.ndarray:
    """How far counts move the posterior means of their ratios to what is expected.

    Ratios vary around 1 with one variance, which is estimated by moments, from the entries that
    stand out from the noise.
    """
    seen = (expected > sd / 2) & (expected > 0)
    noise, square = sd**2, expected[seen] ** 2
    weight = square / (square + noise) ** 2
    excess = (counts[seen] - expected[seen]) ** 2 - noise
    total = (weight * square).sum()
    variance = max((weight * excess).sum() / total if seen.any() else 0.0, LEAST_VARIANCE)
    return variance * expected / np.maximum(variance * expected**2 + noise, TINY)
