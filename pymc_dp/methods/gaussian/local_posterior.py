"""What a round says of the log posterior near its point."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.methods.gaussian.belief import Curvature, CurvatureSpectrum
from pymc_dp.methods.gaussian.curvatures import Curvatures, believed_curvature
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.group_curvature import Groups
from pymc_dp.methods.gaussian.outcome_scale import OutcomeScale
from pymc_dp.methods.gaussian.path import Path
from pymc_dp.methods.gaussian.release import Release
from pymc_dp.methods.gaussian.state import Known, State, prior_precision


class LocalPosterior(NamedTuple):
    """What a round says of the log posterior near the point: s = (H + P)(mode - point) + noise."""

    gradient: np.ndarray  # s, (d,)
    gradient_noise: np.ndarray  # covariance of its privacy noise, (d, d)
    held: np.ndarray  # which latents keep still, (d,): their score is left out
    believed: Curvature  # H, with noise for all that is not known of it
    spectrum: CurvatureSpectrum  # of H, the curvature of the log likelihood
    likelihood_curvature: np.ndarray  # H, (d, d)
    independent_diagonal: np.ndarray  # of H as the first release or the model lets expect, (d,)
    along_last_step: np.ndarray  # what is missing of it along the last step, (d, d)
    prior_precision: np.ndarray  # P, the curvature of the log prior, (d, d)
    prior_at_start: np.ndarray  # the same where the rounds began, (d, d)
    prior_gradient: Callable[[np.ndarray], np.ndarray]  # point -> gradient of the log prior
    whitening: np.ndarray  # W, (d, d)
    number: float  # of records
    reach: float  # how many whitened units a step may be long
    point: np.ndarray  # (d,)
    # latents with which it is not known how the curvature changes, (d,)
    unknown_change: np.ndarray
    scale: OutcomeScale | None  # of the outcomes, to step in
    hidden_scale: OutcomeScale | None  # one of which the first release shows too little for that
    groups: Groups | None

    @property
    def total_curvature(self) -> np.ndarray:
        """H + P."""
        return np.asarray(self.likelihood_curvature + self.prior_precision)

    def units(self, step: np.ndarray, weakly_correlated: np.ndarray) -> np.ndarray:
        """Return a unit of steps by latents, (d,): a whitened one where the curvature changes.

        Where it is constant Newton's step is exact. Units are at most some standard deviations of
        the prior, and no longer than at the start. A prior with heavy tails flattens out, and a
        step by its curvature there would go to the end of the line. Where the prior's curvature
        exceeds that at the start they are shorter, but for latents whose step the prior's gradient
        favours. Those of latents that are not ``weakly_correlated``, (d,), may be longer: such
        steps cancel each other.
        """
        at_start = np.diag(self.prior_at_start)
        goes_back = step * self.prior_gradient(self.point) > 0
        precision = np.maximum(np.where(goes_back, 0.0, np.diag(self.prior_precision)), at_start)
        sds = np.where(weakly_correlated, 1.0, DEFAULTS.prior_sds_together)
        least = precision / sds**2
        of_average = np.where(self.unknown_change, np.diag(self.total_curvature) / self.number, 0.0)
        unit: np.ndarray = (1 / (of_average + least)) ** 0.5
        return unit

    def whitened(self, gradient: np.ndarray) -> np.ndarray:
        """Return a whitened gradient of the average record, (d,)."""
        return np.asarray(self.whitening @ gradient / self.number)

    @property
    def whitened_curvature(self) -> np.ndarray:
        """The whitened curvature of the average record, (d, d)."""
        W = self.whitening
        return np.asarray(W @ self.total_curvature @ W.T / self.number)

    @property
    def whitened_noise_sd(self) -> float:
        """Standard deviation of the noise on the whitened gradient, averaged over directions."""
        W = self.whitening
        return float((np.trace(W @ self.gradient_noise @ W.T) / len(W)) ** 0.5 / self.number)

    def squared_length(self, step: np.ndarray) -> float:
        """The squared length of a step, by the curvature of the likelihood."""
        return float(step @ self.likelihood_curvature @ step)

    def without_scale(self, step: np.ndarray) -> np.ndarray:
        """Return a step without that in the scale of outcomes, which is set by residuals."""
        if self.scale is None:
            return step
        of_others = step.copy()
        of_others[self.scale.latent] = 0.0
        return of_others

    def bent(self, step: np.ndarray) -> np.ndarray:
        """Return the part of a step along which it is not known how the curvature changes."""
        return np.where(self.unknown_change, step, 0.0)

    def bent_spread(self, covariance: np.ndarray) -> float:
        """Return the mean squared length of that part of steps of this covariance, (d, d)."""
        both = np.outer(self.unknown_change, self.unknown_change)
        return float(np.trace((self.likelihood_curvature * both) @ covariance))

    def damping(self, step: np.ndarray) -> float:
        """How much of a Newton step to go, as its curvature may be larger than what is believed.

        Along the last step it surely is, by what the scores at both ends say; and it may change
        along this one (Nesterov 2004, section 4.1.5). Where the reach is more than a unit, it has
        not: steps go as far as that, by the rule of Levenberg and Marquardt.
        """
        believed, more = (
            float(step @ H @ step) for H in (self.total_curvature, self.along_last_step)
        )
        change = change_along(self.squared_length(self.bent(step)), self.number)
        larger = (1 + more / believed) if believed > 0 else 1.0
        return 1 / (larger * (1 + change if self.reach <= 1 else 1.0))

    def squared_change(self, step: np.ndarray) -> float:
        """By which share the curvature may change along a step, squared."""
        return squared_change(self.squared_length(step), self.number)

    def changes_of_groups(self, step: np.ndarray) -> np.ndarray:
        """By which share the curvature of each group may change along a step, squared, (d,).

        That is beside the change of all records; it is 0 for latents that belong to no group.
        """
        if self.groups is None:
            return np.zeros(len(step))
        lengths = self.groups.squared_lengths(self.bent(step), self.likelihood_curvature)
        return np.array([squared_change(length, self.number) for length in lengths])


def change_along(squared_length: float, number: float) -> float:
    """By which share a curvature may change along a step of this length."""
    # rounding may make it negative
    return float(2 * DEFAULTS.nonlinearity * np.sqrt(np.maximum(squared_length / number, 0.0)))


def squared_change(squared_length: float, number: float) -> float:
    """By which share a curvature may change along a step of this length, squared; at most 1."""
    return min(1.0, change_along(squared_length, number) ** 2)


def squared_error_of_step(squared_length: float, number: float) -> float:
    """How far from the mode a Newton step may end, squared, as a share of its squared length.

    With a curvature that changes by the share c over one whitened unit, a step of length r ends
    within r c r / (1 - c r), and anywhere from c r = 1 on: what self-concordant functions say.
    """
    change = min(1.0, change_along(squared_length, number))
    return float((change / max(1 - change, 1e-6)) ** 2)


def bend_along(H: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return the covariance of what a gradient lacks if all of H may change along a step, (d, d).

    Half of it lies along the step, and half in all directions alike: a bend may turn the gradient.
    """
    pull, squared_length = H @ step, float(step @ H @ step)
    return np.asarray((np.outer(pull, pull) + squared_length / len(step) * H) / 2)


