"""What releases say about a posterior's mode, and how uncertain that is: N(m, C)."""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from pymc_dp.methods.gaussian.belief import no_wider, symmetric


class Mode(NamedTuple):
    """What is known of the mode: N(mean, covariance)."""

    mean: np.ndarray
    covariance: np.ndarray

    def update(
        self,
        slope: np.ndarray,
        total: np.ndarray,
        noise: np.ndarray,
        damping: Callable[[np.ndarray], float] = lambda _: 1.0,
        number: float = 1.0,
    ) -> "Update":
        """Learn from s = (H + P)(mode - mean) + noise.

        ``total`` is H + P, and ``noise`` the covariance of all that is noise in s. The step is
        multiplied by its ``damping``: what that leaves stays unknown, as far as the mode may be
        within a whitened unit of the average of ``number`` records.
        """
        gain, squared = self._gain(slope, total, noise)
        covariance, share = self._after(gain, total, noise), damping(gain @ slope)
        if share < 1:
            near = self._replace(covariance=no_wider(self.covariance, total / number))
            whole, _ = near._gain(slope, total, noise)
            left = near._after(share * whole, total, noise) - near._after(whole, total, noise)
            covariance = symmetric(covariance + left)
        # rounding may make it negative where curvatures differ by more digits than numbers have
        surprise = float(np.maximum(0.0, squared)) / len(slope)
        return Update(share * gain @ slope, covariance, surprise, share * gain, share)

    def _gain(
        self, slope: np.ndarray, total: np.ndarray, noise: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return by what a slope is multiplied, (d, d), and its squared length over its spread."""
        spread = symmetric(total @ self.covariance @ total + noise)
        gain = np.linalg.solve(spread, total @ self.covariance).T
        return gain, float(slope @ np.linalg.solve(spread, slope))

    def _after(self, gain: np.ndarray, total: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the covariance after a step of this gain, (d, d)."""
        left = np.eye(len(gain)) - gain @ total
        return symmetric(left @ self.covariance @ left.T + gain @ noise @ gain.T)

    def widened_along(
        self,
        path: np.ndarray,
        slope: np.ndarray,
        total: np.ndarray,
        noise: np.ndarray,
        prior: np.ndarray,
    ) -> Self:
        """Widen the direction of the path so far, (d,), if the slope leads further on along it.

        It does so by more than its standard deviation where the curvature has fallen on the path:
        earlier rounds took the mode to be nearer than it is. The variance along the path grows as
        far as it makes the slope likely, and not beyond that of a prior of this precision, (d, d).

        >>> near = Mode(np.array([3.0]), np.array([[0.01]]))
        >>> def widened(slope, wide=1e-4):
        ...     one = np.eye(1)
        ...     other = near.widened_along(near.mean, slope * one[0], one, 0.01 * one, wide * one)
        ...     return other.covariance
        >>> widened(1.0).round(2), widened(0.1), widened(-1.0)
        (array([[0.99]]), array([[0.01]]), array([[0.01]]))
        """
        with np.errstate(over="raise"):  # a run that is lost says so
            along = total @ path
            leads_on = float(slope @ path)
            more = leads_on**2 - float(along @ self.covariance @ along + path @ noise @ path)
        if leads_on <= 0 or more <= 0:
            return self
        wider = more / float(path @ along) ** 2 * np.outer(path, path)
        return self._replace(covariance=no_wider(symmetric(self.covariance + wider), prior))


class Update(NamedTuple):
    """How a slope moves the mode."""

    step: np.ndarray
    covariance: np.ndarray
    surprise: float  # mean square of the slope over its expectation: about 1
    gain: np.ndarray  # (d, d): the step is this times the slope
    damping: float  # how much of the undamped step the step is
