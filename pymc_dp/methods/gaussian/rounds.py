"""Newton steps from private scores and curvatures, in coordinates that earlier releases whitened.

Noise is as large in every direction of the coordinates in which it is added. In those that make all
directions of the posterior alike it costs the same share of a standard deviation everywhere. The
first release finds the scale of each latent; every round then releases score and curvature in
coordinates that the rounds before have found, with more of the budget.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.whitened import BINS, MANY_LATENTS, At, split
from pymc_dp.methods.gaussian.belief import (
    Curvature,
    CurvatureSpectrum,
    Mode,
    no_wider,
    symmetric,
    whitening_of,
)
from pymc_dp.methods.gaussian.clipped_share import VarianceShare, left_behind, with_diagonal
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.latent_scales import sums_of_squares
from pymc_dp.methods.gaussian.long_steps import Way
from pymc_dp.methods.gaussian.newton import Slope, newton_step
from pymc_dp.methods.gaussian.noise_floor import Spectrum
from pymc_dp.methods.gaussian.schedule import Shares
from pymc_dp.methods.prior import prior_curvature
from pymc_dp.privacy.query import Noisy, Query

Gradient = Callable[[np.ndarray], np.ndarray]


class Learnt(NamedTuple):
    """Estimates that follow from the releases made so far."""

    mode: Mode
    way: Way  # the latest step of its mean
    curvature: Curvature | None  # from the rounds
    guess: Curvature  # from the scales of scores, as if latents were independent
    # the largest diagonal of the curvature near the mean, (d,): least of it was clipped
    whole: np.ndarray
    # variance of the clipped scores, over what it would be without clipping
    variance: VarianceShare
    covariance: np.ndarray  # the posterior's, from the records alone
    noise: np.ndarray  # what the privacy noise adds to it


class State(NamedTuple):
    """State of the rounds: released values and what follows from them."""

    t: int  # releases made
    at: At  # of the next round
    number: float  # of records (or units), noisy or declared
    noise_unit: float  # noise multiplier of a release that would take the whole budget
    noise_to_signal: float  # of the latest release
    learnt: Learnt


def prior_precision(slope: Gradient, point: np.ndarray) -> np.ndarray:
    """Return the curvature of the log prior, made positive definite."""
    spectrum = Spectrum.of(prior_curvature(slope, point))
    least = max(DEFAULTS.least_prior_precision, 1e-12 * float(spectrum.values[-1]))
    return symmetric(spectrum.floored(least))


def begin(start: np.ndarray, slope: Gradient, number: float | None) -> State:
    """Start at a point, knowing no more than the prior's curvature there."""
    d = len(start)
    covariance = np.linalg.inv(prior_precision(slope, start))
    nothing = np.zeros((d, d))
    learnt = Learnt(
        mode=Mode(start, DEFAULTS.start_width * covariance),
        way=Way.of(np.zeros(d)),
        curvature=None,
        guess=Curvature(nothing, np.eye(d)),
        whole=np.zeros(d),
        variance=VarianceShare(),
        covariance=covariance,
        noise=nothing,
    )
    return State(
        0,
        At(start, _coordinates(np.eye(d), 1.0), 1.0, 1.0, 1.0),
        number or 1.0,
        0.0,
        np.nan,
        learnt,
    )


def measured(
    slope: Gradient, shares: list[Shares], declared: float | None, state: State, noisy: Noisy
) -> State:
    """Learn the scale of every latent's score, and how many records there are."""
    point = state.learnt.mode.mean
    d = point.size
    counts = noisy.value.reshape(d, BINS)
    number = declared or max(float(counts.sum()) / d, 2 * noisy.sd * BINS**0.5, 1.0)
    diagonal = np.diag(np.maximum(sums_of_squares(counts, noisy.sd), 1e-9))
    # correlations of so much bring eigenvalues of the curvature to the edge of their noise
    guess = Curvature(diagonal, DEFAULTS.correlation / (2 * d) ** 0.5 * diagonal)
    state = state._replace(
        t=1,
        number=number,
        noise_unit=noisy.sd / d**0.5 * DEFAULTS.scales_share**0.5,
        noise_to_signal=noisy.noise_to_signal,
        learnt=state.learnt._replace(guess=guess),
    )
    return _asking(state, shares, diagonal + prior_precision(slope, point), float(d))


