"""Newton steps from private scores and curvatures, in coordinates that earlier releases whitened.

Noise is as large in every direction of the coordinates in which it is added. In those that make all
directions of the posterior alike it costs the same share of a standard deviation everywhere. The
first release finds the scale of each latent; every round then releases score and curvature in
coordinates that the rounds before have found, with more of the budget.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.whitened import BINS, MANY_LATENTS, VARIANCE, At, Sums, split
from pymc_dp.methods.gaussian.belief import (
    Curvature,
    CurvatureSpectrum,
    Mode,
    no_wider,
    symmetric,
    whitening_of,
)
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.latent_scales import sums_of_squares
from pymc_dp.methods.gaussian.long_steps import Way, along_slope
from pymc_dp.methods.gaussian.noise_floor import Spectrum
from pymc_dp.methods.prior import prior_curvature
from pymc_dp.privacy.query import Noisy, Query

ROUNDS = len(DEFAULTS.score_shares)

Slope = Callable[[np.ndarray], np.ndarray]


class Shares(NamedTuple):
    """Shares of the budget that a round's curvature and score take."""

    curvature: float
    score: float

    @property
    def of_release(self) -> float:
        """The share of the round's joint release."""
        return (self.curvature + self.score) * (1 + VARIANCE**2)

    @property
    def ratio(self) -> float:
        """The curvature's part of the joint vector over the score's."""
        return float((self.curvature / self.score) ** 0.5)


class Learnt(NamedTuple):
    """Estimates that follow from the releases made so far."""

    mode: Mode
    way: Way  # the latest step of its mean
    curvature: Curvature | None  # from the rounds
    guess: Curvature  # from the scales of scores, as if latents were independent
    # the largest diagonal of the curvature near the mean, (d,): least of it was clipped
    whole: np.ndarray
    # variance of the clipped scores, over what it would be without clipping
    variance: "Weighted"
    covariance: np.ndarray  # the posterior's, from the records alone
    noise: np.ndarray  # what the privacy noise adds to it


class Weighted(NamedTuple):
    """A weighted average; later rounds, whose point is nearer to the mode, count more."""

    total: float
    weight: float

    def add(self, value: float, weight: float) -> "Weighted":
        """Add a value with its precision."""
        kept = DEFAULTS.kept_of_earlier
        return Weighted(kept * self.total + value * weight, kept * self.weight + weight)

    @property
    def mean(self) -> float:
        """The average, as a share; 1 where nothing is known."""
        mean = self.total / self.weight if self.weight > 0 else 1.0
        return float(np.clip(mean, DEFAULTS.least_variance, 1.0))

    @property
    def most(self) -> float:
        """The average and two standard deviations; 1 where nothing is known."""
        doubt = 2 / self.weight**0.5 if self.weight > 0 else 1.0
        return min(1.0, self.mean + doubt)


class State(NamedTuple):
    """State of the rounds: released values and what follows from them."""

    t: int  # releases made
    at: At  # of the next round
    number: float  # of records (or units), noisy or declared
    noise_unit: float  # noise multiplier of a release that would take the whole budget
    noise_to_signal: float  # of the latest release
    learnt: Learnt


def schedule(rounds: int) -> list[Shares]:
    """Return the shares of all rounds; plans of other lengths stretch those of the default."""
    places = np.linspace(0, ROUNDS - 1, rounds) if rounds > 1 else np.array([ROUNDS - 1.0])
    every = np.arange(ROUNDS)
    curvature = np.interp(places, every, DEFAULTS.curvature_shares)
    score = np.interp(places, every, DEFAULTS.score_shares)
    left = (1 - DEFAULTS.scales_share) / ((curvature.sum() + score.sum()) * (1 + VARIANCE**2))
    return [Shares(float(left * c), float(left * s)) for c, s in zip(curvature, score, strict=True)]


def prior_precision(slope: Slope, point: np.ndarray) -> np.ndarray:
    """Return the curvature of the log prior, made positive definite."""
    spectrum = Spectrum.of(prior_curvature(slope, point))
    least = max(DEFAULTS.least_prior_precision, 1e-12 * float(spectrum.values[-1]))
    return symmetric(spectrum.floored(least))


