"""Gaussian posteriors of linear predictors from noisy scores and curvatures.

Methods differ in how they make a likelihood quadratic, and in where they ask the next batch.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from pymc_dp.methods.blocks.averaging import Average, blend, number_of
from pymc_dp.methods.blocks.gaussian_posterior import GaussianPosterior
from pymc_dp.methods.blocks.gaussian_prior import Gammas, GaussianPrior
from pymc_dp.methods.linear.clipping import (
    LOOSE,
    TIGHT,
    Scale,
    first_scale,
    rescaled,
    with_residual,
)
from pymc_dp.methods.linear.link import GAUSSIAN
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.methods.linear.quadratic import (
    Asked,
    Expect,
    Scales,
    Sums,
    contribution,
    noise_of,
    size_of,
    split,
)
from pymc_dp.methods.linear.solve import Solved, solve, told_of
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.query import Noisy, Query
from pymc_dp.records import Records
from pymc_dp.release import Release

FIRST_STEP = 1.0
RELEASES = 10
# without noise, more steps cost nothing
NOISELESS_RELEASES = 100


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them.

    Attributes
    ----------
    t : int
    averages, variances : Sums
        Released sums, averaged with steps rho_t, and the noise's variance on an entry of each.
    asked : Asked
        Where the next batch is asked, and with which scales.
    scale : Scale
        Its clip norm, and the length of a record that this was made for.
    mean : (d,)
    average : Average
        Of the means along the fit.
    covariance : (d, d)
        The posterior's.
    gammas : {latent: natural parameters}
    """

    t: int
    averages: Sums
    variances: Sums
    asked: Asked
    scale: Scale
    mean: np.ndarray
    average: Average
    covariance: np.ndarray
    gammas: Gammas


class Form(NamedTuple):
    """How likelihoods are made quadratic, and how the mean follows from the sums.

    Attributes
    ----------
    title : str
    expect : (records, predictor, backend) -> Expect
    centre : (psi without the latents, psi at their mean) -> psi
        Where a record's score is taken.
    advance : (solved, averages, latest, mean, step) -> mean
    believe : (solved, mean, number of records) -> (mean, covariance)
        Where the next batch is asked.
    scales : Scale -> Scales
    noise : (variances of the noise, weights, mean) -> (d, d)
        Covariance of a release's noise on what the step multiplies by V.
    step : float or None
        None where the mean follows the averages of sums, and is as old as they are.
    """

    title: str
    expect: Callable[[Records, Predictor, str], Expect]
    centre: Callable[[np.ndarray, np.ndarray], np.ndarray]
    advance: Callable[[Solved, Sums, Sums, np.ndarray, float], np.ndarray]
    believe: Callable[[Solved, np.ndarray, float], tuple[np.ndarray, np.ndarray]]
    scales: Callable[[Scale], Scales]
    noise: Callable[[Sums, np.ndarray, np.ndarray], np.ndarray]
    step: float | None


class Settings(Protocol):
    """What a method's settings must say."""

    @property
    def num_records(self) -> int | None:
        """Declared number of records."""

    @property
    def noise(self) -> float:
        """Relative noise multiplier: 1 or 0."""

    @property
    def noise_aware(self) -> bool:
        """Whether posteriors shall include the privacy noise."""

    @property
    def clip_norm(self) -> float | None:
        """None: it follows the first release."""

    @property
    def feature_bound(self) -> float:
        """Public bound on the norm of a record's features."""

    def rate(self, t: int) -> float:
        """Weight of release t in the averages of sums."""

    def as_release(self, count: int, clip_norm: float) -> Release:
        """Describe the releases of one fit, given the defaults."""


class Structure(NamedTuple):
    """A model with linear predictors and conjugate priors."""

    predictors: tuple[Predictor, ...]
    prior: GaussianPrior


def build(records: Records, structure: Structure, settings: Settings, form: Form) -> Method:
    """Build a method for linear predictors.

    Notes
    -----
    **Privacy.** Each release is one vector: score, curvature (its upper triangle, off-diagonals
    times sqrt 2), noise statistics and a one, clipped jointly. The clip norm of all releases but
    the first is a function of the first. All else is post-processing.
    """
    predictors, prior = structure
    start = first_scale(records, predictors, prior.d, settings.clip_norm, settings.feature_bound)
    count = RELEASES if settings.noise else NOISELESS_RELEASES
    release = settings.as_release(count, start.clip_norm)
    fit = _Fit(structure, form, settings, start, release.count)

    def compile_parts(backend: str) -> Compiled:
        expects = [form.expect(records, predictor, backend) for predictor in predictors]
        sums = contribution(
            records, predictors, prior.d, expects, form.centre, settings.feature_bound, backend
        )
        return Compiled({release.name: sums}, partial(_update, fit))

    return Method(
        size=size_of(prior.d, predictors),
        releases=(release,),
        compile=compile_parts,
        init=lambda rng: _init(fit),
        query=lambda state, rng: Query(release.name, state.asked, state.scale.clip_norm),
        posterior=lambda state, draws, rng: _posterior(fit, state).draw(prior, draws, rng),
        noise_aware=lambda state, draws, rng: _posterior(fit, state).draw_with_noise(
            prior, draws, rng
        ),
        describe=lambda state: _posterior(fit, state).describe(records, prior),
        trace=lambda state: {
            "mean_path": (("gaussian",), state.mean),
            "clip_norm": ((), state.scale.clip_norm),
        },
        settings={"form": form.title},
    )