def _asking(state: State, shares: list[Shares], precision: np.ndarray, seen: float) -> State:
    """Set the coordinates of the next round, and the bounds of its parts.

    ``seen`` is how many directions' curvature is visible, of which noise hides some.
    """
    mean, unit, N = state.learnt.mode.mean, state.noise_unit, state.number
    d, own = mean.size, shares[min(state.t, len(shares)) - 1]
    whitening = _coordinates(precision, N)
    if unit == 0:
        return state._replace(at=At(mean, whitening, np.inf, np.inf, own.ratio))
    steep = N * sum(s.curvature for s in shares) ** 0.5 / ((2 * d) ** 0.5 * unit * d)
    long = (N * sum(s.score for s in shares) / d) ** 0.5 / unit
    curvature_bound = np.clip(DEFAULTS.curvature_bound * steep, *DEFAULTS.curvature_range) * seen
    score_bound = np.clip(DEFAULTS.score_bound * long, *DEFAULTS.score_range) * seen**0.5
    at = At(mean, whitening, float(score_bound), float(curvature_bound), own.ratio)
    return state._replace(at=at)


def _coordinates(precision: np.ndarray, number: float) -> np.ndarray:
    """Return W with W precision W' = number I; by the diagonal alone, (d,), for many latents."""
    if len(precision) > MANY_LATENTS:
        return np.asarray((number / np.diag(precision)) ** 0.5)
    return whitening_of(precision, number)


def _matrix(whitening: np.ndarray) -> np.ndarray:
    return np.diag(whitening) if whitening.ndim == 1 else whitening


def step(slope: Gradient, shares: list[Shares], state: State, query: Query, noisy: Noisy) -> State:
    """Take one round's release into account."""
    at, N, learnt = state.at, state.number, state.learnt
    d = at.point.size
    sums, back = split(noisy.value, at), np.linalg.inv(_matrix(at.whitening))
    spread = symmetric(back @ back.T)
    least = 1e-7 * N**0.5  # without noise: keeps covariances regular
    score_noise = max(noisy.sd, least) ** 2 * spread
    found = Curvature(
        symmetric(back @ sums.curvature @ back.T),
        max(noisy.sd / at.curvature_scale, least) * spread,
    )
    curvature, guess = found, learnt.guess.scaled_like(found)
    if learnt.curvature is not None:
        curvature = learnt.curvature.scaled_like(found).combined(found)
    guided = curvature.combined(guess)
    prior, guide = prior_precision(slope, at.point), guided.spectrum()
    pull, whitening = back @ sums.score + slope(at.point), _matrix(at.whitening)
    said = Slope(pull, score_noise, guided, guide, prior, slope, whitening, N)
    mode, way, bend = newton_step(learnt.mode, learnt.way, said)
    spectrum = curvature.spectrum()
    steep = whitening @ spectrum.matrix(DEFAULTS.floor_in_steps) @ whitening.T
    variance = learnt.variance.add(sums, float(np.trace(steep)), at, noisy)
    # by the inequality of Cauchy and Schwarz: slope^2 <= variance of clipped * that of whole
    whole = np.maximum(learnt.whole, found.least_scales / variance.most)
    covariance = _posterior(spectrum, prior, variance.mean)
    uncertain = mode.covariance + np.diag(way.left**2)
    widened = no_wider(symmetric(covariance + uncertain), prior) - covariance
    learnt = Learnt(
        mode=mode,
        way=way,
        curvature=curvature.moved(bend, DEFAULTS.floor_in_steps),
        guess=guess.moved(bend, DEFAULTS.floor_in_steps),
        whole=(1 - left_behind(way.step, mode)) * whole,
        variance=variance,
        covariance=covariance,
        noise=symmetric(Spectrum.of(symmetric(widened)).floored(0.0)),
    )
    floored = guide.matrix_at_least(DEFAULTS.floor_in_coordinates) / variance.most
    precision = with_diagonal(floored, whole) + prior
    seen = float(np.trace(np.linalg.solve(precision, guide.matrix(DEFAULTS.floor_in_steps))))
    state = state._replace(t=state.t + 1, noise_to_signal=noisy.noise_to_signal, learnt=learnt)
    return _asking(state, shares, precision, float(np.clip(seen, max(1.0, d / 4), d)))


def _posterior(spectrum: CurvatureSpectrum, prior: np.ndarray, variance: float) -> np.ndarray:
    """Covariance from the records alone: V (v H + P) V with V = (H + P)^-1.

    v is the variance of clipped scores over the slope of their mean, 1 without clipping.
    """
    H = spectrum.matrix(DEFAULTS.floor_in_posterior)
    V = np.linalg.inv(H + prior)
    return no_wider(symmetric(V @ (variance * H + prior) @ V), prior)
