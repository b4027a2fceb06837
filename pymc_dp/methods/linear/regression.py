"""Gaussian posteriors of linear predictors from noisy scores and curvatures.

Methods differ in how they make a likelihood quadratic, and in where they take scores (`Form`).
`build` is the method: it releases the sums of a batch, averages them, and turns the averages into
the next posterior (`solve`), at which the next batch is taken. All of it but the sums is
post-processing.

The precision of Normal noise follows from a noisy sum of the records' energies. The energies e of
records, half their squared residuals say, have densities in which the precision tau stands as
tau^a exp(-tau e). They integrate to 1 whatever tau, so a sum S of energies with coefficients that
sum to A has a Gamma(A, tau) distribution. Where S is released with noise, what is known of S is the
noise's density times what prior and A expect of it: a release that is mostly noise leaves tau where
the prior has it, and cannot carry it away.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import softmax

from pymc_dp.contributions.estimating import AVERAGED, Estimating
from pymc_dp.contributions.layout import Layout
from pymc_dp.engine.method import RoundTerms, by_rounds, check_length, default_length
from pymc_dp.methods.conjugate.blocks import converged
from pymc_dp.methods.conjugate.exponential import GAMMA, Natural
from pymc_dp.methods.linear.predictor import GAUSSIAN, OTHER, Predictor
from pymc_dp.methods.linear.quadratic import (
    DEFAULTS,
    Context,
    Expect,
    Scale,
    Sums,
    bounds_of,
    contribution,
    energy_of,
    first_scale,
    layout_of,
    rescaled,
)
from pymc_dp.methods.method import (
    BY_ROUNDS,
    Algorithm,
    Compiled,
    Doubt,
    Method,
    OnRealLine,
    uncentred,
)
from pymc_dp.methods.normal import (
    Average,
    Gammas,
    GaussianPosterior,
    GaussianPrior,
    NoisyAverage,
    Spectrum,
    expected_precision,
    number_of,
    spectral_edge,
    within_trust_region,
)
from pymc_dp.methods.options import NOISE_AWARE, BatchOptions, option
from pymc_dp.methods.private_start import FindStart
from pymc_dp.model import Records
from pymc_dp.privacy.query import Noisy, Query

# the grid of log S: its points, how often it is narrowed to where the mass is, how far below the
# largest log density there is no mass, and how far from it the search begins
POINTS, ROUNDS, NO_MASS, EXTENT = 301, 5, 40.0, 30.0
# standard deviations of noise that it covers at least
DEVIATIONS = 10.0
TINY = 1e-300


@dataclass(frozen=True, kw_only=True)
class LinearOptions(BatchOptions, ABC):
    """The options of a method that fits linear predictors; None stands for its default."""

    noise_aware: bool = option(True, NOISE_AWARE)
    feature_bound: float = option(
        math.inf, "public bound on the norm of a record's features; longer ones are shortened to it"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.feature_bound > 0:
            raise ValueError(f"feature_bound={self.feature_bound!r} must be above 0.")

    def rounds_from(
        self, find_start: FindStart = lambda: None, estimating: Estimating = AVERAGED
    ) -> OnRealLine | None:
        """Return rounds in whitened coordinates, in the place of the method's own updates.

        By default there are some. Own updates are the reference without noise, and reproduce
        papers: every option that only they have asks for them. Rounds begin where ``find_start``
        says, and ``estimating`` is what a record adds.
        """
        if not self.noise_aware or self.rules_out_rounds:
            return None
        return self._rounds(find_start, estimating)

    def rounds_without_noise(self, estimating: Estimating) -> OnRealLine | None:
        """Return rounds of a fit without noise, which has none by default."""
        if self.noisy or self.rules_out_rounds:
            return None
        return self._rounds(lambda: None, estimating)

    def _rounds(self, find_start: FindStart, estimating: Estimating) -> OnRealLine:
        n = default_length(self.noisy) if self.n is None else check_length(self.n)
        terms = RoundTerms.of(self, n)
        return by_rounds(terms._replace(estimating=estimating), find_start)

    @abstractmethod
    def rate(self, t: int) -> float:
        """Weight of release t = 0, 1, ... in the averages of sums."""


class Structure(NamedTuple):
    """A model with linear predictors and conjugate priors."""

    predictors: tuple[Predictor, ...]
    prior: GaussianPrior

    @property
    def precisions(self) -> tuple[str | None, ...]:
        """The noise precision of each predictor that has one."""
        return tuple(predictor.precision for predictor in self.predictors)


class Energies(NamedTuple):
    """What was released of the records' energies; numbers of one noise precision."""

    shape: float  # A, the sum of coefficients of log tau
    value: float  # the sum of the energies, with noise
    variance: float  # of the noise


