"""Mixtures by stochastic expectation propagation: releases, steps and the posterior."""

from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.methods.algorithm import EXPECTATION_PROPAGATION, NEWTON, Algorithm
from pymc_dp.methods.conjugate.description import natural_parameters
from pymc_dp.methods.conjugate.exponential import DIRICHLET
from pymc_dp.methods.conjugate.noise_aware import NoisyBlock, draw
from pymc_dp.methods.doubts import BY_ROUNDS, uncentred
from pymc_dp.methods.linear.defaults import DEFAULTS as LINEAR
from pymc_dp.methods.linear.quadratic import Sums
from pymc_dp.methods.linear.solve import Solved, solve
from pymc_dp.methods.method import Compiled, Draws, Method, OnRealLine, beside
from pymc_dp.methods.mixture.model import MixtureModel, components
from pymc_dp.methods.mixture.start import SketchedStart
from pymc_dp.methods.normal import (
    Average,
    Gammas,
    GaussianPosterior,
    NoisyAverage,
    Spectrum,
    cavity,
    number_of,
    site_share,
    spectral_edge,
)
from pymc_dp.methods.sep.mixture.defaults import DEFAULTS
from pymc_dp.methods.sep.mixture.sites import Context, Sites, contribution, layout_of
from pymc_dp.methods.sep.settings import Settings
from pymc_dp.model import Records
from pymc_dp.privacy.query import Noisy, Query

NO_NOISE = Sums(*np.zeros(5))  # `solve` gets curvatures that are floored already


class State(NamedTuple):
    """State of a fit: released values and what follows from them."""

    t: int
    sums: NoisyAverage[Sites]  # the product of all sites
    context: Context  # the cavity for the next batch
    mean: np.ndarray  # of all Gaussian latents
    solved: Solved
    average: Average  # of the last means


class _Fit(NamedTuple):
    """What the updates of one fit share: public values and compiled priors."""

    model: MixtureModel
    root: np.ndarray  # symmetric roots of one record's precision
    settings: Settings
    releases: int
    annealed: bool  # whether components part while the likelihood's power grows

    def temperature(self, t: int) -> float:
        """Power of the likelihood at release t: components that start alike part slowly."""
        if not self.annealed or self.releases == 1:
            return 1.0
        return min(1.0, DEFAULTS.first_temperature + DEFAULTS.warming * t / (self.releases - 1))

    def weight(self, t: int) -> float:
        """Weight of the mean after release t in the average of the last ones."""
        averaged = DEFAULTS.averaged_of_annealed if self.annealed else DEFAULTS.averaged
        return 1 / max(1, t + 1 - round((1 - averaged) * self.releases))

    def number(self, sums: NoisyAverage[Sites]) -> float:
        """Take the declared number of records, else the released one, as far as it is known."""
        return number_of(self.settings.records_in_sums, sums.value.number, sums.variance.number)

    def expand(self, score: np.ndarray, precision: np.ndarray) -> Sums:
        """Bring sums from a record's units to all Gaussian latents."""
        blocks, d = self.model.blocks, self.model.prior.d
        all_scores, all_precisions, zero = np.zeros((1, d)), np.zeros((1, d, d)), np.zeros(1)
        all_scores[0, blocks] = np.einsum("kde,ke->kd", self.root, score)
        inside = self.root @ precision @ self.root
        all_precisions[0, blocks[:, :, None], blocks[:, None, :]] = inside
        return Sums(all_scores, all_precisions, zero, zero, zero)

    def solve(self, sums: Sums, mean: np.ndarray, gammas: Gammas) -> Solved:
        """Multiply the sites of the means with the prior."""
        return solve((None,), self.model.prior, NoisyAverage(sums, NO_NOISE), mean, gammas)

    def within(self, covariance: np.ndarray) -> np.ndarray:
        """Covariance of each component's own latents, (K, d, d)."""
        blocks = self.model.blocks
        return np.asarray(covariance[blocks[:, :, None], blocks[:, None, :]])

    def concentration(self, weights: np.ndarray) -> np.ndarray:
        """Concentration of the weights, from their sites."""
        least = DEFAULTS.least_concentration
        return np.asarray(np.maximum(self.model.concentration + weights, least))


def build(records: Records, model: MixtureModel, settings: Settings) -> Method | OnRealLine:
    """Build a method for a mixture: by default rounds, else stochastic expectation propagation.

    **Privacy.** Each release of sites is one vector: sites of the components' means in a record's
    own units, sites of the weights and a one, clipped jointly. Before these, or before rounds,
    components that are alike at the public initial point take one release of a sketch
    (`SketchedStart`). All else is post-processing.
    """
    sketched = SketchedStart.of(records, model)
    annealed = sketched is None and not model.starts_distinct
    number = settings.records_in_sums
    rounds = settings.rounds_from(lambda: sketched and sketched.of_rounds(number))
    if rounds and not annealed:  # rounds do not part components that start alike
        return rounds
    count = DEFAULTS.annealed_releases if annealed else DEFAULTS.releases
    count = count if settings.noisy else DEFAULTS.noiseless_releases
    per_latent = 1 + DEFAULTS.precision_scale**2
    typical = model.blocks.shape[1] * per_latent + (model.weights is not None)
    release = settings.release_spec(count, DEFAULTS.clip_norm * typical**0.5)
    fit = _Fit(model, Spectrum.of(model.curvature).root(), settings, release.count, annealed)
    method = Method(
        size=layout_of(*model.blocks.shape).size,
        releases=(release,),
        compile=lambda backend: Compiled(
            {"sites": contribution(components(records, model, backend), model, fit.root)},
            partial(_update, fit),
        ),
        init=partial(_begin, fit),
        query=lambda state, rng: Query("sites", state.context),
        posterior=partial(_draw, fit),
        noise_aware=beside(partial(_draw, fit), partial(_draw_with_noise, fit)),
        describe=partial(_describe, records, fit),
        trace=lambda state: {
            "mean_path": (("gaussian",), state.mean),
            "temperature": ((), state.context.temperature),
        },
        settings={"form": "damped"},
        algorithms=(EXPECTATION_PROPAGATION,),
        doubts=lambda state: (uncentred(records.term_names, BY_ROUNDS),) if settings.noisy else (),
        defaults=(DEFAULTS, LINEAR),
    )
    if sketched is None:
        return method
    return sketched.before(method, partial(_begin_at, fit), number)


