"""One Newton step from a private gradient, and how sure its end is."""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.gaussian.belief import (
    at_least_nothing,
    symmetric,
    weakly_correlated,
)
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.local_posterior import (
    LocalPosterior,
    bend_along,
    squared_error_of_step,
)
from pymc_dp.methods.gaussian.long_steps import LatestStep, shortened
from pymc_dp.methods.gaussian.mode import Mode, Update
from pymc_dp.methods.gaussian.outcome_scale import OutcomeScale
from pymc_dp.methods.gaussian.scale_at_mode import NO_EXCESS, Excess, log_of_noisy

# the distance to the mode is computed anew until it shrinks by less than this
SETTLED = 0.9


class Step(NamedTuple):
    """Where a round has moved the mode."""

    mode: Mode
    point: np.ndarray  # where the step ends, (d,): the mode, but for the scale of outcomes
    latest_step: LatestStep
    squared_change: float  # by which share the curvature may change along the step, squared


def newton_step(mode: Mode, last: LatestStep, local: LocalPosterior) -> Step:
    """Update the mode.

    The step is that of a gradient that falls linearly, damped as far as it may bend; how sure its
    end is takes into account that it bends, the more so the longer the step is.
    """
    linear, noise = _update_with_unknown_curvature(mode, local)
    step = local.without_scale(_within_reach(linear, local))
    bent = local.bent(step)
    noise = symmetric(noise + _noise_of_bending(bent, linear, local))
    covariance = _covariance(mode, local, noise, linear.damping)
    latest = _limited(last, step, mode, local)
    covariance = at_least_nothing(covariance, local.prior_precision)
    if local.held.any():
        latest, covariance = _still(latest, covariance, mode, local.held)
    change = local.squared_change(local.bent(latest.step))
    end = mode.mean + latest.step
    moved = Step(Mode(end, covariance), end, latest, change)
    if local.scale is not None:
        return _with_scale(moved, local.scale, mode, local, linear)
    if local.hidden_scale is not None:
        return _without_excess(moved, local.hidden_scale, mode, local)
    return moved


def _within_reach(linear: Update, local: LocalPosterior) -> np.ndarray:
    """Shorten a step before it is damped, (d,), if the slope that it answers exceeds the reach.

    That slope is what the belief tells from noise of the one that was released.
    """
    slope = local.whitened(local.total_curvature @ linear.step) / linear.damping
    if np.abs(slope).max() <= local.reach:
        return linear.step
    return shortened(slope, local.whitened_curvature, local.whitening, local.reach)


def _still(
    latest: LatestStep, covariance: np.ndarray, before: Mode, held: np.ndarray
) -> tuple[LatestStep, np.ndarray]:
    """Let latents keep still, and know of them what was known before."""
    among = np.outer(held, held)
    known = np.where(np.logical_or.outer(held, held), 0.0, covariance)
    step, wanted = (np.where(held, 0.0, part) for part in (latest.step, latest.wanted))
    unfinished = np.where(held, np.diag(before.covariance) ** 0.5, latest.unfinished)
    return LatestStep(step, wanted, unfinished), np.where(among, before.covariance, known)


def _with_scale(
    moved: Step, scale: OutcomeScale, before: Mode, local: LocalPosterior, linear: Update
) -> Step:
    """Step in the scale of the outcomes as far as residuals after the step in location say.

    The score of the latent that sets the scale is M b (R - 1), where R is the mean squared residual
    in units of the scale, and M the number of outcomes. A step d in location lowers M R by
    2 g'd - d'Hd, and what noise adds to g'd is no part of that. Residuals at the end of a step are
    longer than at the mode, by what is not known of the location.
    """
    at, b, located = scale.latent, scale.slope, scale.location
    g, noise, H = local.gradient, local.gradient_noise, local.likelihood_curvature
    both = np.ix_(located, located)
    latest = moved.latest_step
    d, wanted = latest.step * located, float(g @ (linear.step * located))
    share = min(max(float(g @ d) / wanted, 0.0), 1.0) if wanted > 0 else 0.0
    by_noise = share * float(np.trace((linear.gain @ noise)[both]))
    lowered = 2 * float(g @ d) - float(d @ H @ d) - 2 * by_noise
    M = scale.number(local.total_curvature[at, at], local.number, g[at] / b - lowered)
    noise_sd = (noise[at, at] / b**2 + 4 * float(d @ noise @ d)) ** 0.5 / M
    C = moved.mode.covariance
    of_mean = _of_residuals(local, located)[both] / M
    before_step = float(np.log1p(np.trace(of_mean @ before.covariance[both])))
    excess = Excess.of(of_mean, (C + np.diag(latest.unfinished**2))[both])
    prior_sd = 2 * abs(b) * float(before.covariance[at, at]) ** 0.5 + before_step
    here = 1 + g[at] / (b * M)
    if g[at] / b > DEFAULTS.far_in_noise * noise[at, at] ** 0.5 / abs(b):
        lowered = 0.0  # clipping hides how long residuals are, and how much a step shortens them
    after = here - lowered / M
    if abs(after - 1) > DEFAULTS.far_in_noise * noise_sd:  # so far at least was to go
        prior_sd = max(prior_sd, abs(float(np.log(max(after, noise_sd)))))
    prior_sd = min(prior_sd, DEFAULTS.longest_scale_step)
    at_end, at_mode = (
        log_of_noisy(after, noise_sd, prior_sd, owed) for owed in (NO_EXCESS, excess)
    )
    step, unfinished = latest.step.copy(), latest.unfinished.copy()
    step[at], unfinished[at] = at_end.mean / (2 * b), 0.0
    covariance, end = C.copy(), before.mean + step
    covariance[at], covariance[:, at] = 0.0, 0.0
    covariance[at, at] = (at_mode.sd / (2 * b)) ** 2
    mean = end.copy()
    mean[at] = before.mean[at] + at_mode.mean / (2 * b)
    # where little is known of the residuals at the mode, the prior says more
    mean[at] = scale.with_prior(mean, covariance[at, at], local.prior_gradient)
    latest = latest._replace(step=step, unfinished=unfinished)
    return Step(Mode(mean, covariance), end, latest, moved.squared_change)


