"""What clipping leaves of scores: their variance, and the curvature without clipping."""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.gaussian.belief import Mode
from pymc_dp.methods.gaussian.defaults import DEFAULTS


class VarianceShare(NamedTuple):
    """Variance of clipped scores over the curvature that they show: 1 without clipping.

    Without clipping the two are equal, by the information identity. An average over rounds; later
    ones, whose point is nearer to the mode, count more.
    """

    weighted_sum: float = 0.0
    weight: float = 0.0

    def add(self, variance: float, curvature_trace: float, noise_sd: float) -> "VarianceShare":
        """Add a round by its precision; ``noise_sd`` is that of the released variance."""
        unclipped = max(curvature_trace, 1e-9)
        noise_sd = max(noise_sd, 1e-9 * unclipped)  # without noise: keeps weights finite
        share, weight = variance / unclipped, (unclipped / noise_sd) ** 2
        kept = DEFAULTS.kept_share
        return VarianceShare(kept * self.weighted_sum + share * weight, kept * self.weight + weight)

    @property
    def mean(self) -> float:
        """The average; 1 where nothing is known."""
        mean = self.weighted_sum / self.weight if self.weight > 0 else 1.0
        return float(np.clip(mean, DEFAULTS.least_variance, 1.0))

    @property
    def upper(self) -> float:
        """The average and two standard deviations of its noise; 1 where nothing is known."""
        margin = 2 / self.weight**0.5 if self.weight > 0 else 1.0
        return min(1.0, self.mean + margin)


def surely_moved(step: np.ndarray, mode: Mode) -> float:
    """Return how surely a step was more than noise, from 0 to 1."""
    longest = np.max(np.abs(step) / np.sqrt(np.diag(mode.covariance)))
    return float(np.clip(longest - DEFAULTS.sure_step, 0.0, 1.0))


def with_diagonal_at_least(curvature: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Raise the diagonal of a curvature, and rows and columns with it: correlations stay.

    The mean of clipped scores changes less steeply than that of unclipped ones. Coordinates that
    made its slope even would lengthen all scores, and ever more would be clipped.

    >>> with_diagonal_at_least(np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([4.0, 0.0]))
    array([[4., 1.],
           [1., 1.]])
    """
    scale = np.sqrt(np.maximum(1.0, least / np.diag(curvature)))
    return np.asarray(np.outer(scale, scale) * curvature)
