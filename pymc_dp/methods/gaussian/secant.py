"""What the scores at both ends of a step say of the curvature between them."""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.path import Path


class Secant(NamedTuple):
    """A gradient, and the step that was made from where it was released."""

    gradient: np.ndarray  # (d,)
    noise: np.ndarray  # covariance of its privacy noise, (d, d)
    step: np.ndarray  # (d,)
    reach: float  # of the round: norms that scores are clipped to grow with it

    def missing(self, total: np.ndarray, gradient: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the curvature along the step that a believed one, (d, d), lacks.

        From one end of a step d to the other the gradient falls by Hd on average, where Newton's
        step takes it to fall by what H is at one end. Steps that go too far by that would go back
        and forth.

        >>> there = Secant(np.ones(2), 1e-9 * np.eye(2), np.array([1.0, 0.0]), 1.0)
        >>> there.missing(np.eye(2), np.array([-2.0, 1.0]), 1e-9 * np.eye(2)).round(3)
        array([[2., 0.],
               [0., 0.]])
        """
        d = self.step
        noise_sd = max(float(d @ (self.noise + noise) @ d), 0.0) ** 0.5
        path = Path(d, float((self.gradient - gradient) @ d), noise_sd)
        believed = float(d @ (total @ d))
        if not path.curvature - believed > DEFAULTS.sure * noise_sd or believed <= 0:
            return np.zeros_like(total)
        return path.rank_one_change(total)
