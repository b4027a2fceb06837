"""Mixtures of Gaussians by stochastic expectation propagation (Vinaroz and Park 2022).

The fit begins at the public initial point, or where a sketch of the records puts the components;
each release averages sites, moves the means and takes one site out; the last means are averaged
into the posterior.

A record's site is its factor on each component's mean and weight. The tilted density of component k
is a mixture of two Gaussians: with responsibility r_k the record belongs to it, else the factor is
1. Moments are matched in closed form, those of the weights as by Minka (2001).
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import softmax

from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.errors import NotSeparableError
from pymc_dp.methods.conjugate import DIRICHLET, NoisyBlock, draw, natural_parameters
from pymc_dp.methods.linear import SepOptions
from pymc_dp.methods.method import (
    BY_ROUNDS,
    EXPECTATION_PROPAGATION,
    Compiled,
    Draws,
    Method,
    OnScale,
    Values,
    beside,
    chain,
    quoted,
    uncentred,
)
from pymc_dp.methods.mixture.model import Components, MixtureModel, components
from pymc_dp.methods.mixture.sketch import sketch_start
from pymc_dp.methods.normal import (
    Average,
    GaussianPosterior,
    NoisyAverage,
    Solved,
    cavity,
    floored,
    number_of,
    site_share,
    solve,
    spectral_edge,
    with_eigenvalues,
    within_trust_region,
)
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch, Noisy, Query, RowContribution


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    releases: int = 20
    noiseless_releases: int = 100
    step: float = 0.5  # h in lambda <- (1 - h) lambda + h (sum of sites)
    # factors of the precisions and of the count in a record's vector
    precision_scale: float = 0.5
    number_scale: float = 0.3
    start_precision: float = 2.5  # precision of the components' means at the start, in records
    least_share: float = 0.03  # a component has at least this share of the records
    averaged: float = 2 / 3  # the last share of the releases is averaged
    least_concentration: float = 0.1  # the least concentration of a weight
    trust_radius: float = 1.0  # prior standard deviations that a step moves the means by at most


DEFAULTS = Defaults()


class Context(NamedTuple):
    """The cavity at which sites of a batch are taken: public values."""

    mean: np.ndarray  # of all Gaussian latents
    covariance: np.ndarray  # of each component's own latents
    concentration: np.ndarray  # of the weights


class Sites(NamedTuple):
    """Sites or sums of sites, in units in which one record's precision is the identity."""

    score: Any  # nu - Lambda m, with m the cavity's mean
    precision: Any
    weights: Any
    number: Any  # the number of records


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
    settings: SepOptions
    releases: int

    def number(self, sums: NoisyAverage[Sites]) -> float:
        """Take the declared number of records, else the released one, as far as it is known."""
        return number_of(self.settings.records_in_sums, sums.value.number, sums.variance.number)

    def expand(self, precision: np.ndarray) -> np.ndarray:
        """Bring precisions from a record's units to all Gaussian latents, (d, d)."""
        blocks, d = self.model.blocks, self.model.prior.d
        expanded = np.zeros((d, d))
        inside = self.root @ precision @ self.root
        expanded[blocks[:, :, None], blocks[:, None, :]] = inside
        return expanded

    def within(self, covariance: np.ndarray) -> np.ndarray:
        """Covariance of each component's own latents, (K, d, d)."""
        blocks = self.model.blocks
        return np.asarray(covariance[blocks[:, :, None], blocks[:, None, :]])

    def concentration(self, weights: np.ndarray) -> np.ndarray:
        """Concentration of the weights, from their sites."""
        least = DEFAULTS.least_concentration
        return np.asarray(np.maximum(self.model.concentration + weights, least))


