"""Gaussian posteriors of linear predictors from noisy scores and curvatures.

Methods differ in how they make a likelihood quadratic, and in where they take scores.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions.layout import Layout
from pymc_dp.methods.algorithm import Algorithm
from pymc_dp.methods.doubts import BY_ROUNDS, Doubt, uncentred
from pymc_dp.methods.linear.clipping import Scale, bounds_of, first_scale, rescaled
from pymc_dp.methods.linear.defaults import DEFAULTS
from pymc_dp.methods.linear.link import GAUSSIAN, OTHER
from pymc_dp.methods.linear.noise_precision import TINY
from pymc_dp.methods.linear.options import LinearOptions
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.methods.linear.quadratic import Context, Expect, Sums, contribution, layout_of
from pymc_dp.methods.linear.residual_energy import energy_of
from pymc_dp.methods.linear.solve import Solved, solve
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.normal import (
    Average,
    GaussianPosterior,
    GaussianPrior,
    NoisyAverage,
    number_of,
)
from pymc_dp.model import Records
from pymc_dp.privacy.query import Noisy, Query


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them."""

    t: int
    sums: NoisyAverage[Sums]  # released sums, averaged with weights rho_t
    context: Context  # of the next batch
    scale: Scale  # its clip norm, and the length of a record that this was made for
    mean: np.ndarray
    average: Average  # of the means along the fit
    solved: Solved


