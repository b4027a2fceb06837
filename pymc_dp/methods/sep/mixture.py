"""Stochastic expectation propagation for mixtures with Gaussian components."""

from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.contributions.symmetric import floored, roots
from pymc_dp.methods.blocks.averaging import Average, blend, number_of
from pymc_dp.methods.blocks.exponential import DIRICHLET
from pymc_dp.methods.blocks.gaussian_posterior import GaussianPosterior
from pymc_dp.methods.blocks.noise_aware import Told, draw
from pymc_dp.methods.blocks.shown import natural_parameters
from pymc_dp.methods.linear.quadratic import Sums as QuadraticSums
from pymc_dp.methods.linear.solve import Solved, solve
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.sep.mixture_model import MixtureModel
from pymc_dp.methods.sep.mixture_sites import (
    PRECISION,
    Asked,
    Sums,
    contribution,
    noise_of,
    size_of,
    split,
)
from pymc_dp.methods.sep.settings import Settings
from pymc_dp.query import Noisy, Query
from pymc_dp.records import Records

RELEASES, NOISELESS_RELEASES = 30, 100
# lambda <- (1 - h) lambda + h (sum of sites)
STEP = 0.5
# clip norm over the typical norm of a record that knows its component
CLIP_NORM = 1.0
# components that start alike are set this far apart, in standard deviations of one record
APART = 0.1
# how sure the components' means are at the start, in records
START_PRECISION = 2.5
# the likelihood's first power, and how fast it grows to 1
COLD, WARMING = 0.1, 1.5
# for steps a component has at least this share of the records
LEAST_SHARE = 0.03
# the last share of the releases is averaged
LAST = 1 / 3
# the least concentration of a weight
LEAST_CONCENTRATION = 0.1
# `solve` gets curvatures whose noise is dealt with
QUIET = QuadraticSums(*np.zeros(5))


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them.

    Attributes
    ----------
    t : int
    sites, variances : Sums
        The product of all sites, and the noise's variance on an entry of each part.
    asked : Asked
        The cavity for the next batch.
    mean : (d_v,)
        Of all Gaussian latents.
    solved : Solved
    average : Average
        Of the last means.
    """

    t: int
    sites: Sums
    variances: Sums
    asked: Asked
    mean: np.ndarray
    solved: Solved
    average: Average


class _Fit(NamedTuple):
    """What the updates of one fit share; public values and compiled priors."""

    model: MixtureModel
    root: np.ndarray
    settings: Settings
    releases: int
    alike: bool

    @property
    def step(self) -> float:
        return STEP if self.settings.step is None else self.settings.step

    def temperature(self, t: int) -> float:
        """Power of the likelihood at release t: components that start alike part slowly."""
        if not self.alike or self.releases == 1:
            return 1.0
        return min(1.0, COLD + WARMING * t / (self.releases - 1))

    def weight(self, t: int) -> float:
        """Weight of the mean after release t in the average of the last ones."""
        return 1 / max(1, t + 1 - round((1 - LAST) * self.releases))

    def expand(self, score: np.ndarray, precision: np.ndarray) -> QuadraticSums:
        """Bring sums from a record's units to all Gaussian latents."""
        blocks, d = self.model.blocks, self.model.prior.d
        all_scores, all_precisions, nothing = np.zeros((1, d)), np.zeros((1, d, d)), np.zeros(1)
        all_scores[0, blocks] = np.einsum("kde,ke->kd", self.root, score)
        inside = self.root @ precision @ self.root
        all_precisions[0, blocks[:, :, None], blocks[:, None, :]] = inside
        return QuadraticSums(all_scores, all_precisions, nothing, nothing, nothing)

    def solve(self, sums: QuadraticSums, mean: np.ndarray, gammas: dict) -> Solved:
        """Multiply the sites of the means with the prior."""
        return solve((None,), self.model.prior, sums, QUIET, mean, gammas)


def build(records: Records, model: MixtureModel, settings: Settings) -> Method:
    """Build stochastic expectation propagation for a mixture.

    Notes
    -----
    **Privacy.** Each release is one vector: sites of the components' means in a record's own
    units, sites of the weights and a one, clipped jointly. All else is post-processing.
    """
    count = RELEASES if settings.noise else NOISELESS_RELEASES
    typical = model.blocks.shape[1] * (1 + PRECISION**2) + (model.weights is not None)
    release = settings.as_release(count, CLIP_NORM * typical**0.5)
    start = np.concatenate([records.point[name].ravel() for name in model.prior.shapes])
    alike = not np.ptp(start[model.blocks], axis=0).any()
    fit = _Fit(model, roots(model.curvature), settings, release.count, alike)
    return Method(
        size=size_of(model.blocks.shape),
        releases=(release,),
        compile=lambda backend: Compiled(
            {"sites": contribution(records, model, fit.root, backend)}, partial(_update, fit)
        ),
        init=partial(_init, fit, start),
        query=lambda state, rng: Query("sites", state.asked),
        posterior=partial(_draw, fit),
        noise_aware=partial(_noise_aware, fit),
        describe=partial(_describe, records, fit),
        trace=lambda state: {
            "mean_path": (("gaussian",), state.mean),
            "temperature": ((), state.asked.temperature),
        },
        settings={"form": "damped"},
    )


