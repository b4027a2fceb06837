"""What clipping leaves of scores: their variance, and the curvature that whole ones would have."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.whitened import At, Sums
from pymc_dp.methods.gaussian.belief import Mode
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.privacy.query import Noisy


class VarianceShare(NamedTuple):
    """Variance of clipped scores over the slope of their mean: 1 without clipping.

    An average; later rounds, whose point is nearer to the mode, count more.
    """

    total: float = 0.0
    weight: float = 0.0

    def add(self, sums: Sums, slope: float, at: At, noisy: Noisy) -> "VarianceShare":
        """Add a round by its precision; ``slope`` is the trace of the whitened curvature."""
        expected = max(slope, 1e-9)
        sd = max(noisy.sd / at.variance_scale, 1e-9 * expected)
        value, weight, kept = sums.variance / expected, (expected / sd) ** 2, DEFAULTS.kept_share
        return VarianceShare(kept * self.total + value * weight, kept * self.weight + weight)

    @property
    def mean(self) -> float:
        """The average; 1 where nothing is known."""
        mean = self.total / self.weight if self.weight > 0 else 1.0
        return float(np.clip(mean, DEFAULTS.least_variance, 1.0))

    @property
    def most(self) -> float:
        """The average and two standard deviations; 1 where nothing is known."""
        doubt = 2 / self.weight**0.5 if self.weight > 0 else 1.0
        return min(1.0, self.mean + doubt)


def left_behind(step: np.ndarray, mode: Mode) -> float:
    """Return how surely a step was no noise, from 0 to 1."""
    longest = np.max(np.abs(step) / np.sqrt(np.diag(mode.covariance)))
    return float(np.clip(longest - DEFAULTS.sure_step, 0.0, 1.0))


def with_diagonal(curvature: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Raise the diagonal of a curvature, and what stands beside it.

    Clipped scores fall less steeply than whole ones. Coordinates that made their slope even would
    lengthen all scores, and ever more would be clipped.

    >>> with_diagonal(np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([4.0, 0.0]))
    array([[4., 1.],
           [1., 1.]])
    """
    scale = np.sqrt(np.maximum(1.0, least / np.diag(curvature)))
    return np.asarray(np.outer(scale, scale) * curvature)