def _of_residuals(local: LocalPosterior, located: np.ndarray) -> np.ndarray:
    """Return the curvature by which residuals grow with the distance from the mode, (d, d).

    Clipping makes that of scores smaller, and not that of residuals.
    """
    H, unclipped = local.likelihood_curvature, local.independent_diagonal[located].sum()
    return np.asarray(max(1.0, float(unclipped / np.diag(H)[located].sum())) * H)


def _without_excess(moved: Step, scale: OutcomeScale, before: Mode, local: LocalPosterior) -> Step:
    """Lower the scale of the outcomes by what residuals owe to a point that is not the mode.

    They were as long as they are at the point where the round began, and are longer than at the
    mode by what is not known of the location there.
    """
    at, b, both = scale.latent, scale.slope, np.ix_(scale.location, scale.location)
    M = scale.number(local.total_curvature[at, at], local.number, excess=0.0)
    excess = Excess.of(local.likelihood_curvature[both] / M, before.covariance[both])
    # what the round says of the residuals themselves is in its step
    ratio = log_of_noisy(1.0, 0.0, DEFAULTS.longest_scale_step, excess)
    mean, covariance = moved.mode.mean.copy(), moved.mode.covariance.copy()
    mean[at] += ratio.mean / (2 * b)
    covariance[at, at] += (ratio.sd / (2 * b)) ** 2
    return moved._replace(mode=Mode(mean, covariance))


def _update_with_unknown_curvature(mode: Mode, local: LocalPosterior) -> tuple[Update, np.ndarray]:
    """Update the mode, with what errors of H over the distance to it add to the noise, (d, d).

    Such an error multiplies the distance that is left once the gradient has been seen: where it is
    small, the mode is near, however far it could have been before. Second moments of the distance
    and the noise that follows from them are computed in turn, from those of the prior downwards.
    """
    Q, S, M = local.believed.noise, local.gradient_noise, mode.covariance
    slope, total = local.gradient, local.total_curvature
    for _ in range(DEFAULTS.most_iterations):
        noise = symmetric(S + (np.trace(Q @ M) * Q + Q @ M @ Q) / 2)
        found = mode.update(slope, total, noise, local.damping, local.number)
        last, M = M, found.covariance + np.outer(found.step, found.step)
        if np.trace(Q @ M) > SETTLED * np.trace(Q @ last):
            break
    return found, noise


def _noise_of_bending(step: np.ndarray, linear: Update, local: LocalPosterior) -> np.ndarray:
    """How far the gradient may be from linear, along a damped step and in the spread at its end."""
    H = local.likelihood_curvature
    # where the gradient is smaller than expected, the mode is nearer than its spread says
    spread = min(1.0, linear.surprise) * local.bent_spread(linear.covariance)
    return np.asarray(
        squared_error_of_step(local.squared_length(step) + spread, local.number)
        * (H @ linear.covariance @ H + bend_along(H, step))
    )


def _covariance(mode: Mode, local: LocalPosterior, noise: np.ndarray, damping: float) -> np.ndarray:
    """Learn from the gradient, whose ``noise`` holds the bend along the step.

    Where the step is long the gradient says the direction of the mode, and little how far it is.
    """
    total, N = local.total_curvature, local.number
    covariance = mode.update(local.gradient, total, noise, lambda _: damping, N).covariance
    regular = 1e-10 * np.diag(np.diag(covariance))  # keeps covariances positive definite
    return np.asarray(covariance + regular)


def _limited(last: LatestStep, step: np.ndarray, mode: Mode, local: LocalPosterior) -> LatestStep:
    """Limit the step of every latent, in its own units."""
    weak = weakly_correlated(local.total_curvature)
    unit, N = local.units(step, weak), local.number

    def prior_gradient(step: np.ndarray) -> np.ndarray:
        return np.asarray(unit * local.prior_gradient(mode.mean + step) / N)

    gradient = unit * local.gradient / N
    noise_sd, reach = local.whitened_noise_sd, local.reach
    return last.then(step, gradient, unit, noise_sd, prior_gradient, reach, weak)
