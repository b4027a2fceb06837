"""What releases say about a posterior's mode, and how uncertain that is: N(m, C)."""

from typing import NamedTuple, Self

import numpy as np

from pymc_dp.methods.gaussian.belief import no_wider, symmetric


class Mode(NamedTuple):
    """What is known of the mode: N(mean, covariance)."""

    mean: np.ndarray
    covariance: np.ndarray

    def update(
        self, slope: np.ndarray, total: np.ndarray, cautious: np.ndarray, noise: np.ndarray
    ) -> "Update":
        """Learn from s = (H + P)(mode - mean) + noise.

        The step is what ``cautious``, H + P or more, says; what it leaves unknown follows from
        ``total``, which is H + P. ``noise`` is the covariance of all that is noise in s.
        """
        spread = symmetric(cautious @ self.covariance @ cautious + noise)
        gain = np.linalg.solve(spread, cautious @ self.covariance).T
        step = gain @ slope
        left = np.eye(len(slope)) - gain @ total
        covariance = symmetric(left @ self.covariance @ left.T + gain @ noise @ gain.T)
        squared = float(slope @ np.linalg.solve(spread, slope))
        # rounding may make it negative where curvatures differ by more digits than numbers have
        return Update(step, covariance, float(np.maximum(0.0, squared)) / len(slope), gain)

    def widened_along(
        self,
        path: np.ndarray,
        slope: np.ndarray,
        total: np.ndarray,
        noise: np.ndarray,
        prior: np.ndarray,
        threshold: float,
    ) -> Self:
        """Widen the direction of the path so far, (d,), where the slope leads further on along it.

        It does so more than was likely where the curvature has fallen on the path: earlier rounds
        took the mode to be nearer than it is. Where the squared slope along the path exceeds
        ``threshold`` times its expectation, the variance grows as far as it makes the slope likely,
        and not beyond the prior's.

        >>> near = Mode(np.array([3.0]), np.array([[0.01]]))
        >>> one, wide = np.eye(1), 1e-4 * np.eye(1)
        >>> def widened(slope):
        ...     return near.widened_along(near.mean, slope * one[0], one, 0.01 * one, wide, 2.25)
        >>> widened(1.0).covariance.round(2), widened(0.1).covariance, widened(-1.0).covariance
        (array([[0.99]]), array([[0.01]]), array([[0.01]]))
        """
        with np.errstate(over="raise"):  # a run that is lost says so
            along = total @ path
            leads_on = float(slope @ path)
            expected = float(along @ self.covariance @ along + path @ noise @ path)
        if leads_on <= 0 or leads_on**2 <= threshold * expected:
            return self
        more = (leads_on**2 - expected) / float(path @ along) ** 2
        covariance = symmetric(self.covariance + more * np.outer(path, path))
        return self._replace(covariance=no_wider(covariance, prior))


class Update(NamedTuple):
    """How a slope moves the mode."""

    step: np.ndarray
    covariance: np.ndarray
    surprise: float  # mean square of the slope over its expectation: about 1
    gain: np.ndarray  # (d, d): the step is this times the slope
