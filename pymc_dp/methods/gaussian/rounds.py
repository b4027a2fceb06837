"""Newton steps from private scores and curvatures, in coordinates that earlier releases whitened.

Noise is as large in every direction of the coordinates in which it is added. In those that make all
directions of the posterior alike it costs the same share of a standard deviation everywhere. The
first release finds the scale of each latent; every round then releases score and curvature in
coordinates that the rounds before have found, with more of the budget.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.score_scales import BINS
from pymc_dp.contributions.whitened import At, split
from pymc_dp.methods.gaussian.belief import (
    Curvature,
    CurvatureSpectrum,
    Mode,
    no_wider,
    symmetric,
    weakly_correlated,
)
from pymc_dp.methods.gaussian.clipped_share import VarianceShare, surely_moved
from pymc_dp.methods.gaussian.coordinates import (
    norm_bounds,
    unclipped_curvature,
    visible_directions,
    whitening,
)
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.factors import visible_along_steps, with_factors
from pymc_dp.methods.gaussian.hyperpriors import NormalLikelihood, NormalPrior
from pymc_dp.methods.gaussian.latent_scales import sums_of_squares, visible_bins
from pymc_dp.methods.gaussian.long_steps import Way, next_reach
from pymc_dp.methods.gaussian.newton import LocalPosterior, newton_step
from pymc_dp.methods.gaussian.noise_floor import Spectrum
from pymc_dp.methods.gaussian.outcome_scale import OutcomeScale
from pymc_dp.methods.gaussian.schedule import Shares
from pymc_dp.methods.prior import prior_curvature
from pymc_dp.privacy.query import Noisy, Query

Gradient = Callable[[np.ndarray], np.ndarray]


class Known(NamedTuple):
    """What is known before the first release."""

    prior_gradient: Gradient
    shares: list[Shares]
    number: int | None  # of records (or units), where it is declared
    scale: OutcomeScale | None


class Learnt(NamedTuple):
    """Estimates that follow from the releases made so far."""

    mode: Mode
    way: Way  # the latest step of its mean
    curvature: Curvature | None  # of the log likelihood, from the rounds
    believed: Curvature | None  # of the posterior, with noise for all that is not known of it
    independent: Curvature  # a guess from the scales of scores, as if latents were independent
    # a lower bound of the curvature's diagonal without clipping, (d,): the largest that was seen
    # since the point last moved
    unclipped_diagonal: np.ndarray
    variance_share: VarianceShare
    likelihood_curvature: np.ndarray  # H of the posterior, with a value for what noise hides
    covariance: np.ndarray  # the posterior's, from the records alone
    noise: np.ndarray  # what the privacy noise adds to it


class State(NamedTuple):
    """State of the rounds: released values and what follows from them."""

    t: int  # releases made
    at: At  # of the next round
    number: float  # of records (or units), noisy or declared
    noise_unit: float  # noise multiplier of a release that would take the whole budget
    noise_to_signal: float  # of the latest release
    reach: float  # how many whitened units the next step may be long; 1 near the mode
    least_prior: np.ndarray  # precisions of priors without an end, (d,)
    prior_at_start: np.ndarray  # the prior's precision where the rounds began, (d, d)
    scale: OutcomeScale | None  # of the outcomes, where the first release shows what it needs
    learnt: Learnt


def prior_precision(
    prior_gradient: Gradient, point: np.ndarray, least: float | np.ndarray
) -> np.ndarray:
    """Return the curvature of the log prior, and ``least``, by latents, for priors without an end.

    Each latent has its own unit in what is made positive definite.

    >>> wide = np.array([1e-18, 1.0, 0.0])
    >>> prior_precision(lambda z: -wide * z, np.zeros(3), 1e-24).diagonal()
    array([1.e-18, 1.e+00, 1.e-24])
    """
    curvature = prior_curvature(prior_gradient, point)
    scale = np.sqrt(np.maximum(abs(curvature).max(axis=0), least))
    units = np.outer(scale, scale)
    floored = Spectrum.of(curvature / units).floored(DEFAULTS.least_prior_precision)
    return symmetric(units * floored + np.diag(np.full(point.size, least)))


def near_prior_mode(start: np.ndarray, prior_gradient: Gradient) -> np.ndarray:
    """Follow Newton's steps of the prior alone, where public observations pull far from a start.

    >>> (
    ...     near_prior_mode(np.zeros(1), lambda z: 100 * (5 - z)).round(6),
    ...     near_prior_mode(np.zeros(1), lambda z: 1 - z),
    ... )
    (array([5.]), array([0.]))
    """
    point = start
    for _ in range(DEFAULTS.steps_of_prior):
        precision = prior_precision(prior_gradient, point, DEFAULTS.least_prior_precision)
        step = np.linalg.solve(precision, prior_gradient(point))
        if not step @ precision @ step > DEFAULTS.prior_sds**2 * len(start):
            return point if np.isfinite(step).all() else start
        point = point + step
    return start


def begin(start: np.ndarray, prior_gradient: Gradient, number: float | None) -> State:
    """Start at a point, knowing no more than the prior's curvature there."""
    least = np.full(len(start), DEFAULTS.least_prior_precision)
    return _at_start(start, prior_gradient, number or 1.0, least)


