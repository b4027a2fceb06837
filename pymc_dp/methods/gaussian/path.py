"""The curvature along the path from where rounds began to where they are.

The path is chosen before its curvature is released, by itself. So no edge of the noise hides it, as
it hides eigenvalues of a whole matrix, whose directions the noise chooses. The last step is such a
path, too: what the curvature along it is on average follows from the scores at its ends.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import exprel

from pymc_dp.methods.gaussian.defaults import DEFAULTS


class Path(NamedTuple):
    """The vector from one point to another, and the curvature along it."""

    vector: np.ndarray  # p, (d,): from where rounds began to the point, or the last step
    curvature: float  # p'Hp
    noise_sd: float  # of it

    def rank_one_change(self, H: np.ndarray) -> np.ndarray:
        """Return what a matrix, (d, d), lacks of the curvature along the path.

        With it a positive definite matrix stays positive definite if the ``curvature`` is positive.

        >>> path, H = Path(np.array([1.0, 0.0]), 1.0, 0.1), np.array([[4.0, 2.0], [2.0, 2.0]])
        >>> (H + path.rank_one_change(H)).tolist()
        [[1.0, 0.5], [0.5, 1.25]]
        """
        pull = H @ self.vector
        here = float(self.vector @ pull)
        return np.asarray((self.curvature - here) / here**2 * np.outer(pull, pull))

    def rate(self, first: float, noise_sd: float) -> float:
        """Return by how much the log curvature has surely fallen from the start to the point.

        ``first`` is the curvature along the path that was found at the start, and ``noise_sd`` the
        standard deviation of its noise.

        >>> [round(Path(np.ones(1), now, 0.0).rate(1.0, 0.1), 2) for now in (0.4, 1.0, 2.4)]
        [0.69, 0.0, -0.69]
        """
        margin = DEFAULTS.sure * float(np.hypot(noise_sd, self.noise_sd))
        surely = min(max(self.curvature, first - margin), first + margin)
        return float(np.log(surely / self.curvature)) if surely > 0 else 0.0

    def towards_mode(self, rate: float, slope: float, prior: float) -> "Path":
        """Average the curvature from the point to where the posterior's slope along the path is 0.

        It goes on to fall at the ``rate`` at which it has fallen so far: at t paths from the point
        it is p'Hp exp(-rate t). ``slope`` and ``prior`` are the posterior's slope and the prior's
        precision along p. The mode is taken to be between the start and the end of a path twice as
        long.

        >>> path = Path(np.ones(1), 1.0, 0.1)
        >>> [round(path.towards_mode(rate, 0.5, 0.0).curvature, 2) for rate in (1.0, 0.0, -1.0)]
        [0.72, 1.0, 1.23]
        """
        if not np.isfinite([self.curvature, rate, slope, prior]).all():
            raise FloatingPointError("the posterior along the path is not finite")

        def slope_at(t: float) -> float:
            return slope - (self.curvature * float(exprel(-rate * t)) + prior) * t

        least, most = -1.0, DEFAULTS.longest_beyond - 1
        if slope_at(least) < 0:
            end = least
        else:
            end = most if slope_at(most) > 0 else brentq(slope_at, least, most)
        return self._replace(curvature=self.curvature * float(exprel(-rate * end)))