class NoisePrecision(NamedTuple):
    """Posterior of a noise precision: a mixture of Gammas over the true sum of energies."""

    prior: Natural  # (a - 1, b) of the prior
    energies: Energies
    sums: np.ndarray  # possible values of the true sum, and their probabilities
    probabilities: np.ndarray

    @classmethod
    def of(cls, prior: Natural, energies: Energies) -> Self:
        """Combine the prior and a release.

        Given S, tau has the Gamma density of shape a + A and rate b + S, and the prior expects S
        with density S^(A - 1) (b + S)^-(a + A).
        """
        a, b = (float(np.asarray(x).item()) for x in prior)
        shape, value, variance = energies
        if variance == 0:
            return cls(prior, energies, np.array([max(value, 0.0)]), np.ones(1))

        def log_density(log_sum: np.ndarray) -> np.ndarray:
            total = np.exp(log_sum)
            expected = shape * log_sum - (a + 1 + shape) * np.log(b + total)
            return np.asarray(expected - (total - value) ** 2 / (2 * variance))

        sd = variance**0.5
        typical = shape * b / (a + 1)
        low = np.log(max(min(typical, max(value, sd)), TINY)) - EXTENT
        high = np.log(max(value, 0.0) + DEVIATIONS * sd + typical)
        log_sums, probabilities = _narrowed(log_density, low, high)
        return cls(prior, energies, np.exp(log_sums), probabilities)

    @property
    def of_records(self) -> tuple[float, float]:
        """Shape and rate that bring the prior to the posterior's expectation of tau."""
        b = self.prior[1]
        rate = 1 / (self.probabilities @ (1 / np.maximum(b + self.sums, TINY)))
        return self.energies.shape, float(rate - b)

    def draw(self, draws: int, rng: np.random.Generator) -> np.ndarray:
        """Draw tau, shape (draws, *shape of the prior's parameters)."""
        a, b = self.prior
        sums = rng.choice(self.sums, draws, p=self.probabilities)
        return np.stack([GAMMA.sample((a + self.energies.shape, b + s), 1, rng)[0] for s in sums])