def begin(start: np.ndarray, slope: Slope, number: float | None) -> State:
    """Start at a point, knowing no more than the prior's curvature there."""
    d = len(start)
    covariance = np.linalg.inv(prior_precision(slope, start))
    nothing = np.zeros((d, d))
    learnt = Learnt(
        mode=Mode(start, DEFAULTS.start_width * covariance),
        way=Way(np.zeros(d), np.zeros(d)),
        curvature=None,
        guess=Curvature(nothing, np.eye(d)),
        whole=np.zeros(d),
        variance=Weighted(0.0, 0.0),
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
    slope: Slope, shares: list[Shares], declared: float | None, state: State, noisy: Noisy
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


def step(slope: Slope, shares: list[Shares], state: State, query: Query, noisy: Noisy) -> State:
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
    pull = back @ sums.score + slope(at.point)
    mode, way, far = _learn(slope, learnt, at, guided, guide, prior, pull, score_noise, N)
    spectrum = curvature.spectrum()
    variance = _variance(learnt.variance, sums, at, noisy, spectrum)
    # by the inequality of Cauchy and Schwarz: (slope)^2 <= variance of clipped * that of whole
    whole = np.maximum(learnt.whole, found.least_scales / variance.most)
    covariance = _posterior(spectrum, prior, variance.mean)
    widened = no_wider(symmetric(covariance + mode.covariance), prior) - covariance
    change = min(1.0, 4 * DEFAULTS.nonlinearity**2 * far / N)
    learnt = Learnt(
        mode=mode,
        way=way,
        curvature=curvature.moved(change, DEFAULTS.floor_in_steps),
        guess=guess.moved(change, DEFAULTS.floor_in_steps),
        whole=(1 - _moved(way.step, mode)) * whole,
        variance=variance,
        covariance=covariance,
        noise=symmetric(Spectrum.of(symmetric(widened)).floored(0.0)),
    )
    floored = guide.matrix_at_least(DEFAULTS.floor_in_coordinates) / variance.most
    precision = _unclipped(floored, whole) + prior
    seen = float(np.trace(np.linalg.solve(precision, guide.matrix(DEFAULTS.floor_in_steps))))
    state = state._replace(t=state.t + 1, noise_to_signal=noisy.noise_to_signal, learnt=learnt)
    return _asking(state, shares, precision, float(np.clip(seen, max(1.0, d / 4), d)))


def _moved(step: np.ndarray, mode: Mode) -> float:
    """Return how surely a step was one and no noise, from 0 to 1."""
    longest = np.max(np.abs(step) / np.sqrt(np.diag(mode.covariance)))
    return float(np.clip(longest - DEFAULTS.sure_step, 0.0, 1.0))


def _unclipped(precision: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Raise a curvature's diagonal to that of scores of which less was clipped.

    Clipped scores fall less steeply. Coordinates that made their slope alike would lengthen all
    scores, so that ever more of them is clipped.
    """
    scale = np.sqrt(np.maximum(1.0, whole / np.diag(precision)))
    return np.asarray(np.outer(scale, scale) * precision)


def _learn(
    slope: Slope,
    learnt: Learnt,
    at: At,
    curvature: Curvature,
    spectrum: CurvatureSpectrum,
    prior: np.ndarray,
    s: np.ndarray,
    score_noise: np.ndarray,
    N: float,
) -> tuple[Mode, Way, float]:
    """Update the mode; return it, its step, and the step's squared length by the curvature.

    The step is that of a slope that falls linearly; how sure its end is takes into account that the
    slope bends, the more so the longer the step is.
    """
    d, H, mode = len(s), spectrum.matrix(DEFAULTS.floor_in_steps), learnt.mode
    total, Q, W = H + prior, curvature.noise, _matrix(at.whitening)
    unknown = (np.trace(Q @ mode.covariance) * Q + Q @ mode.covariance @ Q) / 2
    noise = symmetric(score_noise + unknown)
    linear = mode.update(s, total, noise)
    step = along_slope(linear.step, W @ s / N, W)
    far = float(step @ H @ step)
    spread = min(1.0, linear.surprise) * float(np.trace(H @ linear.covariance))
    bend = min(1.0, 4 * DEFAULTS.nonlinearity**2 * (far + spread) / N)
    along = np.outer(H @ step, H @ step) + far / d * H
    noise = symmetric(noise + bend * (H @ linear.covariance @ H + along / 2))
    surprise = float(np.interp(6 * spectrum.hidden.mean(), [0, 1], DEFAULTS.surprise))
    doubted = mode.doubted(s, total, noise, prior, surprise, DEFAULTS.most_growth)
    after = doubted.update(s, total, noise).covariance
    # far from the mode a slope says which way to go, and little about how far it is
    kept = min(1.0, 4 * DEFAULTS.nonlinearity**2 * far / N)
    covariance = kept * doubted.covariance + (1 - kept) * after
    unit = (1 / (np.diag(total) / N + np.diag(prior) / DEFAULTS.prior_sds**2)) ** 0.5
    of_noise = float(np.trace(W @ score_noise @ W.T) / d) ** 0.5 / N

    def pull_of_prior(step: np.ndarray) -> np.ndarray:
        return unit * slope(mode.mean + step) / N

    way = learnt.way.then(step, unit * s / N, unit, of_noise, pull_of_prior)
    regular = 1e-10 * np.trace(covariance) / d * np.eye(d)
    return Mode(mode.mean + way.step, covariance + regular), way, float(way.step @ H @ way.step)


def _variance(
    before: Weighted, sums: Sums, at: At, noisy: Noisy, spectrum: CurvatureSpectrum
) -> Weighted:
    """Add what clipping leaves of the scores' variance, by its precision."""
    H = spectrum.matrix(DEFAULTS.floor_in_steps)
    W = _matrix(at.whitening)
    expected = max(float(np.trace(W @ H @ W.T)), 1e-9)
    sd = max(noisy.sd / at.variance_scale, 1e-9 * expected)
    return before.add(sums.variance / expected, (expected / sd) ** 2)


def _posterior(spectrum: CurvatureSpectrum, prior: np.ndarray, variance: float) -> np.ndarray:
    """Covariance from the records alone: V (v H + P) V with V = (H + P)^-1.

    v is the variance of clipped scores over the slope of their mean, 1 without clipping.
    """
    H = spectrum.matrix(DEFAULTS.floor_in_posterior)
    V = np.linalg.inv(H + prior)
    return no_wider(symmetric(V @ (variance * H + prior) @ V), prior)
