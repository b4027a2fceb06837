"""Averages of the means along a fit, and the privacy noise that is left in them."""

from typing import NamedTuple, Self

import numpy as np


class Average(NamedTuple):
    """A weighted average A of the means m that a fit passes through.

    Every step forgets a share h of the noise in m and adds fresh noise, so the noise of m and of A
    is correlated.

    Attributes
    ----------
    mean : (d,)
        A.
    of_latest, shared, noise : (d, d)
        Covariances of the noise: on m, between m and A, and on A.
    """

    mean: np.ndarray
    of_latest: np.ndarray
    shared: np.ndarray
    noise: np.ndarray

    @classmethod
    def start(cls, mean: np.ndarray) -> Self:
        """Start at a mean without noise."""
        nothing = np.zeros((len(mean), len(mean)))
        return cls(mean, nothing, nothing, nothing)

    def add(self, mean: np.ndarray, fresh: np.ndarray, step: float, weight: float) -> Self:
        """Add the next mean, whose step of length h brought noise of covariance h^2 ``fresh``.

        >>> average = Average.start(np.zeros(1))
        >>> for t in range(4):  # independent noise, even weights
        ...     average = average.add(np.ones(1), np.eye(1), step=1.0, weight=1 / (t + 1))
        >>> average.noise
        array([[0.25]])
        """
        kept, old = 1 - step, 1 - weight
        of_latest = kept**2 * self.of_latest + step**2 * fresh
        shared = old * kept * self.shared + weight * of_latest
        noise = old**2 * self.noise + 2 * weight * old * kept * self.shared + weight**2 * of_latest
        return type(self)(self.mean + weight * (mean - self.mean), of_latest, shared, noise)
