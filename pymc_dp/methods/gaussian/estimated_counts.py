"""Counts that were released with noise, with a prior by which neighbouring bins are alike."""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

# how many times as large as usual the counts of a bin may be: every magnitude up to 3 is as likely,
# and more less likely, with a finite variance. The logarithm of the ratio of neighbouring bins has
# a Laplace distribution of scale 1
FACTORS = np.geomspace(1e-2, 1e6, 65)
LIKELY = np.minimum(1.0, (FACTORS / 3.0) ** -3)
STEPS = softmax(-np.abs(np.log(FACTORS)[:, None] - np.log(FACTORS)), axis=1)
HIDDEN = 1e30  # variance of what was not measured


class EstimatedCounts(NamedTuple):
    """Counts that were measured with noise, and are about as large as is usual, or much smaller."""

    mean: np.ndarray
    sd: np.ndarray


def estimated_counts(
    measured: np.ndarray, variance: np.ndarray, usual: np.ndarray
) -> EstimatedCounts:
    """Estimate counts x ~ N(0, (f usual)^2) of neighbouring bins, whose factors f are alike.

    >>> usual = np.array([1000.0, 100.0, 10.0])
    >>> heavy, light, measured = (
    ...     estimated_counts(np.array([x, 0.0, 0.0]), np.array([9.0, v, v]), usual)
    ...     for x, v in ((900.0, 1e9), (0.0, 1e9), (900.0, 9.0))
    ... )
    >>> heavy.sd.round(), light.sd.round(), measured.sd.round()
    (array([  3., 139.,  15.]), array([ 3., 29.,  5.]), array([3., 3., 1.]))
    """
    prior = (FACTORS * usual[:, None]) ** 2
    known = 1 / (prior + np.minimum(variance, HIDDEN)[:, None])
    weights = _alike((np.log(known) - measured[:, None] ** 2 * known) / 2)
    shrunk = prior * known
    means = shrunk * measured[:, None]
    mean = (weights * means).sum(axis=1)
    squares = (weights * (means**2 + (1 - shrunk) * prior)).sum(axis=1)
    return EstimatedCounts(mean, np.sqrt(np.maximum(squares - mean**2, 0.0)))


def size_of_sum(mean: np.ndarray, sd: np.ndarray, order: int) -> np.ndarray:
    """Return the root mean square of sums over bins, (..., BINS), whose errors add up by an order.

    >>> float(size_of_sum(np.array([1.0, 2.0]), np.array([4.0, 0.0]), order=2))
    5.0
    """
    unknown = (sd**order).sum(axis=-1) ** (1 / order)
    return np.asarray(np.hypot(mean.sum(axis=-1), unknown))


def _alike(log_likelihoods: np.ndarray) -> np.ndarray:
    """Return how likely each bin's factors are, (bins, factors), by forward and backward sums."""
    likely = LIKELY * np.exp(log_likelihoods - log_likelihoods.max(axis=1, keepdims=True))
    before, after = np.ones_like(likely), np.ones_like(likely)
    for k in range(1, len(likely)):
        onward = (before[k - 1] * likely[k - 1]) @ STEPS
        before[k] = onward / onward.sum()
        back = STEPS @ (after[-k] * likely[-k])
        after[-k - 1] = back / back.sum()
    weights = before * likely * after
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