def _at_start(
    start: np.ndarray, prior_gradient: Gradient, number: float, least: np.ndarray
) -> State:
    d, precision = len(start), prior_precision(prior_gradient, start, least)
    covariance = np.linalg.inv(precision)
    nothing = np.zeros((d, d))
    learnt = Learnt(
        mode=Mode(start, DEFAULTS.start_width * covariance),
        way=Way.of(np.zeros(d)),
        curvature=None,
        believed=None,
        independent=Curvature(nothing, np.eye(d)),
        unclipped_diagonal=np.zeros(d),
        variance_share=VarianceShare(),
        likelihood_curvature=nothing,
        covariance=covariance,
        noise=nothing,
    )
    return State(
        t=0,
        at=At(start, whitening(np.eye(d), 1.0), score_bound=1.0, curvature_bound=1.0, ratio=1.0),
        number=number,
        noise_unit=0.0,
        noise_to_signal=np.nan,
        reach=1.0,
        least_prior=least,
        prior_at_start=precision,
        scale=None,
        learnt=learnt,
    )


def measured(known: Known, state: State, noisy: Noisy) -> State:
    """Learn the scale of every latent's score, and how many records there are."""
    point = state.learnt.mode.mean
    d = point.size
    every = noisy.value.reshape(-1, BINS)
    counts = every[:d]
    sums = sums_of_squares(counts, noisy.sd)
    number = known.number or _number(counts, noisy.sd)
    # a prior without an end is as wide as so many records' scales, but no narrower than it was
    records = np.where(sums > 0, np.minimum(sums / number, 1.0), 1.0)
    least = DEFAULTS.least_prior_precision * records
    diagonal = np.diag(np.where(sums > 0, sums, 1e-9))
    # correlations of so much bring eigenvalues of the curvature to the edge of their noise
    correlation = max(DEFAULTS.correlation, DEFAULTS.correlation_by_latent * d)
    independent = Curvature(diagonal, correlation / (2 * d) ** 0.5 * diagonal)
    scale = known.scale
    if scale is not None and not scale.is_seen(visible_bins(counts, noisy.sd).any(axis=1)):
        scale = None
    if scale is not None:
        prior = np.diag(prior_precision(known.prior_gradient, point, least))
        expected = 1 + float((np.diag(diagonal) / prior)[scale.location].sum()) / number
        initial, point = point, scale.started(point, every[d], noisy.sd, expected)
        independent = scale.moved(independent, initial, point)
    state = _at_start(point, known.prior_gradient, number, least)
    state = state._replace(
        t=1,
        # the sensitivity is the root of the number of histograms, and noise falls with the root of
        # a release's share
        noise_unit=noisy.sd / len(every) ** 0.5 * DEFAULTS.scales_share**0.5,
        noise_to_signal=noisy.noise_to_signal,
        scale=scale,
        learnt=state.learnt._replace(independent=independent),
    )
    precision = independent.estimate + prior_precision(known.prior_gradient, point, least)
    return _prepared(state, known.shares, precision, visible=float(d))


def _number(counts: np.ndarray, noise_sd: float) -> float:
    """Estimate the number of records: every latent's counts add up to it.

    It is at least two standard deviations of the noise of such a sum.
    """
    return float(max(float(counts.sum()) / len(counts), 2 * noise_sd * BINS**0.5, 1.0))


def step(known: Known, state: State, query: Query, noisy: Noisy) -> State:
    """Take one round's release into account.

    Where its numbers are beyond what matrices can be computed with, the point stays.
    """
    try:
        return _stepped(known, state, noisy)
    except (np.linalg.LinAlgError, ArithmeticError):
        learnt = _lost(state.learnt, state.prior_at_start)
        return state._replace(t=state.t + 1, noise_to_signal=noisy.noise_to_signal, learnt=learnt)


def _lost(learnt: Learnt, prior: np.ndarray) -> Learnt:
    """Say that the mode may be anywhere in the prior."""
    way = Way.of(np.diag(prior) ** -0.5)._replace(step=np.zeros(len(prior)))
    return learnt._replace(
        way=way, noise=_added_by_noise(learnt.covariance, learnt.mode, way, prior)
    )


