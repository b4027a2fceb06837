"""The scale of outcomes at the mode, from residuals at a point that is not the mode.

There the mean of their squares is that at the mode, and what is owed to the location: a quadratic
form of its error, which is not negative. It is no larger than the whole, whatever is believed of
it.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp
from scipy.stats import gamma

from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.outcome_scale import LONGEST_STEP

SMALLEST_NOISE = 1e-6
# points of the grid of a density, and how often it is set closer; nodes of a distribution
POINTS, TIMES, NODES = 401, 3, 32


class Excess(NamedTuple):
    """What a mean of squared residuals owes to a location that is not the mode."""

    mean: float
    variance: float

    @classmethod
    def of(cls, curvature: np.ndarray, covariance: np.ndarray) -> "Excess":
        """Return that of a location with this covariance, e'He; ``curvature`` is that of the mean.

        The covariance itself may be too wide or too narrow, in all directions alike.

        >>> Excess.of(np.diag([1.0, 2.0]), np.diag([3.0, 0.5]))
        Excess(mean=4.0, variance=24.0)
        """
        spread = curvature @ covariance
        mean = float(np.trace(spread))
        of_size = (DEFAULTS.doubt_of_location * mean) ** 2
        return cls(mean, 2 * float(np.trace(spread @ spread)) + of_size)

    def nodes(self) -> np.ndarray:
        """Return equally likely values, (NODES,), of a gamma distribution of these moments."""
        if not (self.mean > 0 and self.variance > 0):
            return np.zeros(NODES)
        chances, shape = (np.arange(NODES) + 0.5) / NODES, self.mean**2 / self.variance
        return np.asarray(gamma.ppf(chances, shape, scale=self.mean / shape))


NO_EXCESS = Excess(0.0, 0.0)


class Ratio(NamedTuple):
    """What is known of the logarithm of a positive number that was measured with noise."""

    mean: float
    sd: float


def log_of_noisy(measured: float, noise_sd: float, prior_sd: float, excess: Excess) -> Ratio:
    """Estimate log R where ``measured`` is R + excess + noise, and log R was N(0, prior_sd^2).

    >>> round(log_of_noisy(8.0, 0.01, 3.0, NO_EXCESS).mean, 2)
    2.08
    >>> [round(log_of_noisy(1.0, 0.1, 3.0, Excess(x, 0.1 * x)).mean, 1) for x in (0.1, 0.9, 5.0)]
    [-0.2, -2.8, -4.8]
    """
    if not np.isfinite([measured, noise_sd, prior_sd, *excess]).all():
        raise FloatingPointError("residuals and their noise are not finite")
    nodes = excess.nodes()
    sds = np.maximum(
        np.hypot(noise_sd, np.gradient(nodes)), SMALLEST_NOISE * max(1.0, abs(measured))
    )

    def weights_at(grid: np.ndarray) -> np.ndarray:
        apart = (measured - np.exp(grid)[:, None] - nodes) / sds
        log_density = logsumexp(-(apart**2) / 2, b=1 / sds, axis=1) - (grid / prior_sd) ** 2 / 2
        if not np.isfinite(log_density.max()):
            raise FloatingPointError("no scale explains the residuals")
        weights = np.exp(log_density - log_density.max())
        return np.asarray(weights / weights.sum())

    grid = np.linspace(-LONGEST_STEP, LONGEST_STEP, POINTS)
    for _ in range(TIMES):
        weights = weights_at(grid)
        inside = np.flatnonzero(weights > 1e-9 * weights.max())
        first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, POINTS - 1)
        grid = np.linspace(grid[first], grid[last], POINTS)
    weights = weights_at(grid)
    mean = float(weights @ grid)
    return Ratio(mean, float(weights @ (grid - mean) ** 2) ** 0.5)