def build(records: Records, model: MixtureModel, settings: SepOptions) -> Method | OnScale:
    """Build a method for a mixture: by default rounds, else stochastic expectation propagation.

    **Privacy.** Each release of sites is one vector: sites of the components' means in a record's
    own units, sites of the weights and a one, clipped jointly. Before these, or before rounds,
    components that are equal at the public initial point take one release of a sketch
    (`sketch_start`). All else is post-processing.
    """
    sketched = sketch_start(records, model, settings.records_in_sums)
    rounds = settings.rounds_from(lambda: sketched)
    if rounds:
        return rounds
    if sketched is None and not model.starts_distinct:
        raise NotSeparableError(
            f"The components of {quoted(records.term_names)} begin at one point, where their sites "
            "are equal, and see a record at different places, so no sketch shows them: give "
            "initial values that differ, by initval= or public_start=."
        )
    count = DEFAULTS.releases if settings.noisy else DEFAULTS.noiseless_releases
    # the norm of a record that certainly belongs to one component
    per_latent = 1 + DEFAULTS.precision_scale**2
    typical = model.blocks.shape[1] * per_latent + (model.weights is not None)
    release = settings.release_spec(count, typical**0.5)
    fit = _Fit(model, with_eigenvalues(model.curvature, np.sqrt), settings, release.count)
    method = Method(
        size=layout_of(*model.blocks.shape).size,
        releases=(release,),
        compile=lambda backend: Compiled(
            {"sites": contribution(components(records, model, backend), model, fit.root)},
            partial(_update, fit),
        ),
        init=lambda rng: _begin(fit, model.prior.point(model.start)),
        query=lambda state, rng: Query("sites", state.context),
        posterior=partial(_draw, fit),
        noise_aware=beside(partial(_draw, fit), partial(_draw_with_noise, fit)),
        describe=partial(_describe, records, fit),
        trace=lambda state: {"mean_path": (("gaussian",), state.mean)},
        settings={"form": "damped"},
        algorithms=(EXPECTATION_PROPAGATION,),
        doubts=lambda state: (uncentred(records.term_names, BY_ROUNDS),) if settings.noisy else (),
        defaults=(DEFAULTS,),
    )
    return chain(*sketched.stages(method, partial(_begin, fit))) if sketched else method


def _begin(fit: _Fit, values: Values) -> State:
    model, (count, d) = fit.model, fit.model.blocks.shape
    mean = np.concatenate([x.ravel() for x in values.values()])
    precision = DEFAULTS.start_precision * np.tile(np.eye(d), (count, 1, 1))
    sites = Sites(np.zeros((count, d)), precision, np.zeros(count), np.zeros(()))
    solved = solve(model.prior, lambda gammas: fit.expand(precision), mean, model.prior.start())
    context = Context(mean, fit.within(solved.covariance), model.concentration)
    sums = NoisyAverage(sites, Sites(*np.zeros(4)))
    average = Average(mean, *np.zeros((3, *solved.covariance.shape)))
    return State(0, sums, context, mean, solved, average)


def layout_of(count: int, d: int) -> Layout:
    """Lay out the `Sites` of a record, for K components with d latents each."""
    precision = Part((count, d, d), DEFAULTS.precision_scale, symmetric=True)
    weights, number = Part((count,)), Part((), DEFAULTS.number_scale)
    return Layout(Sites(Part((count, d)), precision, weights, number)._asdict())


def contribution(compute: Components, model: MixtureModel, root: np.ndarray) -> RowContribution:
    """Contribute sites of means and weights, and a one; the context is a `Context`."""
    count, d = model.blocks.shape
    layout, unknown = layout_of(count, d), model.weights is not None

    def prepare(batch: Batch, context: Context) -> np.ndarray:
        sites = sites_of(*compute(batch, context.mean), model.curvature, root, context)
        return layout.pack(sites._replace(weights=unknown * sites.weights)._asdict())

    return RowContribution(layout.size, 8 * count * d * d, lambda rows, context: rows, prepare)


def sites_of(
    joint: np.ndarray, slope: np.ndarray, curvature: np.ndarray, root: np.ndarray, context: Context
) -> Sites:
    """Match moments of cavity times likelihood, and divide by the cavity.

    ``joint``, (rows, K), holds log joint densities at the cavity's mean, with even weights, and
    ``slope``, (rows, K, d), their slopes in each component's own latents. ``curvature`` and
    ``root``, (K, d, d), are the precision H of one record, and its symmetric root.
    """
    factor, share, out = basis_of(context.covariance, curvature, root)
    slope = np.einsum("kde,nkd->nke", factor, slope)
    shift = share * slope
    # log Z_k = l_k(m) + g' (V^-1 + H)^-1 g / 2 - log |I + V H| / 2, times the weight's mean
    log_z = joint + np.vecdot(slope, shift) / 2
    log_z = log_z + np.log(share).sum(axis=1) / 2 + np.log(context.concentration)
    r = softmax(log_z, axis=1)[..., None]
    # the tilted covariance is diag(variance) + r (1 - r) shift shift'
    variance = 1 - r + r * share
    along = shift / variance
    shrunk = 1 / (1 + r * (1 - r) * np.vecdot(shift, along)[..., None])
    score = np.einsum("kde,nke->nkd", out, r * shrunk * along)
    diagonal = np.einsum("kde,nke,kfe->nkdf", out, 1 / variance - 1, out)
    along = np.einsum("kde,nke->nkd", out, np.sqrt(r * (1 - r) * shrunk) * along)
    precision = diagonal - along[..., :, None] * along[..., None, :]
    weights = weight_sites(r[..., 0], context.concentration)
    return Sites(score, precision, weights, np.ones(len(r)))