def _stepped(known: Known, state: State, noisy: Noisy) -> State:
    release = _unwhitened(noisy, state)
    curvature, independent = _updated(state.learnt, release.curvature)
    local = _local_posterior(release, curvature.combined(independent), known, state)
    learnt = _learnt(state.learnt, release, local, curvature, independent)
    state = state._replace(
        t=state.t + 1,
        noise_to_signal=noisy.noise_to_signal,
        reach=next_reach(state.reach, local.whitened_gradient, local.whitened_noise_sd),
        learnt=learnt,
    )
    share, diagonal = learnt.variance_share, learnt.unclipped_diagonal
    unclipped = unclipped_curvature(local.spectrum, share, diagonal)
    precision = _at_end(unclipped, local, learnt.mode.mean) + local.prior_precision
    visible = visible_directions(local.spectrum, local.prior_precision)
    return _prepared(state, known.shares, precision, visible)


def _at_end(curvature: np.ndarray, local: LocalPosterior, end: np.ndarray) -> np.ndarray:
    """Bring a curvature to the scale of outcomes at the end of a step."""
    if local.scale is None:
        return curvature
    return local.scale.moved(Curvature(curvature, curvature), local.point, end).estimate


class Release(NamedTuple):
    """A round's release in the coordinates of the latents."""

    score: np.ndarray  # sum of the records' clipped scores, (d,)
    score_noise: np.ndarray  # covariance of its privacy noise, (d, d)
    curvature: Curvature  # of the log likelihood: minus the slope of the score
    whitening: np.ndarray  # W, (d, d)
    whitened_variance: float  # of the clipped scores, and the sd of its privacy noise
    variance_noise_sd: float
    squared_bound: float  # what the squared norms of all records are clipped to, in total


def _unwhitened(noisy: Noisy, state: State) -> Release:
    """Bring a release from whitened coordinates back to those of the latents."""
    at, sums = state.at, split(noisy.value, state.at)
    W = np.diag(at.whitening) if at.whitening.ndim == 1 else at.whitening
    back = np.linalg.inv(W)
    spread = symmetric(back @ back.T)
    least = 1e-7 * state.number**0.5  # without noise: keeps covariances regular
    curvature_noise = max(noisy.sd / at.curvature_scale, least) * spread
    return Release(
        score=back @ sums.score,
        score_noise=max(noisy.sd, least) ** 2 * spread,
        curvature=Curvature(symmetric(back @ sums.curvature @ back.T), curvature_noise),
        whitening=W,
        whitened_variance=sums.variance,
        variance_noise_sd=noisy.sd / at.variance_scale,
        squared_bound=state.number * at.score_bound**2,
    )


def _updated(learnt: Learnt, found: Curvature) -> tuple[Curvature, Curvature]:
    """Return the curvature from all rounds, and the guess for independent latents.

    Earlier estimates, made at other points, are brought to the scales that were found at this one.
    """
    weak = weakly_correlated(np.linalg.inv(learnt.covariance))
    independent = learnt.independent.scaled_like(found, weak)
    if learnt.curvature is None:
        return found, independent
    earlier = learnt.curvature.scaled_like(found, weak)
    return earlier.doubted_along(learnt.way.step, found).combined(found), independent


def _local_posterior(
    release: Release, curvature: Curvature, known: Known, state: State
) -> LocalPosterior:
    """Add the prior to what the records say at this round's point."""
    point, prior_gradient = state.at.point, known.prior_gradient
    gradient = release.score + prior_gradient(point)
    prior = prior_precision(prior_gradient, point, state.least_prior)
    believed, error = with_factors(curvature)
    believed = visible_along_steps(believed, curvature, gradient, prior)
    spectrum = believed.spectrum()
    H = spectrum.matrix(DEFAULTS.floor_on_average)
    return LocalPosterior(
        gradient=gradient,
        gradient_noise=release.score_noise,
        believed=believed._replace(noise=error),
        spectrum=spectrum,
        likelihood_curvature=H,
        # where noise hides the curvature, steps are as short as a large one makes them
        step_curvature=curvature._replace(estimate=H).at_least(DEFAULTS.floor_in_steps),
        prior_precision=prior,
        prior_at_start=state.prior_at_start,
        prior_gradient=prior_gradient,
        whitening=release.whitening,
        number=state.number,
        reach=state.reach,
        scale=state.scale,
        point=point,
    )


