"""Bayesian networks by stochastic expectation propagation: releases, steps and the posterior.

Posteriors are independent Gaussians. Precision sites are averaged slowly; means move along the
averaged scores at the cavity, in the metric of the precision. A factorised posterior and short
steps are as much as the noise on hundreds of weights allows.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from pymc_dp.methods.algorithm import BACKPROPAGATION
from pymc_dp.methods.conjugate.exponential import GAMMA, Natural
from pymc_dp.methods.conjugate.noise_aware import NoisyBlock, draw
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.normal import (
    Average,
    Gammas,
    GaussianPosterior,
    NoisyAverage,
    cavity,
    expected_precision,
    number_of,
    site_share,
    within_trust_region,
)
from pymc_dp.methods.sep.network.defaults import DEFAULTS
from pymc_dp.methods.sep.network.model import Network
from pymc_dp.methods.sep.network.sites import BoundedLayout, Context, Sites, contribution, read
from pymc_dp.methods.sep.network.start import bounded_layout, scales_of, start_of, typical_of
from pymc_dp.methods.sep.settings import Settings
from pymc_dp.model import Records
from pymc_dp.privacy.query import Noisy, Query
from pymc_dp.sampling.samplers import Full


class State(NamedTuple):
    """State of a fit: released values and what follows from them."""

    t: int
    sums: NoisyAverage[Sites]
    context: Context  # the cavity for the next batch
    mean: np.ndarray  # mean, variance: of all weights
    variance: np.ndarray
    gammas: Gammas  # {latent: natural parameters}
    average: Average  # of the last means, entry by entry
    step: float  # the length of the last step, in the metric


class _Fit(NamedTuple):
    """What the updates of one fit share: public values and compiled priors."""

    network: Network
    settings: Settings
    releases: int
    bounded: BoundedLayout  # of a record's vector
    size: np.ndarray  # scales of the weights
    curvature: np.ndarray  # precisions of a probe record about them, at a noise precision of 1

    @property
    def of_noise(self) -> str | None:
        """The noise precision, where it is a latent."""
        return self.network.output.precision

    def number(self, sums: NoisyAverage[Sites]) -> float:
        """Take the declared number of records, else the released one, as far as it is known."""
        return number_of(self.settings.records_in_sums, sums.value.number[0], sums.variance.number)

    def sites_of_probes(self, number: float, gammas: Gammas) -> Sites:
        """Sites of as many probe records, none of which has a residual."""
        rate = 0.0
        if self.of_noise:
            rate = number / 2 / expected_precision(self.of_noise, gammas)
        zero, noise = np.zeros(self.network.prior.d), np.array([number / 2, rate])
        return Sites(zero, number * self.curvature, noise, np.array([number]))

    def length(self, t: int, noise: np.ndarray) -> float:
        """Length of step t; ``noise`` holds the deviations in the weights at length 1."""
        clipped = np.isfinite(self.bounded.bounds.score)
        longest = self.settings.step or (DEFAULTS.clipped_step if clipped else DEFAULTS.step)
        walk = self.releases**0.5 * np.sqrt(np.mean((noise / self.size) ** 2))
        decay = 1 - (1 - DEFAULTS.last_step) * t / self.releases
        return float(decay * min(longest, DEFAULTS.noise_walk / max(walk, 1e-300)))


def build(records: Records, network: Network, settings: Settings) -> Method:
    """Build stochastic expectation propagation for a network.

    **Privacy.** Each release is one vector: scores and precisions of the weights' sites, the site
    of the noise's precision and a one. Every part is shortened to its share of the clip norm, and
    the whole is clipped. The clip norm is public: it comes from probe records. All else is
    post-processing.
    """
    prior = network.prior
    size = scales_of(records, network)
    start = start_of(records, network, size, np.random.default_rng(0))
    typical = typical_of(records, network, start, size)
    count = DEFAULTS.releases if settings.noisy else DEFAULTS.noiseless_releases
    clip_norm = DEFAULTS.clip_norm * typical.score
    release = settings.release_spec(count, clip_norm, _sample_rate(settings))
    bounded = bounded_layout(release.clip_norm, typical, network.output.precision is not None)
    fit = _Fit(network, settings, release.count, bounded, size, typical.curvature)
    return Method(
        size=bounded.layout.size,
        releases=(release,),
        compile=lambda backend: Compiled(
            {"sites": contribution(records, network, bounded, backend)}, partial(_update, fit)
        ),
        init=lambda rng: _begin(fit, start_of(records, network, size, rng)),
        query=lambda state, rng: Query("sites", state.context),
        posterior=lambda state, draws, rng: _posterior(fit, state).draw(prior, draws, rng),
        noise_aware=lambda state, draws, rng: _posterior(fit, state).draw_with_noise(
            prior, draws, rng
        ),
        describe=lambda state: _posterior(fit, state).describe(records, prior),
        trace=lambda state: {"mean_path": (("gaussian",), state.mean), "step": ((), state.step)},
        settings={"form": "damped"},
        algorithms=(BACKPROPAGATION,),
        defaults=(DEFAULTS,),
    )


def _sample_rate(settings: Settings) -> float:
    """Batches of some hundred records, if the number of records is declared."""
    if settings.sampling is Full:
        return 1.0
    if settings.num_records is None:
        return DEFAULTS.sample_rate
    return float(np.clip(DEFAULTS.batch / settings.num_records, *DEFAULTS.sample_rate_range))


def _begin(fit: _Fit, mean: np.ndarray) -> State:
    """Start at a public mean, with the precisions that probe records would give."""
    gammas, d = fit.network.prior.start(), fit.network.prior.d
    number = float(fit.settings.records_in_sums or DEFAULTS.nominal_records)
    sums = NoisyAverage(fit.sites_of_probes(number, gammas), Sites(0.0, 0.0, np.zeros(2), 0.0))
    zero = np.zeros(d)
    gammas = _gammas(fit, sums, mean, zero, gammas)
    average = Average(mean, *np.zeros((3, d)))
    context = Context(mean, zero, 2.0, 1.0)
    return _with_cavity(fit, State(0, sums, context, mean, zero, gammas, average, 0.0))


def _update(fit: _Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Average the sites, update the Gammas, and move the mean along the averaged scores.

    An average of memory 1 / b and steps of length h are stable along a direction whose curvature,
    in the metric, is below (4 / b - 2) / h. Where the trust region shortens a step, they are not:
    the average then holds scores that no step has followed, drives the mean past the mode, and
    whether and when the swing ends hangs on the last bit of a sum. So what is averaged on is the
    score of the step that was made: anti-windup by back-calculation (Astrom and Hagglund 2006).
    """
    t, prior = state.t, fit.network.prior
    latest = read(noisy, fit.bounded.layout, query.context.precision)
    sums = _averaged(fit, state, latest)
    gammas = _gammas(fit, sums, state.mean, state.variance**0.5, state.gammas)
    linear, precision = prior.natural_diagonals(gammas)
    metric = 1 / (precision + _floored(fit, sums, gammas, DEFAULTS.least_share_in_steps))
    sd = latest.variance.score**0.5
    step = fit.length(t, sd * metric)
    pull = linear - precision * state.mean
    score = within_trust_region(
        sums.value.score + pull, (step * metric / fit.size) ** 2, DEFAULTS.trust_radius
    )
    mean = state.mean + step * metric * score
    sums = sums._replace(value=sums.value._replace(score=score - pull))
    known = precision + _floored(fit, sums, gammas, DEFAULTS.least_share)
    # a step forgets a share of the noise that is in the mean, which differs by entry
    forgets = np.minimum(step * metric * known, 1.0)
    weight = 1 / max(1, t + 1 - fit.releases // 2)  # in the average of the second half
    average = state.average.add(mean, (sd / known) ** 2, forgets, weight)
    moved = state._replace(t=t + 1, sums=sums, mean=mean, gammas=gammas, average=average, step=step)
    return _with_cavity(fit, moved)


def _averaged(fit: _Fit, state: State, latest: NoisyAverage[Sites]) -> NoisyAverage[Sites]:
    """Average released sums, each part with its own weight."""
    sums = state.sums
    if state.t == 0:
        sums = sums._replace(value=fit.sites_of_probes(fit.number(latest), state.gammas))
    # of noise in a release of the noise precision's sites
    share = float(latest.variance.noise[0]) ** 0.5 / (fit.number(sums) / 2)
    fastest = 2 * (DEFAULTS.noise_in_average / max(share, 1e-12)) ** 2
    noise_weight = min(DEFAULTS.averaging, fastest)
    momentum = 1 / max(DEFAULTS.memory * fit.releases, DEFAULTS.shortest_memory)
    weights = Sites(momentum, DEFAULTS.averaging, noise_weight, 1 / (state.t + 1))
    return sums.add(*latest, weights)


def _gammas(
    fit: _Fit, sums: NoisyAverage[Sites], mean: np.ndarray, sd: np.ndarray, gammas: Gammas
) -> Gammas:
    """Set every Gamma to its prior's message plus the released sums."""
    gammas, prior = dict(gammas), fit.network.prior
    # every term of the prior holds one Gaussian latent, so two points do for all of them
    normal = [prior.point(mean + sign * sd) for sign in (1, -1)]
    for name in gammas:
        shape, rate = prior.message(name, gammas, normal)
        if name == fit.of_noise:
            of_records = _noise_statistics(fit, sums)
            shape, rate = shape + of_records[0], rate + of_records[1]
        gammas[name] = (shape, rate)
    return gammas


def _noise_statistics(fit: _Fit, sums: NoisyAverage[Sites]) -> Natural:
    """Return shape and rate of the noise precision from the records, within their limits."""
    limits = np.multiply(DEFAULTS.shape_range, fit.number(sums))
    # a rate below the noise's standard deviation is raised to it
    rate = max(sums.value.noise[1], sums.variance.noise[1] ** 0.5)
    return np.clip(sums.value.noise[0], *limits), np.asarray(rate)


def _floored(fit: _Fit, sums: NoisyAverage[Sites], gammas: Gammas, share: float) -> np.ndarray:
    """Precision sites, raised to the noise's edge and to those of a share of the records."""
    unit = expected_precision(fit.of_noise, gammas)
    least = max(sums.variance.precision**0.5, share * fit.number(sums))
    return np.asarray(unit * np.maximum(sums.value.precision, least))


def _with_cavity(fit: _Fit, state: State) -> State:
    """Multiply prior and sites, and take one of N equal sites out."""
    number, sites = fit.number(state.sums), state.sums.value
    linear, precision = fit.network.prior.natural_diagonals(state.gammas)
    floored = _floored(fit, state.sums, state.gammas, DEFAULTS.least_share)
    mean, variance = cavity(linear, precision, floored, state.mean, number)
    share, shape, rate = site_share(number), 2.0, 1.0
    if fit.of_noise:
        a, b = (float(np.asarray(x).item()) for x in state.gammas[fit.of_noise])
        shape = max(a + 1 - share * sites.noise[0], DEFAULTS.least_shape)
        rate = (b - share * max(sites.noise[1], 0.0)) * shape / (a + 1)
    context = Context(mean, variance, shape, rate)
    return state._replace(context=context, variance=1 / (precision + floored))


def _posterior(fit: _Fit, state: State) -> GaussianPosterior:
    """Return the factorised posterior around the average of the means."""
    blocks = {}
    if fit.of_noise:
        eta, of_records = state.gammas[fit.of_noise], _noise_statistics(fit, state.sums)
        prior = tuple(a - b for a, b in zip(eta, of_records, strict=True))
        block = NoisyBlock(prior, of_records, tuple(state.sums.variance.noise))
        blocks = {fit.of_noise: partial(draw, GAMMA, block)}
    average = state.average
    return GaussianPosterior(average.mean, state.variance, average.noise, state.gammas, blocks)
