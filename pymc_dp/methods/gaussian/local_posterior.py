"""What a round says of the log posterior near its point."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dp.methods.gaussian.belief import Curvature, CurvatureSpectrum
from pymc_dp.methods.gaussian.curvatures import Curvatures, believed_curvature
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.outcome_scale import OutcomeScale
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
    step_curvature: np.ndarray  # H or more, (d, d), where noise hides it
    independent_diagonal: np.ndarray  # of H as the first release or the model lets expect, (d,)
    along_last_step: np.ndarray  # what is missing of it along the last step, (d, d)
    prior_precision: np.ndarray  # P, the curvature of the log prior, (d, d)
    prior_at_start: np.ndarray  # the same where the rounds began, (d, d)
    prior_gradient: Callable[[np.ndarray], np.ndarray]  # point -> gradient of the log prior
    whitening: np.ndarray  # W, (d, d)
    number: float  # of records
    reach: float  # how many whitened units a step may be long
    point: np.ndarray  # (d,)
    bending: np.ndarray  # latents with which it is not known how the curvature changes, (d,)
    scale: OutcomeScale | None  # of the outcomes, to step in
    hidden_scale: OutcomeScale | None  # one of which the first release shows too little for that

    @property
    def total_curvature(self) -> np.ndarray:
        """H + P."""
        return np.asarray(self.likelihood_curvature + self.prior_precision)

    @property
    def cautious_total(self) -> np.ndarray:
        """H + P, or more: what steps go by."""
        return np.asarray(self.step_curvature + self.along_last_step + self.prior_precision)

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
        of_average = np.where(self.bending, np.diag(self.total_curvature) / self.number, 0.0)
        unit: np.ndarray = (1 / (of_average + least)) ** 0.5
        return unit

    def whitened(self, gradient: np.ndarray) -> np.ndarray:
        """Return a whitened gradient of the average record, (d,)."""
        return np.asarray(self.whitening @ gradient / self.number)

    @property
    def whitened_gradient(self) -> np.ndarray:
        """The whitened gradient of the average record, (d,)."""
        return self.whitened(self.gradient)

    @property
    def whitened_curvature(self) -> np.ndarray:
        """The whitened curvature of the average record, (d, d)."""
        W = self.whitening
        return np.asarray(W @ (self.total_curvature + self.along_last_step) @ W.T / self.number)

    @property
    def whitened_noise_sd(self) -> float:
        """Standard deviation of the noise on `whitened_gradient`, averaged over directions."""
        W = self.whitening
        return float((np.trace(W @ self.gradient_noise @ W.T) / len(W)) ** 0.5 / self.number)

    def squared_length(self, step: np.ndarray) -> float:
        """The squared length of a step, by the curvature of the likelihood."""
        return float(step @ self.likelihood_curvature @ step)

    def without_scale(self, step: np.ndarray) -> np.ndarray:
        """Return a step without that in the scale of outcomes, which is found in another way."""
        if self.scale is None:
            return step
        of_others = step.copy()
        of_others[self.scale.latent] = 0.0
        return of_others

    def bent(self, step: np.ndarray) -> np.ndarray:
        """Return the part of a step along which it is not known how the curvature changes."""
        return np.where(self.bending, step, 0.0)

    def bent_spread(self, covariance: np.ndarray) -> float:
        """Return the mean squared length of that part of steps of this covariance, (d, d)."""
        both = np.outer(self.bending, self.bending)
        return float(np.trace((self.likelihood_curvature * both) @ covariance))

    def nonlinearity(self, squared_length: float) -> float:
        """How much of the curvature may change along a step of this length, from 0 to 1."""
        return bending(squared_length, self.number)


def bending(squared_length: float, number: float) -> float:
    """How much of a curvature may change along a step of this length, from 0 to 1."""
    return min(1.0, 4 * DEFAULTS.nonlinearity**2 * squared_length / number)


def squared_error_of_step(squared_length: float, number: float) -> float:
    """How far from the mode a Newton step may end, squared, as a share of its squared length.

    With a curvature that changes by the share c over one whitened unit, a step of length r ends
    within r c r / (1 - c r), and anywhere from c r = 1 on: what self-concordant functions say.
    """
    change = bending(squared_length, number) ** 0.5
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
        curvature, release.along, state, gradient, prior, is_constant, of_groups
    )
    spectrum = believed.curvature.spectrum()
    bending = ~known.constant
    if state.scale is not None:  # how it changes with the scale is known
        bending[state.scale.latent] = False
    H = spectrum.matrix(DEFAULTS.floor_on_average)
    gradient = np.where(state.held, 0.0, gradient)
    along_last_step = _along_last_step(release, H + prior, gradient, state)
    return LocalPosterior(
        gradient=gradient,
        gradient_noise=release.score_noise,
        held=state.held,
        believed=believed.curvature._replace(noise=believed.error),
        spectrum=spectrum,
        likelihood_curvature=H,
        # where noise hides the curvature, steps are as short as a large one makes them
        step_curvature=Curvature(H, believed.without_model).at_least(DEFAULTS.floor_in_steps),
        independent_diagonal=np.diag(found.independent.estimate),
        along_last_step=along_last_step,
        prior_precision=prior,
        prior_at_start=state.prior_at_start,
        prior_gradient=prior_gradient,
        whitening=release.whitening,
        number=state.number,
        reach=_reach(release, H + prior, gradient, along_last_step, state),
        bending=bending,
        scale=state.scale,
        hidden_scale=known.scale if state.scale is None else None,
        point=point,
    )


def _along_last_step(
    release: Release, total: np.ndarray, gradient: np.ndarray, state: State
) -> np.ndarray:
    """Return the curvature that a believed one, (d, d), lacks along the last step.

    Norms that scores are clipped to grow with the reach, and clipped scores with them: two rounds
    are compared where theirs was the same. With the scale of outcomes all scores change; and where
    the mode is beyond the reach, curvatures on the way change by more than one direction says.
    """
    fall = state.learnt.fall
    alike = fall is not None and (fall.reach == state.reach or state.noise_unit == 0)
    is_beyond = release.length(gradient, state.number) >= state.reach
    if fall is None or not alike or is_beyond or state.scale is not None:
        return np.zeros_like(total)
    if fall.step[state.held].any():  # its score is now left out
        return np.zeros_like(total)
    return fall.missing(total, gradient, release.score_noise)


def _reach(
    release: Release,
    total: np.ndarray,
    gradient: np.ndarray,
    along_last_step: np.ndarray,
    state: State,
) -> float:
    """Return how many whitened units a step may be long: at most as many as the gradient, or 1.

    A step that ends before the reach is 1 where the curvature has doubled along the last one: it
    may go on to grow.
    """
    longest = release.length(gradient, state.number)
    if longest >= state.reach:
        return state.reach
    last = state.learnt.way.step
    grown = last @ along_last_step @ last > last @ total @ last
    return 1.0 if grown else max(1.0, longest)
