"""Steps of stochastic expectation propagation for Bayesian networks; all of it post-processing.

Posteriors are independent Gaussians. Precision sites are averaged slowly; means move along the
averaged scores at the cavity, in the metric of the precision. A factorised posterior and short
steps are as much as the noise on hundreds of weights allows.
"""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.blocks.averaging import Average, number_of
from pymc_dp.methods.blocks.gaussian_prior import Gammas, expected_precision
from pymc_dp.methods.sep.independent_prior import natural
from pymc_dp.methods.sep.network_model import Network
from pymc_dp.methods.sep.network_sites import Asked, Scales, Sums, split
from pymc_dp.methods.sep.settings import Settings
from pymc_dp.query import Noisy, Query

# the largest step, also where clipping shortens the scores, and its share at the end of a fit
STEP, STEP_IF_CLIPPED, LAST_STEP = 0.5, 3.0, 0.1
# the noise of all steps together moves weights by about this many of their scales
WALK = 2.5
# one step moves them by at most this many
TRUST = 0.3
MOMENTUM = 0.9
# how fast sites are averaged; those of the noise's precision slower, if the share of noise in their
# average would be above DOUBT
SLOW, DOUBT = 0.05, 0.2
# at least this share of the records tells of every weight: in the cavity, and in steps
LEAST_SHARE, LEAST_IN_STEPS = 0.1, 0.3
# records where nobody has counted or declared them
NOMINAL = 1000
# a record's site has a shape near 1/2; noise in its sum must not leave this range
SHAPES = 0.4, 0.5
# the cavity of the noise's precision is at least as sure as this shape
LEAST_SHAPE = 2.5


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them.

    Attributes
    ----------
    t : int
    sites, variances : Sums
        Averages of released sums, and the noise's variance on an entry of each part.
    asked : Asked
        The cavity for the next batch.
    mean, variance : (d,)
        Of all weights.
    gammas : {latent: natural parameters}
    average : Average
        Of the last means, entry by entry.
    step : float
        The length of the last step, in the metric.
    """

    t: int
    sites: Sums
    variances: Sums
    asked: Asked
    mean: np.ndarray
    variance: np.ndarray
    gammas: Gammas
    average: Average
    step: float


class Fit(NamedTuple):
    """What the updates of one fit share: public values and compiled priors.

    Attributes
    ----------
    network : Network
    settings : Settings
    releases : int
    scales : Scales
        Of the parts of a record's vector.
    size : (d,)
        Scales of the weights.
    curvature : (d,)
        Precisions of a made-up record about them, at a noise precision of 1.
    """

    network: Network
    settings: Settings
    releases: int
    scales: Scales
    size: np.ndarray
    curvature: np.ndarray

    @property
    def of_noise(self) -> str | None:
        """The noise precision, where it is a latent."""
        return self.network.output.precision

    def number(self, sites: Sums, variances: Sums) -> float:
        """Take the declared number of records, else the released one, as far as it is known."""
        return number_of(self.settings.num_records, sites.number[0], variances.number)

    def made_up(self, number: float, gammas: Gammas) -> Sums:
        """Sites of as many made-up records, of which none has a residual."""
        rate = 0.0
        if self.of_noise:
            rate = number / 2 / expected_precision(self.of_noise, gammas)
        d = self.network.prior.d
        noise = np.array([number / 2, rate])
        return Sums(np.zeros(d), number * self.curvature, noise, np.array([number]))

    def length(self, t: int, noise: np.ndarray) -> float:
        """Length of step t, whose noise in the weights would have these deviations at length 1."""
        clipped = np.isfinite(self.scales.bounds.score)
        most = self.settings.step or (STEP_IF_CLIPPED if clipped else STEP)
        walk = self.releases**0.5 * np.sqrt(np.mean((noise / self.size) ** 2))
        left = 1 - (1 - LAST_STEP) * t / self.releases
        return float(left * min(most, WALK / max(walk, 1e-300)))

    def pace(self, number: float, noise: Sums) -> float:
        """How fast sites of the noise's precision are averaged."""
        share = float(noise.noise[0]) ** 0.5 / (number / 2)
        return min(SLOW, 2 * (DOUBT / max(share, 1e-12)) ** 2)

    def weight(self, t: int) -> float:
        """Weight of the mean after release t in the average of the second half."""
        return 1 / max(1, t + 1 - self.releases // 2)


def begin(fit: Fit, mean: np.ndarray) -> State:
    """Start at a public mean, as sure of each weight as made-up records would make it."""
    gammas, d = fit.network.prior.start(), fit.network.prior.d
    sites = fit.made_up(float(fit.settings.num_records or NOMINAL), gammas)
    quiet = Sums(0.0, 0.0, np.zeros(2), 0.0)
    gammas = _gammas(fit, sites, quiet, mean, np.zeros(d), gammas)
    average = Average(mean, *np.zeros((3, d)))
    nothing = np.zeros(d)
    state = State(
        0, sites, quiet, Asked(mean, nothing, 2.0, 1.0), mean, nothing, gammas, average, 0.0
    )
    return _with_cavity(fit, state)


def update(fit: Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Average the sites, update the Gammas, and move the mean along the averaged scores."""
    t, prior = state.t, fit.network.prior
    state = _averaged(fit, state, query.context, noisy)
    sites, variances = state.sites, state.variances
    gammas = _gammas(fit, sites, variances, state.mean, state.variance**0.5, state.gammas)
    linear, precision = natural(prior, gammas)
    metric = 1 / (precision + _told(fit, sites, variances, gammas, LEAST_IN_STEPS))
    sd = fresh_noise(noisy, fit.scales, query.context).score ** 0.5
    step = fit.length(t, sd * metric)
    move = step * metric * (sites.score + linear - precision * state.mean)
    move *= min(1.0, TRUST / max(np.sqrt(np.mean((move / fit.size) ** 2)), 1e-300))
    known = precision + _told(fit, sites, variances, gammas, LEAST_SHARE)
    # a step forgets a share of the noise that is in the mean, which differs by entry
    forgets = np.minimum(step * metric * known, 1.0)
    average = state.average.add(state.mean + move, (sd / known) ** 2, forgets, fit.weight(t))
    moved = state._replace(
        t=t + 1, mean=state.mean + move, gammas=gammas, average=average, step=step
    )
    return _with_cavity(fit, moved)


def _averaged(fit: Fit, state: State, asked: Asked, noisy: Noisy) -> State:
    """Average released sums, each part at its own pace: that of the scores is their momentum."""
    latest = split(noisy.value / noisy.sample_rate, fit.scales, asked.precision)
    noise = fresh_noise(noisy, fit.scales, asked)
    old = state.sites
    if state.t == 0:
        old = fit.made_up(fit.number(latest, noise), state.gammas)
    pace = fit.pace(fit.number(old, state.variances), noise)
    rates = Sums(1 - MOMENTUM, SLOW, pace, 1 / (state.t + 1))
    sites = [a + rate * (b - a) for a, b, rate in zip(old, latest, rates, strict=True)]
    variances = [
        (1 - rate) ** 2 * a + rate**2 * b
        for a, b, rate in zip(state.variances, noise, rates, strict=True)
    ]
    return state._replace(sites=Sums(*sites), variances=Sums(*variances))


def fresh_noise(noisy: Noisy, scales: Scales, asked: Asked) -> Sums:
    """Variance of the noise on an entry of each part of one release."""
    score, precision, noise, number = (noisy.sd / noisy.sample_rate / np.array(scales.factors)) ** 2
    return Sums(
        score * asked.precision, precision, noise / np.array([1.0, asked.precision]) ** 2, number
    )


def _gammas(
    fit: Fit, sites: Sums, variances: Sums, mean: np.ndarray, sd: np.ndarray, gammas: Gammas
) -> Gammas:
    """Set every Gamma to what its prior and the released sums say."""
    gammas, prior = dict(gammas), fit.network.prior
    # every term of the prior holds one Gaussian latent, so two points do for all of them
    normal = [prior.point(mean + sign * sd) for sign in (1, -1)]
    for name in gammas:
        shape, rate = prior.message(name, gammas, normal)
        if name == fit.of_noise:
            more = of_noise(fit, sites, variances)
            shape, rate = shape + more[0], rate + more[1]
        gammas[name] = (shape, rate)
    return gammas


def of_noise(fit: Fit, sites: Sums, variances: Sums) -> tuple[float, float]:
    """Return what records say about the noise precision, shape and rate, within their limits."""
    limits = np.multiply(SHAPES, fit.number(sites, variances))
    # a rate that noise has swallowed stays at the noise's own scale
    rate = max(sites.noise[1], variances.noise[1] ** 0.5)
    return float(np.clip(sites.noise[0], *limits)), float(rate)


def _told(fit: Fit, sites: Sums, variances: Sums, gammas: Gammas, share: float) -> np.ndarray:
    """Precision sites, raised to the noise's edge and to those of a share of the records."""
    unit = expected_precision(fit.of_noise, gammas)
    least = max(variances.precision**0.5, share * fit.number(sites, variances))
    return unit * np.maximum(sites.precision, least)


def _with_cavity(fit: Fit, state: State) -> State:
    """Multiply prior and sites, and take one of N equal sites out."""
    share = 1 / max(fit.number(state.sites, state.variances), 2.0)
    linear, precision = natural(fit.network.prior, state.gammas)
    told = _told(fit, state.sites, state.variances, state.gammas, LEAST_SHARE)
    variance = 1 / (precision + (1 - share) * told)
    mean = state.mean + share * variance * (linear - precision * state.mean)
    shape, rate = 2.0, 1.0
    if fit.of_noise:
        a, b = (float(np.asarray(x).item()) for x in state.gammas[fit.of_noise])
        shape = max(a + 1 - share * state.sites.noise[0], LEAST_SHAPE)
        rate = (b - share * max(state.sites.noise[1], 0.0)) * shape / (a + 1)
    asked = Asked(mean, variance, shape, rate)
    return state._replace(asked=asked, variance=1 / (precision + told))
