"""The mean of a posterior whose curvature falls on the path to its mode.

Where effects are strong, outcomes become certain, and the curvature falls in all directions alike
as the path grows longer. The posterior is then wider the further it is from where rounds began: its
mean lies beyond its mode, the more so the more directions there are, and the less is known of how
long the path is.
"""

from typing import NamedTuple, Self

import numpy as np
from scipy.optimize import brentq

from pymc_dp.methods.gaussian.belief import Curvature, symmetric
from pymc_dp.methods.gaussian.defaults import DEFAULTS


class CurvatureFall(NamedTuple):
    """How the curvature has fallen: along a path of length t it is about as t^-power."""

    metric: np.ndarray  # the curvature where the path began, (d, d), which says how long it is
    power: float  # from 0 to 1

    @classmethod
    def between(cls, first: Curvature, last: np.ndarray) -> Self:
        """Compare the curvature of the first round with an unbiased one of all rounds, (d, d).

        Their traces are, in coordinates that make the noise of the first alike in all directions. A
        curvature as (1 + t^2)^-1/2 has fallen to a share r where t has the power 1 - r^2. The noise
        of the first makes it no larger than it may be; that of the last, which all rounds have
        measured, is small.

        >>> first = Curvature(4 * np.eye(2), 0.1 * np.eye(2))
        >>> last = [end * np.eye(2) for end in (0.1, 2.0, 4.0)]
        >>> [round(CurvatureFall.between(first, end).power, 2) for end in last]
        [1.0, 0.73, 0.0]
        """
        inverse = np.linalg.inv(np.linalg.cholesky(first.noise))
        whole, left = (float(np.trace(inverse @ x @ inverse.T)) for x in (first.estimate, last))
        surely = whole - DEFAULTS.sure * len(last) ** 0.5  # the variance of its noise is d
        power = max(0.0, 1 - (left / surely) ** 2) if surely > 0 else 0.0
        return cls(first.spectrum().matrix(DEFAULTS.floor_on_average), power)

    def left(self, path: np.ndarray, longer: np.ndarray) -> float:
        """Return the share of the curvature that is left where the path has grown longer.

        >>> CurvatureFall(np.eye(1), power=1.0).left(np.array([2.0]), np.array([4.0]))
        0.5
        """
        before, after = (float(x @ self.metric @ x) for x in (path, longer))
        return (before / after) ** (self.power / 2) if after > before > 0 else 1.0


def mean_beyond_mode(
    mode: np.ndarray,
    start: np.ndarray,
    covariance: np.ndarray,
    fall: CurvatureFall,
    directions: float,
) -> np.ndarray:
    """Return the posterior's mean, (d,), as far as it differs from the mode along the path.

    To first order it is the mode - V (d log |H| / dz) / 2, and |H| falls as t^(-a n) with the
    length t of the path: a is the power, and n how many ``directions`` records tell of. So the mean
    is taken to be where N(mode, covariance) times (E t^2)^(a n / 4) is largest. The part
    of the path that may be noise does not count; no direction of the path more than doubles.

    >>> fall = CurvatureFall(np.eye(2), power=1.0)
    >>> mode, start = np.array([4.0, 0.0]), np.zeros(2)
    >>> mean_beyond_mode(mode, start, np.diag([1.0, 0.01]), fall, directions=10.0).round(2)
    array([4.92, 0.  ])
    """
    root = np.linalg.cholesky(covariance)
    values, vectors = np.linalg.eigh(symmetric(root.T @ fall.metric @ root))
    path = vectors.T @ np.linalg.solve(root, mode - start)
    spread, squared = float(values.sum()), float(values @ path**2)
    if not spread < squared < np.inf:
        return mode
    strength = (1 - spread / squared) * fall.power * directions / 2

    def grown(share: float) -> np.ndarray:
        return np.asarray(path / (1 - share * values / values[-1]))

    def excess(share: float) -> float:
        """Return the multiplier of E t^2, times that, less the strength."""
        return share / float(values[-1]) * (spread + float(values @ grown(share) ** 2)) - strength

    most = 1 - 1 / DEFAULTS.longest_beyond
    share = brentq(excess, 0.0, most) if excess(most) > 0 else most
    return np.asarray(start + root @ (vectors @ grown(share)))