def algorithm(records: Records, model: MixtureModel) -> Algorithm:
    """Return what fits a mixture by default."""
    has_start = model.starts_distinct or SketchedStart.of(records, model)
    return NEWTON if has_start else EXPECTATION_PROPAGATION


def _begin(fit: _Fit, rng: np.random.Generator) -> State:
    """Start at the public initial point; components that only annealing parts are set apart."""
    mean, blocks = fit.model.start.copy(), fit.model.blocks
    if fit.annealed:
        offset = DEFAULTS.separation * rng.normal(size=(*blocks.shape, 1))
        mean[blocks] += np.linalg.solve(fit.root, offset)[..., 0]
    return _begin_at(fit, mean)


def _begin_at(fit: _Fit, mean: np.ndarray) -> State:
    model, (count, d) = fit.model, fit.model.blocks.shape
    precision = DEFAULTS.start_precision * np.tile(np.eye(d), (count, 1, 1))
    sites = Sites(np.zeros((count, d)), precision, np.zeros(count), np.zeros(()))
    solved = fit.solve(fit.expand(sites.score, precision), mean, model.prior.start())
    covariance = fit.within(solved.covariance)
    context = Context(mean, covariance, model.concentration, fit.temperature(0))
    sums = NoisyAverage(sites, Sites(*np.zeros(4)))
    return State(0, sums, context, mean, solved, Average.start(mean))


def _update(fit: _Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Damp the sites, move the means by the scores at the cavity, then take out one site."""
    h = DEFAULTS.step if fit.settings.step is None else fit.settings.step
    sd, centre = noisy.sd / noisy.sample_rate, query.context.mean
    count, d = fit.model.blocks.shape
    layout, identities = layout_of(count, d), np.tile(np.eye(d), (count, 1, 1))
    latest = Sites(**layout.unpack(noisy.value / noisy.sample_rate))
    sums = state.sums.add(latest, Sites(**layout.noise_variance(sd)), h)
    number = fit.number(sums)
    least = max(spectral_edge(sums.variance.precision, d), DEFAULTS.least_share * number)
    expanded = fit.expand(latest.score, Spectrum.of(sums.value.precision).floored(least))
    solved = fit.solve(expanded, state.mean, state.solved.gammas)
    mean = solved.residual(expanded, centre, h) + (1 - h) * (state.mean - centre)
    mean = solved.step_towards(state.mean, mean)
    of_score = fit.expand(0 * latest.score, sd**2 * identities).curvature[0]
    fresh = solved.covariance @ of_score @ solved.covariance
    found = cavity(solved.linear, solved.precision, expanded.curvature[0], mean, number)
    context = Context(
        found.mean,
        fit.within(found.covariance),
        fit.concentration((1 - site_share(number)) * sums.value.weights),
        fit.temperature(state.t + 1),
    )
    average = state.average.add(mean, fresh, h, fit.weight(state.t))
    return State(state.t + 1, sums, context, mean, solved, average)


def _posterior(fit: _Fit, state: State) -> GaussianPosterior:
    """Multiply prior and sites; a component keeps at least a few records."""
    sites, mean = state.sums.value, state.average.mean
    precision = Spectrum.of(sites.precision).floored(DEFAULTS.least_share * fit.number(state.sums))
    solved = fit.solve(fit.expand(0 * sites.score, precision), mean, state.solved.gammas)
    return GaussianPosterior(mean, solved.covariance, state.average.noise, solved.gammas)


def _draw(fit: _Fit, state: State, draws: int, rng: np.random.Generator) -> Draws:
    values = _posterior(fit, state).draw(fit.model.prior, draws, rng)
    if fit.model.weights:
        eta = (fit.concentration(state.sums.value.weights) - 1,)
        values[fit.model.weights] = DIRICHLET.sample(eta, draws, rng)
    return values


def _draw_with_noise(fit: _Fit, state: State, draws: int, rng: np.random.Generator) -> Draws:
    values, _ = _posterior(fit, state).draw_with_noise(fit.model.prior, draws, rng)
    if fit.model.weights:
        sites = state.sums.value.weights
        variance = np.full_like(sites, state.sums.variance.weights)
        block = NoisyBlock((fit.model.concentration - 1,), (sites,), (variance,))
        values[fit.model.weights] = draw(DIRICHLET, block, draws, rng)
    return values


def _describe(records: Records, fit: _Fit, state: State) -> xr.Dataset:
    described = _posterior(fit, state).describe(records, fit.model.prior)
    name = fit.model.weights
    if name is None:
        return described
    eta = (fit.concentration(state.sums.value.weights) - 1,)
    described = described.assign(natural_parameters(records, {name: DIRICHLET}, {name: eta}))
    return described.assign({f"{name}_noise_sd": state.sums.variance.weights**0.5})