def roles_of(
    records: Records, structure: Structure, how: Callable[[Predictor], str]
) -> dict[str, str]:
    """Say what each latent is to the updates, and ``how`` each term is taken."""
    told = dict.fromkeys(structure.prior.shapes, "one Gaussian vector with full covariance")
    told |= dict.fromkeys(structure.prior.gammas, "Gamma block: precision of Gaussian latents")
    for name, found in zip(records.term_names, structure.predictors, strict=True):
        if found.precision:
            told[found.precision] = "Gamma block: noise precision"
        told[name] = f"linear predictor, {how(found)}"
    return told


class _Fit(NamedTuple):
    """What the updates of one fit share; public values and compiled priors."""

    structure: Structure
    form: Form
    settings: Settings
    start: Scale
    releases: int

    @property
    def precisions(self) -> tuple[str | None, ...]:
        """The noise precision of each predictor that has one."""
        return tuple(predictor.precision for predictor in self.structure.predictors)

    @property
    def tightest(self) -> float:
        """The least clip norm in typical lengths: noise can be accounted for, bias cannot."""
        return LOOSE if self.settings.noise_aware else TIGHT

    @property
    def quadratic(self) -> bool:
        """Whether one step ends at the optimum, whatever the mean."""
        return all(predictor.form == GAUSSIAN for predictor in self.structure.predictors)


def _init(fit: _Fit) -> State:
    names, prior = fit.precisions, fit.structure.prior
    d, count = prior.d, len(names)
    of_noise = np.zeros(count)
    nothing = Sums(np.zeros((count, d)), np.zeros((count, d, d)), of_noise, of_noise, np.zeros(()))
    quiet = Sums(*np.zeros(5))
    solved = solve(names, prior, nothing, quiet, np.zeros(d), prior.start())
    mean, covariance = solved.covariance @ solved.linear, solved.covariance
    scale = _following(fit, fit.start, solved)
    asked = Asked(mean, 0 * covariance, fit.form.scales(scale))
    average = Average.start(mean)
    return State(0, nothing, quiet, asked, scale, mean, average, covariance, solved.gammas)


def _update(fit: _Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Average the sums, update precisions, then move the mean."""
    names, prior = fit.precisions, fit.structure.prior
    t, asked = state.t, state.asked
    sd = noisy.sd / noisy.sample_rate
    latest = split(noisy.value / noisy.sample_rate, prior.d, len(names), asked.scales)
    noise = noise_of(sd, asked.scales)
    # the first release is a pilot: it enters no average
    rho = fit.settings.rate(max(t - 1, 0))
    averages = blend(state.averages, latest, 1 - rho, rho)
    variances = blend(state.variances, noise, (1 - rho) ** 2, rho**2)
    solved = solve(names, prior, averages, variances, asked.mean, state.gammas)
    later = rho if fit.form.step is None else fit.form.step
    step = FIRST_STEP if t < 2 else later
    mean = fit.form.advance(solved, averages, latest, asked.mean, step)
    mean = mean + (1 - step) * (state.mean - asked.mean)
    if not fit.quadratic:
        mean = solved.within_reach(state.mean, mean)
    number = number_of(fit.settings.num_records, averages.number, variances.number)
    believed = fit.form.believe(solved, mean, number)
    scale = state.scale
    if t == 0:
        scale = rescaled(scale, latest, noise, fit.releases, fit.tightest)
    scale = _following(fit, scale, solved)
    # weights of the average of the means grow like t
    weight = 2 / (t + 1) if t else 1.0
    of_release = fit.form.noise(noise, solved.weights, mean)
    return State(
        t + 1,
        averages,
        variances,
        Asked(*believed, fit.form.scales(scale)),
        scale,
        mean,
        state.average.add(
            mean, solved.step_covariance @ of_release @ solved.step_covariance, step, weight
        ),
        solved.covariance,
        solved.gammas,
    )


def noise_of_score(noise: Sums, weights: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Noise where curvatures only precondition."""
    return noise.score * (weights @ weights) * np.eye(len(mean))


def noise_of_both(noise: Sums, weights: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Noise where the mean solves (S + E) m = g: E m has covariance s^2 (|m|^2 I + m m') / 2."""
    curvature = noise.curvature * (weights @ weights)
    of_mean = (mean @ mean) * np.eye(len(mean)) + np.outer(mean, mean)
    return noise_of_score(noise, weights, mean) + curvature / 2 * of_mean


def _following(fit: _Fit, scale: Scale, solved: Solved) -> Scale:
    """Let the clip norm follow the noise precisions, where the model has any."""
    told = [w for name, w in zip(fit.precisions, solved.weights, strict=True) if name]
    return with_residual(scale, float(min(told) ** -0.5)) if told else scale


def _posterior(fit: _Fit, state: State) -> GaussianPosterior:
    released = fit.precisions, state.averages, state.variances
    told = {n: told_of(n, eta, *released) for n, eta in state.gammas.items() if n in fit.precisions}
    return GaussianPosterior(
        state.average.mean, state.covariance, state.average.noise, state.gammas, told
    )
