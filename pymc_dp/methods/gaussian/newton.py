"""One Newton step from a private slope, and how sure its end is."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dp.methods.gaussian.belief import Curvature, CurvatureSpectrum, Mode, symmetric
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.long_steps import Way, along_slope


class Slope(NamedTuple):
    """What a round says of the mode: s = (H + P)(mode - point) + noise."""

    value: np.ndarray  # s, (d,)
    noise: np.ndarray  # covariance of its privacy noise, (d, d)
    curvature: Curvature  # H, uncertain
    spectrum: CurvatureSpectrum  # of H
    prior: np.ndarray  # P, (d, d)
    of_prior: Callable[[np.ndarray], np.ndarray]  # point -> gradient of the log prior
    whitening: np.ndarray  # W, (d, d)
    number: float  # of records

    @property
    def likelihood(self) -> np.ndarray:
        """The curvature of the log likelihood, with a value for what noise hides."""
        return self.spectrum.matrix(DEFAULTS.floor_in_steps)

    @property
    def unit(self) -> np.ndarray:
        """A whitened unit by latents, (d,): at most some standard deviations of the prior."""
        of_prior = np.diag(self.prior) / DEFAULTS.prior_sds**2
        unit: np.ndarray = (
            1 / (np.diag(self.likelihood + self.prior) / self.number + of_prior)
        ) ** 0.5
        return unit

    def bend(self, squared_length: float) -> float:
        """How much of a slope changes along a step, from 0 to 1; lengths are by the curvature."""
        return min(1.0, 4 * DEFAULTS.nonlinearity**2 * squared_length / self.number)

    @property
    def noise_of_unit(self) -> float:
        """Standard deviation of the noise on the average record's whitened slope."""
        W = self.whitening
        return float((np.trace(W @ self.noise @ W.T) / len(W)) ** 0.5 / self.number)


class Step(NamedTuple):
    """Where a round has moved the mode."""

    mode: Mode
    way: Way
    bend: float  # of the slope along the step


def newton_step(mode: Mode, way: Way, slope: Slope) -> Step:
    """Update the mode.

    The step is that of a slope that falls linearly; how sure its end is takes into account that the
    slope bends, the more so the longer the step is.
    """
    s, H, Q = slope.value, slope.likelihood, slope.curvature.noise
    d, total = len(s), H + slope.prior
    unknown = (np.trace(Q @ mode.covariance) * Q + Q @ mode.covariance @ Q) / 2
    noise = symmetric(slope.noise + unknown)
    linear = mode.update(s, total, noise)
    step = along_slope(linear.step, slope.whitening @ s / slope.number, slope.whitening)
    far = float(step @ H @ step)
    spread = min(1.0, linear.surprise) * float(np.trace(H @ linear.covariance))
    along = np.outer(H @ step, H @ step) + far / d * H
    bent = slope.bend(far + spread)
    noise = symmetric(noise + bent * (H @ linear.covariance @ H + along / 2))
    covariance = _covariance(mode, slope, total, noise, slope.bend(far))
    way = _limited(way, step, mode, slope)
    moved = Mode(mode.mean + way.step, covariance)
    return Step(moved, way, slope.bend(float(way.step @ H @ way.step)))


def _covariance(
    mode: Mode, slope: Slope, total: np.ndarray, noise: np.ndarray, kept: float
) -> np.ndarray:
    """Learn from the slope; far from the mode it says which way to go, and little how far it is."""
    hidden = 6 * slope.spectrum.hidden.mean()
    surprise = float(np.interp(hidden, [0, 1], DEFAULTS.surprise))
    doubted = mode.doubted(slope.value, total, noise, slope.prior, surprise, DEFAULTS.most_growth)
    after = doubted.update(slope.value, total, noise).covariance
    covariance = kept * doubted.covariance + (1 - kept) * after
    regular = 1e-10 * np.trace(covariance) / len(total)
    return np.asarray(covariance + regular * np.eye(len(total)))


def _limited(way: Way, step: np.ndarray, mode: Mode, slope: Slope) -> Way:
    unit, N = slope.unit, slope.number

    def pull_of_prior(step: np.ndarray) -> np.ndarray:
        return np.asarray(unit * slope.of_prior(mode.mean + step) / N)

    return way.then(step, unit * slope.value / N, unit, slope.noise_of_unit, pull_of_prior)