def _narrowed(
    log_density: Callable[[np.ndarray], np.ndarray], low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return an even grid over all the mass of a density, and the probabilities of its points."""
    for _ in range(ROUNDS):
        points = np.linspace(low, high, POINTS)
        values = log_density(points)
        [some] = np.nonzero(values > values.max() - NO_MASS)
        low, high = points[max(some[0] - 1, 0)], points[min(some[-1] + 1, POINTS - 1)]
    return points, softmax(values)


class Solved(NamedTuple):
    """The posterior that averaged sums imply."""

    # linear, precision: natural parameters of the Gaussian prior at the precisions' expectations
    linear: np.ndarray
    precision: np.ndarray
    weights: np.ndarray  # expected noise precision of each predictor
    noise_precisions: list[float]  # those that are latents
    # posterior covariance: eigenvalues of the curvature that noise made negative count as 0
    covariance: np.ndarray
    step_covariance: np.ndarray  # for steps: eigenvalues below the noise's edge are raised to it
    gammas: Gammas  # {latent: natural parameters}
    noise: dict[str, NoisePrecision]  # {latent: posterior}: those of the gammas that are noise's

    def residual(self, latest: Sums, mean: np.ndarray, step: float) -> np.ndarray:
        """Newton step m + h V (g - (P0 m - h0))."""
        slope = self.weights @ latest.score + self.linear - self.precision @ mean
        return np.asarray(mean + step * self.step_covariance @ slope)

    def step_towards(self, mean: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Go from ``mean`` towards ``wanted``, inside the trust region."""
        precision = np.diag(self.precision)
        move = within_trust_region(wanted - mean, precision, DEFAULTS.trust_radius)
        return np.asarray(mean + move)

    def absolute(self, averages: Sums) -> np.ndarray:
        """The paper's solution m = V (h0 + n1)."""
        return np.asarray(self.step_covariance @ (self.weights @ averages.score + self.linear))


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


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them."""

    t: int
    sums: NoisyAverage[Sums]  # released sums, averaged with weights rho_t
    context: Context  # of the next batch
    scale: Scale  # its clip norm, and the length of a record that this was made for
    mean: np.ndarray
    average: Average  # of the means along the fit
    solved: Solved


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
    skewed = [name for name, predictor in pairs if predictor.form == OTHER]
    return (uncentred(skewed, BY_ROUNDS),) if skewed else ()


def roles_of(
    records: Records, structure: Structure, how: Callable[[Predictor], str]
) -> dict[str, str]:
    """Describe the role of each latent in the updates, and ``how`` each term is treated."""
    roles = dict.fromkeys(structure.prior.shapes, "one Gaussian vector with full covariance")
    roles |= {name: structure.prior.role(name) for name in structure.prior.gammas}
    for name, predictor in zip(records.term_names, structure.predictors, strict=True):
        if predictor.precision:
            roles[predictor.precision] = structure.prior.role(predictor.precision, "the noise")
        roles[name] = f"linear predictor, by rounds; without privacy {how(predictor)}"
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
    """Take the next batch at these moments, and at the precisions of `solve`."""
    layout = fit.form.scaled(layout_of(len(fit.structure.predictors), fit.structure.prior.d), scale)
    return Context(*moments, layout, solved.weights, bounds_of(layout, scale))


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
    if any(predictor.form != GAUSSIAN for predictor in fit.structure.predictors):
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


def solve(
    precisions: tuple[str | None, ...],
    prior: GaussianPrior,
    sums: NoisyAverage[Sums],
    mean: np.ndarray,
    gammas: Gammas,
    loss: float = 0.0,
) -> Solved:
    """Update precisions and Gaussian covariance in turn until they converge.

    ``precisions`` names the noise precision of each predictor that has one; ``loss`` is what
    bounding adds to the variance of their energies, as a share.
    """
    energies = {
        name: energies_of(name, precisions, sums, loss) for name in filter(None, precisions)
    }
    noise: dict[str, NoisePrecision] = {}
    for _ in range(DEFAULTS.rounds if gammas else 1):
        linear, precision = prior.natural(gammas)
        weights = np.array([expected_precision(name, gammas) for name in precisions])
        spectrum = Spectrum.of(np.tensordot(weights, sums.value.curvature, axes=1))
        edge = np.linalg.norm(weights) * spectral_edge(sums.variance.curvature, len(mean))
        covariance = np.linalg.inv(spectrum.floored(0.0) + precision)
        step_covariance = np.linalg.inv(spectrum.floored(DEFAULTS.step_floor * edge) + precision)
        normal = prior.rule(mean, covariance) if gammas else []
        before, gammas = gammas, dict(gammas)
        for name in gammas:
            gammas[name] = of_prior = prior.message(name, gammas, normal)
            if name in energies:
                noise[name] = NoisePrecision.of(of_prior, energies[name])
                both = zip(of_prior, noise[name].of_records, strict=True)
                gammas[name] = tuple(a + b for a, b in both)
        if converged(before, gammas):
            break
    latent = [w for name, w in zip(precisions, weights, strict=True) if name]
    return Solved(linear, precision, weights, latent, covariance, step_covariance, gammas, noise)


def energies_of(
    name: str, precisions: tuple[str | None, ...], sums: NoisyAverage[Sums], loss: float
) -> Energies:
    """Add up the released energies of a noise precision, over its predictors."""
    mine = [i for i, precision in enumerate(precisions) if precision == name]
    value, variance = sums
    # a number of records below its noise's standard deviation is raised to that
    shape = np.maximum(value.shape[mine], max(float(variance.shape) ** 0.5, TINY)).sum()
    energy = float(np.maximum(value.energy[mine], 0.0).sum())
    of_noise = np.broadcast_to(variance.energy, value.energy.shape)[mine].sum()
    # energies of records with one precision have the variance A / tau^2
    return Energies(float(shape), energy, float(of_noise + loss * energy**2 / shape))


def _posterior(state: State) -> GaussianPosterior:
    solved, average = state.solved, state.average
    blocks = {name: precision.draw for name, precision in solved.noise.items()}
    return GaussianPosterior(average.mean, solved.covariance, average.noise, solved.gammas, blocks)