def local_posterior(
    release: Release, found: Curvatures, known: Known, state: State
) -> LocalPosterior:
    """Add the prior to what the records say at this round's point."""
    point, prior_gradient = state.at.point, known.prior_gradient
    gradient = release.score + prior_gradient(point)
    prior = prior_precision(prior_gradient, point, state.least_prior)
    is_constant = bool(known.constant.any())
    curvature = found.together(known)
    of_groups = found.of_groups(known.groups)
    believed = believed_curvature(
        curvature, release.path, state, gradient, prior, is_constant, of_groups
    )
    unknown_change = ~known.constant
    if state.scale is not None:  # how it changes with the scale is known
        unknown_change[state.scale.latent] = False
    gradient = np.where(state.held, 0.0, gradient)
    path = _towards_mode(believed.path, state, gradient, prior)
    spectrum = believed.curvature.spectrum(path)
    H = spectrum.matrix(DEFAULTS.floor_on_average)
    return LocalPosterior(
        gradient=gradient,
        gradient_noise=release.score_noise,
        held=state.held,
        believed=believed.curvature._replace(noise=believed.error),
        spectrum=spectrum,
        likelihood_curvature=H,
        independent_diagonal=np.diag(found.independent.estimate),
        along_last_step=_along_last_step(release, H + prior, gradient, state),
        prior_precision=prior,
        prior_at_start=state.prior_at_start,
        prior_gradient=prior_gradient,
        whitening=release.whitening,
        number=state.number,
        reach=_reach(release, gradient, state),
        unknown_change=unknown_change,
        scale=state.scale,
        hidden_scale=known.scale if state.scale is None else None,
        groups=known.groups,
        point=point,
    )


def _towards_mode(
    path: Path | None, state: State, gradient: np.ndarray, prior: np.ndarray
) -> Path | None:
    """Average the curvature along the path over what is left of it to the mode.

    Not where it changes with the scale of outcomes, which is known; and of many latents the first
    round has released a diagonal, which says nothing of a path.
    """
    first, is_diagonal = state.learnt.first, len(gradient) > MANY_LATENTS
    if path is None or first is None or state.scale is not None or is_diagonal:
        return path
    p = path.vector
    rate = path.rate(*(float(p @ x @ p) for x in first))
    return path.towards_mode(rate, float(gradient @ p), float(p @ prior @ p))


def _along_last_step(
    release: Release, total: np.ndarray, gradient: np.ndarray, state: State
) -> np.ndarray:
    """Return the curvature that a believed one, (d, d), lacks along the last step.

    Norms that scores are clipped to grow with the reach, and clipped scores with them: two rounds
    are compared where theirs was the same. With the scale of outcomes all scores change; and where
    the mode is beyond the reach, curvatures on the path change by more than one direction says.
    """
    secant = state.learnt.secant
    alike = secant is not None and (secant.reach == state.reach or state.noise_unit == 0)
    is_beyond = release.length(gradient, state.number) >= state.reach
    if secant is None or not alike or is_beyond or state.scale is not None:
        return np.zeros_like(total)
    if secant.step[state.held].any():  # its score is now left out
        return np.zeros_like(total)
    return secant.missing(total, gradient, release.score_noise)


def _reach(release: Release, gradient: np.ndarray, state: State) -> float:
    """Return how many whitened units a step may be long: at most as many as the gradient, or 1."""
    return min(state.reach, max(1.0, release.length(gradient, state.number)))
