"""Averages of released values along a fit, and the privacy noise that remains in them."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np


class NoisyAverage[Values](NamedTuple):
    """A running average of released sums, and the variance of the noise that remains in it."""

    value: Values
    variance: Values  # of the noise on the entries of each array

    def add(self, latest: Values, noise_variance: Values, weight: Any) -> Self:
        """Give a new release, whose noise is independent, this weight in the average.

        A weight is a number in [0, 1], or one for each part of ``value``.

        >>> average = NoisyAverage(np.array([4.0]), np.array([0.0]))
        >>> average.add(np.array([8.0]), np.array([1.0]), weight=0.5)
        NoisyAverage(value=array([6.]), variance=array([0.25]))
        """
        return type(self)(
            _combine(lambda a, b, w: (1 - w) * a + w * b, self.value, latest, weight),
            _combine(
                lambda a, b, w: (1 - w) ** 2 * a + w**2 * b, self.variance, noise_variance, weight
            ),
        )


def _combine(combine: Callable[[Any, Any, Any], Any], old: Any, new: Any, weight: Any) -> Any:
    """Combine arrays, or the entries of tuples and dicts of them, and keep the container."""
    if isinstance(old, dict):
        each = weight if isinstance(weight, dict) else dict.fromkeys(old, weight)
        return {name: _combine(combine, old[name], new[name], each[name]) for name in old}
    if isinstance(old, tuple):
        weights = weight if isinstance(weight, tuple) else (weight,) * len(old)
        make = getattr(type(old), "_make", tuple)
        return make(_combine(combine, *x) for x in zip(old, new, weights, strict=True))
    return np.asarray(combine(old, new, weight))


def number_of(
    declared: int | None, released: float | np.ndarray, variance: float | np.ndarray
) -> float:
    """Take the declared number of records, else the released one, as far as it is known."""
    return float(declared or max(float(released), float(variance) ** 0.5, 1.0))


class Average(NamedTuple):
    """A weighted average A of the means m that a fit passes through.

    Every step forgets a share h of the noise in m and adds fresh noise, so the noise of m and of A
    is correlated.
    """

    mean: np.ndarray  # A
    # of_latest, shared, noise: covariances of the noise: on m, between m and A, and on A; or
    # their diagonals
    of_latest: np.ndarray
    shared: np.ndarray
    noise: np.ndarray

    @classmethod
    def start(cls, mean: np.ndarray) -> Self:
        """Start at a mean without noise."""
        zeros = np.zeros((len(mean), len(mean)))
        return cls(mean, zeros, zeros, zeros)

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
