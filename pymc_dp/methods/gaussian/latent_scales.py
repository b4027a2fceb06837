"""From noisy histograms of scores to the scale of every latent."""

import numpy as np

from pymc_dp.contributions.score_scales import BINS, LEAST
from pymc_dp.methods.gaussian.defaults import DEFAULTS


def sums_of_squares(counts: np.ndarray, sd: float) -> np.ndarray:
    """Sum squared scores by latent, (d,), from noisy counts by bins, (d, BINS).

    Scores of 0 fall in the first bin. Where noise hides all counts of a latent, as many records as
    its sd are taken to have the squares that other latents have. Where it hides those of all
    latents, these are taken to be alike, with scores in the three bins whose counts, added over
    latents, are the largest. If that is wrong, rounds find as little as they would without it.

    >>> counts = np.zeros((2, BINS))
    >>> counts[0, -LEAST] = 100.0  # scores between 1 and 2
    >>> sums_of_squares(counts, sd=1.0)
    array([200.,   2.])
    >>> counts[:, -LEAST] = 4.0
    >>> sums_of_squares(counts, sd=1.0)
    array([8., 8.])
    """
    squares = 4.0 ** (np.arange(BINS) + LEAST + 0.5)
    records = np.where(visible_bins(counts, sd), np.maximum(counts, 0.0), 0.0)
    sums: np.ndarray = records @ squares
    found = sums > 0
    if found.any():
        typical = np.median(sums[found] / records.sum(axis=1)[found])
        sums[~found] = sd * typical
    else:
        sums[:] = _sum_of_one_if_alike(counts, squares)
    return sums


def _sum_of_one_if_alike(counts: np.ndarray, squares: np.ndarray) -> float:
    """Sum the squared scores of one latent, as if those of all were alike; ``squares`` by bins."""
    together = counts.sum(axis=0)
    first = 1 + int(sums_of_three(together).argmax())
    largest = slice(first, first + 3)
    return float(np.maximum(together[largest], 0.0) @ squares[largest] / len(counts))


def visible_bins(counts: np.ndarray, sd: float) -> np.ndarray:
    """Return which bins, (d, BINS), are of records, or next to one: alone, or three together.

    >>> counts = np.zeros((1, BINS))
    >>> counts[0, 10:13] = 3.0
    >>> np.flatnonzero(visible_bins(counts, sd=1.0))
    array([10, 11, 12])
    """
    seen = counts > DEFAULTS.visible_count * sd
    seen[:, 0] = False  # scores of 0
    seen[:, 2:-1] |= sums_of_three(counts) > visible_sum(sd)
    near = seen | np.roll(seen, 1, axis=1) | np.roll(seen, -1, axis=1)
    near[:, 0] = False
    return np.asarray(near)


def sums_of_three(counts: np.ndarray) -> np.ndarray:
    """Add the counts of neighbouring bins, (..., BINS); not that of scores of 0."""
    return np.asarray(counts[..., 1:-2] + counts[..., 2:-1] + counts[..., 3:])


def visible_sum(sd: float) -> float:
    """Return what a sum of three counts exceeds where it is of records."""
    return DEFAULTS.visible_count * 3**0.5 * sd
