"""Averages of what is released along a fit, and the privacy noise that is left in them."""

from typing import Any, NamedTuple, Self

import numpy as np


def blend[Parts: tuple](old: Parts, new: Parts, of_old: float, of_new: float) -> Parts:
    """Combine two values of the same sums entry by entry."""
    make: Any = getattr(type(old), "_make", tuple)
    return make(np.asarray(of_old * a + of_new * b) for a, b in zip(old, new, strict=True))


def number_of(declared: int | None, released: np.ndarray, variance: np.ndarray) -> float:
    """Take the declared number of records, else the released one, as far as it is known."""
    return float(declared or max(float(released), float(variance) ** 0.5, 1.0))


class Average(NamedTuple):
    """A weighted average A of the means m that a fit passes through.

    Every step forgets a share h of the noise in m and adds fresh noise, so the noise of m and of A
    is correlated.

    Attributes
    ----------
    mean : (d,)
        A.
    of_latest, shared, noise : (d, d)
        Covariances of the noise: on m, between m and A, and on A; or their diagonals.
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

    def add(
        self, mean: np.ndarray, fresh: np.ndarray, step: float | np.ndarray, weight: float
    ) -> Self:
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