class Form(NamedTuple):
    """How likelihoods are made quadratic, and how the mean follows from the sums."""

    title: str
    algorithm: Algorithm
    expect: Callable[[Records, Predictor, str], Expect]  # (records, predictor, backend) -> Expect
    # (solved, mean, number of records) -> (mean, covariance): posterior or cavity for the next
    # batch
    next_context: Callable[[Solved, np.ndarray, float], tuple[np.ndarray, np.ndarray]]
    scaled: Callable[[Layout, Scale], Layout]
    # length of a Newton step along the latest score. None in the absolute form, whose mean solves
    # with the averages of sums, and is as old as they are
    step: float | None
    defaults: tuple[Any, ...] = ()  # tuned constants that the form reads

    def noise(self, noise: Sums, weights: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Covariance (d, d) of a release's noise on what the step multiplies by V.

        In Newton steps curvatures only precondition. The absolute form solves (S + E) m = g, where
        E m has covariance s^2 (|m|^2 I + m m') / 2.
        """
        identity, length = np.eye(len(mean)), weights @ weights
        covariance: np.ndarray = noise.score * length * identity
        if self.step is None:
            of_mean = (mean @ mean) * identity + np.outer(mean, mean)
            covariance = covariance + noise.curvature * length / 2 * of_mean
        return covariance


class Structure(NamedTuple):
    """A model with linear predictors and conjugate priors."""

    predictors: tuple[Predictor, ...]
    prior: GaussianPrior

    @property
    def precisions(self) -> tuple[str | None, ...]:
        """The noise precision of each predictor that has one."""
        return tuple(predictor.precision for predictor in self.predictors)


def build(records: Records, structure: Structure, settings: LinearOptions, form: Form) -> Method:
    """Build a method for linear predictors.

    **Privacy.** Each release is one vector: score, curvature (its upper triangle, off-diagonals
    times sqrt 2), noise statistics and a one, clipped jointly. The clip norm of all releases but
    the first is a function of the first. All else is post-processing.
    """
    predictors, prior = structure
    # that of all releases; None where it is to follow the first
    clip_norm = settings.clip_norm
    if clip_norm is None and not settings.noisy:
        clip_norm = math.inf
    start = first_scale(records, predictors, prior.d, clip_norm, settings.feature_bound)
    count = DEFAULTS.releases if settings.noisy else DEFAULTS.noiseless_releases
    release = settings.release_spec(count, start.clip_norm)
    fit = _Fit(structure, form, settings, start, release.count)

    def compile_parts(backend: str) -> Compiled:
        expects = [form.expect(records, predictor, backend) for predictor in predictors]
        sums = contribution(records, predictors, prior.d, expects, settings.feature_bound, backend)
        return Compiled({release.name: sums}, partial(_update, fit))

    return Method(
        size=layout_of(len(predictors), prior.d).size,
        releases=(release,),
        compile=compile_parts,
        init=lambda rng: _init(fit),
        query=lambda state, rng: Query(release.name, state.context, state.scale.clip_norm),
        posterior=lambda state, draws, rng: _posterior(state).draw(prior, draws, rng),
        noise_aware=lambda state, draws, rng: _posterior(state).draw_with_noise(prior, draws, rng),
        describe=lambda state: _posterior(state).describe(records, prior),
        trace=lambda state: {
            "mean_path": (("gaussian",), state.mean),
            "clip_norm": ((), state.scale.clip_norm),
        },
        settings={"form": form.title},
        algorithms=(form.algorithm,),
        doubts=lambda state: _doubts(records, predictors) if settings.noisy else (),
        defaults=(DEFAULTS, *form.defaults),
    )


def _doubts(records: Records, predictors: tuple[Predictor, ...]) -> tuple[Doubt, ...]:
    pairs = zip(records.term_names, predictors, strict=True)
    skewed = [name for name, found in pairs if found.form == OTHER]
    return (uncentred(skewed, BY_ROUNDS),) if skewed else ()


def roles_of(
    records: Records, structure: Structure, how: Callable[[Predictor], str]
) -> dict[str, str]:
    """Describe the role of each latent in the updates, and ``how`` each term is treated."""
    roles = dict.fromkeys(structure.prior.shapes, "one Gaussian vector with full covariance")
    roles |= {name: structure.prior.role(name) for name in structure.prior.gammas}
    for name, found in zip(records.term_names, structure.predictors, strict=True):
        if found.precision:
            roles[found.precision] = structure.prior.role(found.precision, "the noise")
        roles[name] = f"linear predictor, by rounds; without privacy {how(found)}"
    return roles


class _Fit(NamedTuple):
    """What the updates of one fit share; public values and compiled priors."""

    structure: Structure
    form: Form
    settings: LinearOptions
    start: Scale
    releases: int

    def weights(self, t: int, rho: float) -> Sums:
        """Weights of release t in the averages: those of the energies grow like a power of t.

        Residuals around early means are too long.
        """
        power = DEFAULTS.energy_power
        later = min(1.0, (power + 1) / (t + power)) if self.settings.noisy else rho
        return Sums(rho, rho, rho, later, rho)


def _init(fit: _Fit) -> State:
    names, prior = fit.structure.precisions, fit.structure.prior
    layout = layout_of(len(names), prior.d)
    sums = NoisyAverage(Sums(**layout.unpack(np.zeros(layout.size))), Sums(*np.zeros(5)))
    solved = solve(names, prior, sums, np.zeros(prior.d), prior.start())
    mean, scale = solved.covariance @ solved.linear, fit.start.following(solved.noise_precisions)
    context = _context(fit, (mean, 0 * solved.covariance), scale, solved)
    return State(0, sums, context, scale, mean, Average.start(mean), solved)


def _context(
    fit: _Fit, moments: tuple[np.ndarray, np.ndarray], scale: Scale, solved: Solved
) -> Context:
    """Take the next batch at these moments, and at the precisions that were found."""
    layout = fit.form.scaled(layout_of(len(fit.structure.predictors), fit.structure.prior.d), scale)
    return Context(*moments, layout, solved.weights, bounds_of(layout, scale))


def _latest(state: State, noisy: Noisy, weights: Sums) -> tuple[Sums, Sums]:
    """Read a release, and the variances of its noise; bounded energies become plain ones."""
    # privacy noise in the mean makes residuals longer: what it adds is known on average
    context = state.context
    latest = Sums(**context.layout.unpack(noisy.value / noisy.sample_rate))
    noise = Sums(**context.layout.noise_variance(noisy.sd / noisy.sample_rate))
    if context.bounds is None:
        return latest, noise
    value, variance = state.sums.add(latest, noise, weights)
    shape = np.maximum(value.shape, max(variance.shape**0.5, TINY))
    energy = energy_of(latest.energy, shape) / context.precision
    # half the sum of (x'e)^2, where e is the mean's noise: its expectation and variance
    along = value.curvature @ state.average.of_latest
    added = np.maximum(np.trace(along, axis1=1, axis2=2) / 2, 0.0)
    spread = np.einsum("pij,pji->p", along, along) / 2
    of_energy = noise.energy / context.precision**2 + spread
    return latest._replace(energy=energy - added), noise._replace(energy=of_energy)


def _update(fit: _Fit, state: State, query: Query, noisy: Noisy) -> State:
    prior, t, context = fit.structure.prior, state.t, state.context
    # the first release is a pilot: it enters no average
    rho = fit.settings.rate(max(t - 1, 0))
    weights = fit.weights(t, rho)
    latest, noise = _latest(state, noisy, weights)
    sums = state.sums.add(latest, noise, weights)
    loss = float(fit.start.energy.loss) if context.bounds else 0.0
    solved = solve(fit.structure.precisions, prior, sums, context.mean, state.solved.gammas, loss)
    # as long as the average forgets, if the form has none of its own
    later = rho if fit.form.step is None else fit.form.step
    step = DEFAULTS.first_step if t < 2 else later
    if fit.form.step is None:
        mean = solved.absolute(sums.value)
    else:
        mean = solved.residual(latest, context.mean, step)
    mean = mean + (1 - step) * (state.mean - context.mean)
    if any(found.form != GAUSSIAN for found in fit.structure.predictors):
        mean = solved.step_towards(state.mean, mean)
    scale = state.scale
    if t == 0:
        # noise can be accounted for, bias cannot
        aware = fit.settings.noise_aware
        least = DEFAULTS.noise_aware_clip if aware else DEFAULTS.least_clip
        scale = rescaled(scale, latest, noise, fit.releases, least)
    scale = scale.following(solved.noise_precisions)
    number = number_of(fit.settings.records_in_sums, sums.value.number, sums.variance.number)
    V, of_release = solved.step_covariance, fit.form.noise(noise, solved.weights, mean)
    # weights of the average of the means grow like t
    weight = 2 / (t + 1) if t else 1.0
    return State(
        t=t + 1,
        sums=sums,
        context=_context(fit, fit.form.next_context(solved, mean, number), scale, solved),
        scale=scale,
        mean=mean,
        average=state.average.add(mean, V @ of_release @ V, step, weight),
        solved=solved,
    )


def _posterior(state: State) -> GaussianPosterior:
    solved, average = state.solved, state.average
    blocks = {name: found.draw for name, found in solved.noise.items()}
    return GaussianPosterior(average.mean, solved.covariance, average.noise, solved.gammas, blocks)
