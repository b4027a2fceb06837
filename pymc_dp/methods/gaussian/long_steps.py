"""Steps to a mode that is far away, where a gradient tells the direction and not the distance.

Clipped scores have a longest sum, and Newton's step down in a log variance is never longer than 1,
however far the mode is. Curvatures, too, are those of the point and not of the path.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from pymc_dp.methods.gaussian.defaults import DEFAULTS

LEAST_DAMPING = -30.0  # as a logarithm, and how far it may be off by rounding
ROUNDING = 1e-6
PriorGradient = Callable[[np.ndarray], np.ndarray]


def next_reach(reach: float, gradient: np.ndarray, noise_sd: float) -> float:
    """Return how many whitened units the next step may be long: after a long slope twice as many.

    ``gradient`` is the whitened one of the average record, (d,), and ``noise_sd`` its standard
    deviation. Scores are clipped at norms that grow with the reach, or the gradient could not tell
    that the mode is further away.

    >>> next_reach(1.0, np.array([0.2, -1.3]), noise_sd=0.1), next_reach(4.0, np.ones(1), 0.1)
    (2.0, 1.0)
    """
    length = float(np.abs(gradient).max())
    if length > max(reach, DEFAULTS.far_in_noise * noise_sd):
        return 2 * reach
    return max(1.0, min(reach, length))


def is_far(gradient: np.ndarray, noise_sd: float) -> bool:
    """Whether a whitened gradient of the average record, (d,), is that of a mode far away.

    It is longer than a unit, as the first steps are at most.
    """
    least = max(1.0, DEFAULTS.far_in_noise * noise_sd)
    return float(np.abs(gradient).max()) > least


def shortened(
    gradient: np.ndarray, curvature: np.ndarray, whitening: np.ndarray, reach: float
) -> np.ndarray:
    """Return Levenberg and Marquardt's step for a ``gradient``, (d,), that is long.

    The gradient is the whitened one of the average record, and K the whitened ``curvature``,
    (d, d). The step (K + lambda I)^-1 g goes ``reach`` units at most in every whitened direction.

    >>> together = np.full((2, 2), 5.0) + np.eye(2)
    >>> shortened(np.full(2, 5.5), together, np.eye(2), reach=0.25).round(3)
    array([0.25, 0.25])
    """
    length = np.linalg.norm(gradient)
    if not np.isfinite(length):
        raise FloatingPointError("the gradient is not finite")
    values, vectors = np.linalg.eigh(curvature)
    values = np.maximum(values, 0.0)
    along = vectors.T @ gradient

    def step(damping: float) -> np.ndarray:
        return np.asarray(vectors @ (along / (values + damping)))

    def excess(log_damping: float) -> float:
        return float(np.abs(step(np.exp(log_damping))).max()) / reach - 1

    most = np.log(length / reach) + ROUNDING
    if excess(LEAST_DAMPING) <= 0:
        return np.asarray(whitening.T @ step(np.exp(LEAST_DAMPING)))
    return np.asarray(whitening.T @ step(np.exp(brentq(excess, LEAST_DAMPING, most))))


class LatestStep(NamedTuple):
    """The latest step, and what it leaves of the path to the mode; each by latents, (d,)."""

    step: np.ndarray
    wanted: np.ndarray  # the step before it was limited, in units of each latent
    unfinished: np.ndarray  # that step where it was long, else 0: so far the mode may still be

    @classmethod
    def of(cls, step: np.ndarray) -> "LatestStep":
        """A step that was not limited, of units of 1."""
        return cls(step, step, step)

    def then(
        self,
        step: np.ndarray,
        gradient: np.ndarray,
        unit: np.ndarray,
        noise_sd: float,
        prior_gradient: PriorGradient,
        reach: float,
        weakly_correlated: np.ndarray,
    ) -> "LatestStep":
        """Limit the next step to so many units as its slope has, or double the last one.

        That is one unit at least, and ``reach`` at most: a latent whose own mode is near does not
        go far because that of another one is.

        Only ``weakly_correlated`` latents, (d,), are limited or doubled one by one. Of predictors
        that are nearly the same, steps are long and cancel each other in what they add up to: those
        are shortened all alike.

        Where the step of a latent is as long as the last time, it goes twice as far, unless the
        prior would pull it back from there more than all that pulls it on. ``gradient`` is that of
        the average record, ``noise_sd`` its standard deviation, and ``prior_gradient`` that of the
        prior after a step; all in units.

        >>> last = LatestStep.of(np.array([0.0, -0.4, 0.4]))
        >>> g, all_of_them = np.full(3, -0.4), np.full(3, True)
        >>> last.then(g, g, np.ones(3), 0.0, np.zeros_like, 1.0, all_of_them).step
        array([-0.4, -0.8, -0.4])
        """
        wanted, longest = step / unit, np.clip(np.abs(gradient), 1.0, reach) * unit
        far = np.abs(wanted) > max(DEFAULTS.far, DEFAULTS.far_in_noise * noise_sd)
        alike = 1 / np.max(np.abs(step / longest)[~weakly_correlated], initial=1.0)
        single = np.where(weakly_correlated, np.clip(step, -longest, longest), alike * step)
        twice = np.sign(step) * np.minimum(2 * np.abs(self.step), DEFAULTS.longest_doubled * unit)
        doubles = (
            weakly_correlated & far & self._no_nearer(wanted) & (np.abs(twice) > np.abs(single))
        )
        tried = np.where(doubles, twice, single)
        pulled_back = np.abs(prior_gradient(tried)) > np.abs(gradient)
        limited = np.where(doubles & pulled_back, single, tried)
        return LatestStep(limited, wanted, np.where(far, step, 0.0))

    def _no_nearer(self, wanted: np.ndarray) -> np.ndarray:
        """Which latents want to go on as far as before, although they have made a step."""
        along = np.sign(self.wanted) * wanted
        as_far = along >= DEFAULTS.still_as_long * np.abs(self.wanted)
        return np.asarray((along > 0) & as_far & (self.unfinished != 0))
