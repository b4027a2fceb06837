"""What clipping leaves of scores: their variance, and the curvature without clipping."""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.mode import Mode


class VarianceShare(NamedTuple):
    """Variance of clipped scores over the curvature that they show: 1 without clipping.

    Without clipping the two are equal, by the information identity. An average over rounds; later
    ones, whose point is nearer to the mode, count more. The norm that scores are clipped to says
    what to expect before a round has measured it.
    """

    weighted_sum: float = 0.0  # of the rounds' shares, by precision
    weight: float = 0.0  # sum of these precisions
    expected: float = 1.0  # from the norm that scores are clipped to

    def add(
        self, variance: float, curvature_trace: float, noise_sd: float, expected: float
    ) -> "VarianceShare":
        """Add a round by its precision; ``noise_sd`` is that of the released variance."""
        trace = max(curvature_trace, 1e-9)
        noise_sd = max(noise_sd, 1e-9 * trace)  # without noise: keeps weights finite
        share, weight = variance / trace, (trace / noise_sd) ** 2
        kept = DEFAULTS.kept_share
        return VarianceShare(
            kept * self.weighted_sum + share * weight, kept * self.weight + weight, expected
        )

    @property
    def _precision(self) -> float:
        return float(self.weight + DEFAULTS.variance_sd**-2)

    @property
    def mean(self) -> float:
        """Average of the rounds and of what is expected, by precision; 1 if nothing is clipped."""
        prior = self.expected * DEFAULTS.variance_sd**-2
        mean = (self.weighted_sum + prior) / self._precision
        return float(np.clip(mean, DEFAULTS.least_left, 1.0))

    @property
    def upper(self) -> float:
        """The average and a margin for its noise; about 1 where nothing is known."""
        return float(min(1.0, self.mean + DEFAULTS.sure * self._precision**-0.5))

    @property
    def curvature_share(self) -> float:
        """Curvature of clipped scores over that of unclipped ones.

        Clipping takes more of it than of the variance.
        """
        lost = DEFAULTS.clipped_curvature * (1 - self.mean)
        return float(max(DEFAULTS.least_left, 1 - lost))


def expected_share(curvature_trace: float, squared_bound: float) -> float:
    """Return the share that is expected where squared norms are clipped to so much in total."""
    share = 1 - DEFAULTS.clipped_variance * max(curvature_trace, 1e-9) / squared_bound
    return max(DEFAULTS.least_left, share)


def surely_moved(step: np.ndarray, mode: Mode) -> float:
    """Return how surely a step was more than noise, from 0 to 1."""
    longest = np.max(np.abs(step) / np.sqrt(np.diag(mode.covariance)))
    return float(np.clip(longest - DEFAULTS.sure, 0.0, 1.0))


def with_diagonal_at_least(curvature: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Raise entries of a curvature's diagonal, and change its normal distribution the least.

    The mean of clipped scores changes less steeply than that of unclipped ones. Coordinates that
    made its slope even would lengthen all scores, and ever more would be clipped. Each entry is
    raised by a rank-one matrix along its row, as in iterative proportional scaling: directions in
    which latents cancel each other keep their curvature.

    >>> with_diagonal_at_least(np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([4.0, 0.0]))
    array([[4.  , 2.  ],
           [2.  , 1.75]])
    """
    H = curvature.copy()
    for i in np.flatnonzero(least > np.diag(H)):
        missing = max(least[i] / H[i, i] - 1, 0.0)  # another entry's row may have raised it
        H += missing / H[i, i] * np.outer(H[i], H[i])
    return H
