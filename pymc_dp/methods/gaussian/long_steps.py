"""Steps to a mode that is far away, where a slope tells the direction and not the distance.

Clipped scores have a longest sum, and Newton's step down in a log variance is never longer than 1,
however far the mode is. Curvatures, too, are those of the point and not of the way.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dp.methods.gaussian.defaults import DEFAULTS

PriorPull = Callable[[np.ndarray], np.ndarray]


def along_slope(newton: np.ndarray, slope: np.ndarray, whitening: np.ndarray) -> np.ndarray:
    """Replace Newton's step where the whitened slope of the average record, (d,), is long.

    An error of the curvature then would turn Newton's step in all other directions, so each
    whitened direction moves by itself.
    """
    longest = DEFAULTS.longest_step
    if np.abs(slope).max() <= longest:
        return newton
    return np.asarray(whitening.T @ np.clip(slope, -longest, longest))


class Way(NamedTuple):
    """A step by latents, and Newton's step."""

    step: np.ndarray  # (d,)
    newton: np.ndarray  # (d,): the step before it was limited, in units of each latent
    left: np.ndarray  # (d,): that step where it was long, else 0: so far the mode may still be

    @classmethod
    def of(cls, step: np.ndarray) -> "Way":
        """A step that was not limited, of units of 1."""
        return cls(step, step, step)

    def then(
        self, step: np.ndarray, slope: np.ndarray, unit: np.ndarray, noise: float, prior: PriorPull
    ) -> "Way":
        """Limit the next step to one unit, or double the last one.

        Where Newton's step of a latent is as long as the last time, it goes twice as far, unless
        the prior would pull it back from there more than all that pulls it on. ``slope`` is that of
        the average record, ``noise`` its standard deviation, and ``prior`` the prior's slope after
        a step; all in units.

        >>> last = Way.of(np.array([0.0, -0.4, 0.4]))
        >>> last.then(np.full(3, -0.4), np.full(3, -0.4), np.ones(3), 0.0, np.zeros_like).step
        array([-0.4, -0.8, -0.4])
        """
        newton, longest = step / unit, DEFAULTS.longest_step * unit
        once = np.clip(step, -longest, longest)
        twice = np.sign(step) * np.minimum(2 * np.abs(self.step), DEFAULTS.longest_doubled * unit)
        far = np.abs(newton) > max(DEFAULTS.far, DEFAULTS.far_in_noise * noise)
        fallen = np.abs(newton) < DEFAULTS.still_as_long * np.abs(self.newton)
        again = (newton * self.newton > 0) & ~fallen & far & (self.left != 0)
        again &= np.abs(twice) > np.abs(once)
        doubled = np.where(again, twice, once)
        beyond = np.abs(prior(doubled)) > np.abs(slope)
        return Way(np.where(again & beyond, once, doubled), newton, np.where(far, step, 0.0))
