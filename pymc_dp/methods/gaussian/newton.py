"""One Newton step from a private gradient, and how sure its end is."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dp.methods.gaussian.belief import (
    Curvature,
    CurvatureSpectrum,
    Mode,
    Update,
    at_least_nothing,
    symmetric,
    weakly_correlated,
)
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.long_steps import Way, along_slope


class LocalPosterior(NamedTuple):
    """What a round says of the log posterior near the point: s = (H + P)(mode - point) + noise."""

    gradient: np.ndarray  # s, (d,)
    gradient_noise: np.ndarray  # covariance of its privacy noise, (d, d)
    believed: Curvature  # H, with noise for all that is not known of it
    spectrum: CurvatureSpectrum  # of H, the curvature of the log likelihood
    likelihood_curvature: np.ndarray  # H, (d, d)
    step_curvature: np.ndarray  # H or more, (d, d): what steps go by
    prior_precision: np.ndarray  # P, the curvature of the log prior, (d, d)
    prior_at_start: np.ndarray  # the same where the rounds began, (d, d)
    prior_gradient: Callable[[np.ndarray], np.ndarray]  # point -> gradient of the log prior
    whitening: np.ndarray  # W, (d, d)
    number: float  # of records
    reach: float  # how many whitened units a step may be long

    @property
    def total_curvature(self) -> np.ndarray:
        """H + P."""
        return np.asarray(self.likelihood_curvature + self.prior_precision)

    @property
    def cautious_total(self) -> np.ndarray:
        """H + P, or more: what steps go by."""
        return np.asarray(self.step_curvature + self.prior_precision)

    @property
    def unit(self) -> np.ndarray:
        """A whitened unit by latents, (d,): at most some standard deviations of the prior.

        They are no longer than at the start. A prior with heavy tails flattens out, and a step by
        its curvature there would go to the end of the line.
        """
        precision = np.maximum(np.diag(self.prior_precision), np.diag(self.prior_at_start))
        least = precision / DEFAULTS.prior_sds**2
        unit: np.ndarray = (1 / (np.diag(self.total_curvature) / self.number + least)) ** 0.5
        return unit

    @property
    def whitened_gradient(self) -> np.ndarray:
        """The whitened gradient of the average record, (d,)."""
        return np.asarray(self.whitening @ self.gradient / self.number)

    @property
    def whitened_curvature(self) -> np.ndarray:
        """The whitened curvature of the average record, (d, d)."""
        W = self.whitening
        return np.asarray(W @ self.total_curvature @ W.T / self.number)

    @property
    def whitened_noise_sd(self) -> float:
        """Standard deviation of the noise on `whitened_gradient`, averaged over directions."""
        W = self.whitening
        return float((np.trace(W @ self.gradient_noise @ W.T) / len(W)) ** 0.5 / self.number)

    def squared_length(self, step: np.ndarray) -> float:
        """The squared length of a step, by the curvature of the likelihood."""
        return float(step @ self.likelihood_curvature @ step)

    def nonlinearity(self, squared_length: float) -> float:
        """How much of the curvature may change along a step of this length, from 0 to 1."""
        return min(1.0, 4 * DEFAULTS.nonlinearity**2 * squared_length / self.number)


class Step(NamedTuple):
    """Where a round has moved the mode."""

    mode: Mode
    way: Way
    nonlinearity: float  # of the gradient along the step


def newton_step(mode: Mode, way: Way, local: LocalPosterior) -> Step:
    """Update the mode.

    The step is that of a gradient that falls linearly; how sure its end is takes into account that
    the gradient bends, the more so the longer the step is.
    """
    noise = _noise_with_unknown_curvature(mode, local)
    linear = mode.update(local.gradient, local.total_curvature, local.cautious_total, noise)
    step = along_slope(
        linear.step,
        local.whitened_gradient,
        local.whitened_curvature,
        local.whitening,
        local.reach,
    )
    noise = symmetric(noise + _noise_of_bending(step, linear, local))
    covariance = _covariance(mode, local, noise, local.nonlinearity(local.squared_length(step)))
    way = _limited(way, step, mode, local)
    bend = local.nonlinearity(local.squared_length(way.step))
    covariance = at_least_nothing(covariance, local.prior_precision)
    return Step(Mode(mode.mean + way.step, covariance), way, bend)


def _noise_with_unknown_curvature(mode: Mode, local: LocalPosterior) -> np.ndarray:
    """Add to the gradient's noise what errors of H would do to it, on the way to the mode."""
    Q, C = local.believed.noise, mode.covariance
    return symmetric(local.gradient_noise + (np.trace(Q @ C) * Q + Q @ C @ Q) / 2)


def _noise_of_bending(step: np.ndarray, linear: Update, local: LocalPosterior) -> np.ndarray:
    """How far the gradient may be from linear, along a step and in the spread around its end.

    Half of the step's part lies along the step, and half in all directions alike: a bend may turn
    the gradient.
    """
    H, squared_length = local.likelihood_curvature, local.squared_length(step)
    # where the gradient is smaller than expected, the mode is nearer than its spread says
    spread = min(1.0, linear.surprise) * float(np.trace(H @ linear.covariance))
    of_step = np.outer(H @ step, H @ step) + squared_length / len(step) * H
    return np.asarray(
        local.nonlinearity(squared_length + spread) * (H @ linear.covariance @ H + of_step / 2)
    )


def _covariance(mode: Mode, local: LocalPosterior, noise: np.ndarray, far: float) -> np.ndarray:
    """Learn from the gradient, but keep the covariance as far as the mode is ``far``, from 0 to 1.

    There the gradient says which way to go, and little how far it is.
    """
    gradient, total = local.gradient, local.total_curvature
    doubted = mode.doubted(
        gradient,
        total,
        noise,
        local.prior_precision,
        surprise=_surprise(local.spectrum),
        most=DEFAULTS.most_growth,
    )
    near = doubted.update(gradient, total, local.cautious_total, noise).covariance
    covariance = far * doubted.covariance + (1 - far) * near
    regular = 1e-10 * np.trace(covariance) / len(total)  # keeps covariances positive definite
    return np.asarray(covariance + regular * np.eye(len(total)))


def _surprise(spectrum: CurvatureSpectrum) -> float:
    """Squared gradients so many times their expectation are doubted; fewer if noise hides much."""
    hidden = 6 * spectrum.hidden.mean()  # a sixth of the directions counts as all
    return float(np.interp(hidden, [0, 1], DEFAULTS.surprise))


def _limited(way: Way, step: np.ndarray, mode: Mode, local: LocalPosterior) -> Way:
    """Limit the step of every latent, in its own units."""
    unit, N = local.unit, local.number

    def prior_gradient(step: np.ndarray) -> np.ndarray:
        return np.asarray(unit * local.prior_gradient(mode.mean + step) / N)

    gradient = unit * local.gradient / N
    noise_sd, reach = local.whitened_noise_sd, local.reach
    weak = weakly_correlated(local.total_curvature)
    return way.then(step, gradient, unit, noise_sd, prior_gradient, reach, weak)