def _learnt(
    before: Learnt,
    release: Release,
    local: LocalPosterior,
    curvature: Curvature,
    independent: Curvature,
) -> Learnt:
    """Move the mode, and update all estimates."""
    mode, way, nonlinearity = newton_step(before.mode, before.way, local)
    spectrum = local.spectrum
    variance_share = _variance_share(before.variance_share, release, spectrum)
    H = spectrum.matrix(DEFAULTS.floor_in_posterior)
    covariance = _covariance(H, local.prior_precision, variance_share.upper)
    return Learnt(
        mode=mode,
        way=way,
        curvature=_moved(curvature, nonlinearity, local, mode.mean),
        believed=local.believed,
        independent=_moved(independent, nonlinearity, local, mode.mean),
        unclipped_diagonal=_unclipped_diagonal(before, release.curvature, variance_share),
        variance_share=variance_share,
        likelihood_curvature=H,
        covariance=covariance,
        noise=_added_by_noise(covariance, mode, way, local.prior_precision),
    )


def _moved(found: Curvature, share: float, local: LocalPosterior, end: np.ndarray) -> Curvature:
    """Let a curvature change along a step: by a share that is not known, and with the scale."""
    found = found.moved(share, DEFAULTS.floor_on_average)
    return found if local.scale is None else local.scale.moved(found, local.point, end)


def _variance_share(
    before: VarianceShare, release: Release, spectrum: CurvatureSpectrum
) -> VarianceShare:
    W = release.whitening
    trace = float(np.trace(W @ spectrum.matrix(DEFAULTS.floor_on_average) @ W.T))
    noise_sd = release.variance_noise_sd
    return before.add(release.whitened_variance, trace, noise_sd, release.squared_bound)


def _unclipped_diagonal(before: Learnt, found: Curvature, share: VarianceShare) -> np.ndarray:
    """Bound the diagonal of the curvature without clipping from below; forget it after a move."""
    near = 1 - surely_moved(before.way.step, before.mode)
    # by the inequality of Cauchy and Schwarz: slope^2 <= variance of clipped * that of unclipped
    seen = found.least_scales / share.upper
    return np.asarray(np.maximum(near * before.unclipped_diagonal, seen))


def _covariance(H: np.ndarray, prior: np.ndarray, variance_share: float) -> np.ndarray:
    """Covariance from the records alone: V (v H + P) V with V = (H + P)^-1.

    v is the variance of clipped scores over the slope of their mean, 1 without clipping, as large
    as its own noise may hide.
    """
    V = np.linalg.inv(H + prior)
    return no_wider(symmetric(V @ (variance_share * H + prior) @ V), prior)


def _added_by_noise(covariance: np.ndarray, mode: Mode, way: Way, prior: np.ndarray) -> np.ndarray:
    """What not knowing the mode adds to the posterior's covariance; never wider than the prior."""
    uncertain = mode.covariance + np.diag(way.unfinished**2)
    added = no_wider(symmetric(covariance + uncertain), prior) - covariance
    noise: np.ndarray = symmetric(Spectrum.of(symmetric(added)).floored(0.0))
    return noise


def likelihood(learnt: Learnt, prior: NormalPrior, noise: float) -> NormalLikelihood:
    """Return what the releases say of the likelihood, without the prior that the rounds had.

    The likelihood's score at the mode m is minus the prior's, with an error of covariance S. As
    wide as records and noise make it, its precision is H (v H + S)^-1 H; ``noise`` is 1, or 0 to
    leave S out.
    """
    H, m, P = learnt.likelihood_curvature, learnt.mode.mean, prior.precision
    S = noise * (H + P) @ (learnt.mode.covariance + np.diag(learnt.way.unfinished**2)) @ (H + P)
    variance = symmetric(learnt.variance_share.upper * H + S)
    if not np.isfinite(variance).all():  # the records tell nothing that numbers can hold
        return NormalLikelihood(np.zeros(len(m)), np.zeros_like(P))
    unit = np.sqrt(np.maximum(np.diag(variance), np.finfo(float).tiny))
    inverse = np.linalg.pinv(variance / np.outer(unit, unit), hermitian=True)
    gain = H @ (inverse / np.outer(unit, unit))
    return NormalLikelihood(gain @ (H @ m - prior.gradient(m)), symmetric(gain @ H))


def _prepared(state: State, shares: list[Shares], precision: np.ndarray, visible: float) -> State:
    """Set the point, the coordinates and the bounds of the next round."""
    mean, own = state.learnt.mode.mean, shares[min(state.t, len(shares)) - 1]
    of_score, of_curvature = norm_bounds(mean.size, state.number, state.noise_unit, shares, visible)
    W = whitening(precision, state.number)
    return state._replace(at=At(mean, W, state.reach * of_score, of_curvature, own.ratio))