def basis_of(
    covariance: np.ndarray, curvature: np.ndarray, root: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Diagonalise V and H together: F with F F' = V, shares, and a map to a record's units."""
    lower = np.linalg.cholesky(covariance)
    values, vectors = np.linalg.eigh(np.swapaxes(lower, -1, -2) @ curvature @ lower)
    factor = lower @ vectors
    out = np.linalg.inv(root) @ np.swapaxes(np.linalg.inv(factor), -1, -2)
    return factor, 1 / (1 + np.maximum(values, 0.0)), out


def weight_sites(r: np.ndarray, concentration: np.ndarray) -> np.ndarray:
    """Match means and the sum of variances of sum_k r_k Dirichlet(a + e_k) (Minka 2001)."""
    total = concentration.sum()
    mean = (concentration + r) / (total + 1)
    second = concentration * (concentration + 1) + 2 * r * (concentration + 1)
    second = second / ((total + 1) * (total + 2))
    spread = (second - mean**2).sum(axis=1, keepdims=True)
    matched = (mean - second).sum(axis=1, keepdims=True) / np.maximum(spread, 1e-300)
    return np.asarray(matched * mean - concentration)


def _update(fit: _Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Damp the sites, move the means by the scores at the cavity, then take out one site."""
    h = DEFAULTS.step if fit.settings.step is None else fit.settings.step
    sd, centre = noisy.sd / noisy.sample_rate, query.context.mean
    layout, d = layout_of(*fit.model.blocks.shape), fit.model.blocks.shape[1]
    latest = Sites(**layout.unpack(noisy.value / noisy.sample_rate))
    sums = state.sums.add(latest, Sites(**layout.noise_variance(sd)), h)
    number = fit.number(sums)
    least = max(spectral_edge(sums.variance.precision, d), DEFAULTS.least_share * number)
    precision = fit.expand(floored(sums.value.precision, least))
    solved = solve(fit.model.prior, lambda gammas: precision, state.mean, state.solved.gammas)
    slope = solved.linear - solved.precision @ centre
    slope[fit.model.blocks] += np.einsum("kde,ke->kd", fit.root, latest.score)
    move = centre + h * solved.covariance @ slope + (1 - h) * (state.mean - centre) - state.mean
    mean = state.mean + within_trust_region(move, np.diag(solved.precision), DEFAULTS.trust_radius)
    fresh = solved.covariance @ fit.expand(sd**2 * np.eye(d)) @ solved.covariance
    centre, covariance = cavity(solved.linear, solved.precision, precision, mean, number)
    left = fit.concentration((1 - site_share(number)) * sums.value.weights)
    context = Context(centre, fit.within(covariance), left)
    weight = 1 / max(1, state.t + 1 - round((1 - DEFAULTS.averaged) * fit.releases))
    average = state.average.add(mean, fresh, h, weight)
    return State(state.t + 1, sums, context, mean, solved, average)


def _posterior(fit: _Fit, state: State) -> GaussianPosterior:
    """Multiply prior and sites; a component keeps at least a few records."""
    sites, mean = state.sums.value, state.average.mean
    least = DEFAULTS.least_share * fit.number(state.sums)
    precision = fit.expand(floored(sites.precision, least))
    solved = solve(fit.model.prior, lambda gammas: precision, mean, state.solved.gammas)
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
    if name := fit.model.weights:
        eta = (fit.concentration(state.sums.value.weights) - 1,)
        described = described.assign(natural_parameters(records, {name: DIRICHLET}, {name: eta}))
        described[f"{name}_noise_sd"] = state.sums.variance.weights**0.5
    return described
