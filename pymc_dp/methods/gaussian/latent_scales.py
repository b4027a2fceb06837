"""From noisy histograms of scores to the scale of every latent."""

import numpy as np

from pymc_dp.contributions.score_scales import BINS, LEAST
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.noise_floor import mean_if_positive


def sums_of_squares(counts: np.ndarray, sd: float) -> np.ndarray:
    """Sum squared scores by latent, (d,), from noisy counts by bins, (d, BINS).

    Scores of 0 fall in the first bin. A sum of squares by bins would be that of the noise on counts
    of long scores. So a latent's scores are taken to be as long as the mean of their logarithms
    says, and, so far as noise hides it, to have the shape that those of other latents have. Where
    it hides all counts of a latent, its records are those in the bins of other latents. Where it
    hides those of all latents, these are taken to be alike, with scores in the three bins whose
    counts, added over latents, are the largest. If that is wrong, rounds find as little as they
    would without it.

    >>> counts = np.zeros((2, BINS))
    >>> counts[0, -LEAST] = 100.0  # scores between 1 and 2
    >>> counts[1, -LEAST] = 4.0
    >>> sums_of_squares(counts, sd=1.0).round(2)
    array([200.,   8.])
    >>> counts[:, -LEAST] = 4.0
    >>> sums_of_squares(counts, sd=1.0)
    array([8., 8.])
    """
    squares = 4.0 ** (np.arange(BINS) + LEAST + 0.5)
    visible = visible_bins(counts, sd)
    records = np.where(visible, np.maximum(counts, 0.0), 0.0)
    numbers = records.sum(axis=1)
    found = numbers > 0
    if not found.any():
        return np.full(len(counts), _sum_of_one_if_alike(counts, squares))
    profiles = records[found] / numbers[found, None]
    noise_sd = sd / numbers[found] * (visible[found] @ squares**2) ** 0.5
    each = _mean_squares(profiles, squares, noise_sd)
    numbers[~found] = _hidden_records(counts[~found], profiles.mean(axis=0), sd)
    mean_square = np.full(len(counts), np.median(each))
    mean_square[found] = each
    return np.asarray(numbers * mean_square)


def _mean_squares(profiles: np.ndarray, squares: np.ndarray, noise_sd: np.ndarray) -> np.ndarray:
    """Return the mean squares, (k,), of scores by bins, (k, BINS), with this noise on each, (k,).

    What they are over the geometric mean is that of the median latent, so far as noise explains
    how they differ.
    """
    geometric, mean = np.exp(profiles @ np.log(squares)), profiles @ squares
    ratio, noise = np.log(mean / geometric), (noise_sd / mean) ** 2
    apart = ratio - np.median(ratio)
    variance = max(float((apart**2 - noise).mean()), np.finfo(float).tiny)
    return np.asarray(mean * np.exp(-apart * noise / (variance + noise)))


def _hidden_records(counts: np.ndarray, profile: np.ndarray, sd: float) -> np.ndarray:
    """Count the records of latents, (k,), whose shares by bins are those of a profile, (BINS,)."""
    squared_length = profile @ profile
    noise_sd = max(sd, np.finfo(float).tiny) / squared_length**0.5
    return mean_if_positive(counts @ profile / squared_length, noise_sd)


def _sum_of_one_if_alike(counts: np.ndarray, squares: np.ndarray) -> float:
    """Sum the squared scores of one latent, as if those of all were alike; ``squares`` by bins."""
    together = counts.sum(axis=0)
    first = 1 + int(sums_of_three(together).argmax())
    largest = slice(first, first + 3)
    return float(np.maximum(together[largest], 0.0) @ squares[largest] / len(counts))


def visible_bins(counts: np.ndarray, sd: float) -> np.ndarray:
    """Return which bins, (d, BINS), are of records, or next to one: alone, or three together.

    >>> counts = np.zeros((1, BINS))
    >>> counts[0, 10:13] = 4.0
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