def _init(fit: _Fit, start: np.ndarray, rng: np.random.Generator) -> State:
    """Start at the public initial point; components that are alike there are set apart."""
    model, (count, d) = fit.model, fit.model.blocks.shape
    mean = start.copy()
    if fit.alike:
        apart = APART * rng.normal(size=(count, d, 1))
        mean[model.blocks] += np.linalg.solve(fit.root, apart)[..., 0]
    precision = START_PRECISION * _identities(model)
    sites = Sums(np.zeros((count, d)), precision, np.zeros(count), np.zeros(()))
    solved = fit.solve(fit.expand(sites.score, precision), mean, model.prior.start())
    asked = Asked(mean, _within(model, solved.covariance), model.concentration, fit.temperature(0))
    return State(0, sites, Sums(*np.zeros(4)), asked, mean, solved, Average.start(mean))


def _update(fit: _Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Damp the sites, move the means by the scores at the cavity, then take out one site."""
    model, t, h = fit.model, state.t, fit.step
    sd, centre = noisy.sd / noisy.sample_rate, query.context.mean
    latest = split(noisy.value / noisy.sample_rate, model.blocks.shape)
    sites = blend(state.sites, latest, 1 - h, h)
    variances = blend(state.variances, noise_of(sd), (1 - h) ** 2, h**2)
    number = number_of(fit.settings.num_records, sites.number, variances.number)
    edge = (variances.precision * 2 * model.blocks.shape[1]) ** 0.5
    sums = fit.expand(latest.score, floored(sites.precision, max(edge, LEAST_SHARE * number)))
    solved = fit.solve(sums, state.mean, state.solved.gammas)
    mean = solved.residual(sums, centre, h) + (1 - h) * (state.mean - centre)
    mean = solved.within_reach(state.mean, mean)
    of_score = fit.expand(0 * latest.score, sd**2 * _identities(model)).curvature[0]
    fresh = solved.covariance @ of_score @ solved.covariance
    average = state.average.add(mean, fresh, h, fit.weight(t))
    return State(
        t + 1,
        sites,
        variances,
        _cavity(fit, t + 1, sites.weights, sums.curvature[0], solved, mean, number),
        mean,
        solved,
        average,
    )


def _cavity(
    fit: _Fit,
    t: int,
    weights: np.ndarray,
    precision: np.ndarray,
    solved: Solved,
    mean: np.ndarray,
    number: float,
) -> Asked:
    """Take one of N equal sites out of the posterior."""
    share = 1 / max(number, 2.0)
    covariance = np.linalg.inv(solved.precision + (1 - share) * precision)
    shift = share * covariance @ (solved.linear - solved.precision @ mean)
    return Asked(
        mean + shift,
        _within(fit.model, covariance),
        _concentration(fit.model, (1 - share) * weights),
        fit.temperature(t),
    )


def _concentration(model: MixtureModel, weights: np.ndarray) -> np.ndarray:
    return np.maximum(model.concentration + weights, LEAST_CONCENTRATION)


def _identities(model: MixtureModel) -> np.ndarray:
    count, d = model.blocks.shape
    return np.tile(np.eye(d), (count, 1, 1))


def _within(model: MixtureModel, covariance: np.ndarray) -> np.ndarray:
    """Covariance of each component's own latents, (K, d, d)."""
    return covariance[model.blocks[:, :, None], model.blocks[:, None, :]]


def _posterior(fit: _Fit, state: State) -> GaussianPosterior:
    """Multiply prior and sites; a component that noise has swallowed keeps a few records."""
    least = LEAST_SHARE * number_of(
        fit.settings.num_records, state.sites.number, state.variances.number
    )
    sums = fit.expand(0 * state.sites.score, floored(state.sites.precision, least))
    solved = fit.solve(sums, state.average.mean, state.solved.gammas)
    return GaussianPosterior(
        state.average.mean, solved.covariance, state.average.noise, solved.gammas
    )


def _draw(fit: _Fit, state: State, draws: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    values = _posterior(fit, state).draw(fit.model.prior, draws, rng)
    if fit.model.weights:
        eta = (_concentration(fit.model, state.sites.weights) - 1,)
        values[fit.model.weights] = DIRICHLET.sample(eta, draws, rng)
    return values


def _noise_aware(
    fit: _Fit, state: State, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    values = _posterior(fit, state).draw_with_noise(fit.model.prior, draws, rng)
    if fit.model.weights:
        says = state.sites.weights
        variance = np.full_like(says, state.variances.weights)
        told = Told((fit.model.concentration - 1,), (says,), (variance,))
        values[fit.model.weights] = draw(DIRICHLET, told, draws, rng)
    return values


def _describe(records: Records, fit: _Fit, state: State) -> xr.Dataset:
    """Show the Gaussian posterior, and the weights' concentration with its noise."""
    shown = _posterior(fit, state).describe(records, fit.model.prior)
    name = fit.model.weights
    if name is None:
        return shown
    eta = (_concentration(fit.model, state.sites.weights) - 1,)
    shown = shown.assign(natural_parameters(records, {name: DIRICHLET}, {name: eta}))
    return shown.assign({f"{name}_noise_sd": state.variances.weights**0.5})
