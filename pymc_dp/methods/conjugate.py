"""Conjugate exponential families, and blocks of latents that have them as priors.

The log density of a conjugate block x is ``<eta, t(x)> + const``. Its derivatives at any one point
determine eta, so sufficient statistics of a user's graph need no pattern matching. The prior of a
block decides its family, and messages at random points prove that it is conjugate.

Expectations under a factorised posterior are then exact: a rule is a list of points whose plain
average reproduces the expectation of a group's sufficient statistics. What reaches one block is
linear in the statistics of every other: its average over the product of rules is its expectation.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import (
    BetaRV,
    DirichletRV,
    ExponentialRV,
    GammaRV,
    InvGammaRV,
    MvNormalRV,
    NormalRV,
)
from pytensor.tensor.type import TensorType, lscalar
from scipy.special import digamma, softmax

from pymc_dp.contributions.gradients import by_record, checked, spread
from pymc_dp.methods.options import NotConjugateError
from pymc_dp.methods.prior import gradients, made_once, two_derivatives
from pymc_dp.model import Records
from pymc_dp.model.batch import RecordGraph
from pymc_dp.model.compilation import function, without_c
from pymc_dp.model.graphs import AnyVariable, Tensor
from pymc_dp.model.split import named_dims
from pymc_dp.privacy.contribution import Batch

Natural = tuple[np.ndarray, ...]
Posterior = dict[str, Natural]  # {latent: natural parameters}


def _unchanged(eta: Natural, reference: np.ndarray, unit: np.ndarray) -> Natural:
    return eta


def uniform(
    *ranges: tuple[float, float],
) -> Callable[[tuple[int, ...], np.random.Generator], Natural]:
    """Draw natural parameters evenly from one range each."""
    return lambda shape, rng: tuple(rng.uniform(*ends, shape) for ends in ranges)


class ExponentialFamily(NamedTuple):
    """One conjugate family; all functions work entry by entry (Dirichlet: row by row)."""

    name: str
    # (log density, x) -> eta: compute eta from the derivatives of a graph in the tensor x
    statistics: Callable[[AnyVariable, Tensor], tuple[Tensor, ...]]
    # eta -> points x: their average reproduces the expectation of every sufficient statistic
    rule: Callable[[Natural], tuple[np.ndarray, ...]]
    # eta -> x: a point of the support where derivatives are taken
    reference: Callable[[Natural], np.ndarray]
    # each natural parameter of the likelihood is at least this many sds of the noise on it, so 0 or
    # more; 1 where at 0 the variance is infinite, None where it may be negative
    deviations: tuple[float | None, ...]
    # (eta, draws, rng) -> (draws, ...)
    sample: Callable[[Natural, int, np.random.Generator], np.ndarray]
    moments: Callable[[Natural], tuple[np.ndarray, np.ndarray]]  # eta -> (mean, standard deviation)
    parameters: tuple[str, ...]  # names of the natural parameters in a result
    # (shape, rng) -> eta: a random proper eta, for probe points
    random_parameters: Callable[[tuple[int, ...], np.random.Generator], Natural]
    # (eta, x, times) -> eta: the density around a point x, which weighs so many times as much
    around: Callable[[Natural, np.ndarray, float], Natural]
    # whiten, restore ((eta, reference, unit) -> eta), linear in eta: to and from coordinates around
    # the reference, in units of one record's curvature, where its statistics have a norm near 1
    whiten: Callable[[Natural, np.ndarray, np.ndarray], Natural] = _unchanged
    restore: Callable[[Natural, np.ndarray, np.ndarray], Natural] = _unchanged


def _normal_statistics(log_density: AnyVariable, x: Tensor) -> tuple[Tensor, ...]:
    """Eta x - Lambda x^2 / 2, as (eta, Lambda)."""
    first, second = two_derivatives(log_density, x)
    return first - x * second, -second


NORMAL = ExponentialFamily(
    name="Gaussian",
    statistics=_normal_statistics,
    rule=lambda eta: (eta[0] / eta[1] + eta[1] ** -0.5, eta[0] / eta[1] - eta[1] ** -0.5),
    reference=lambda eta: eta[0] / eta[1],
    deviations=(None, 1.0),
    whiten=lambda eta, mean, unit: ((eta[0] - eta[1] * mean) / unit**0.5, eta[1] / unit),
    restore=lambda eta, mean, unit: (eta[0] * unit**0.5 + eta[1] * unit * mean, eta[1] * unit),
    sample=lambda eta, draws, rng: rng.normal(
        eta[0] / eta[1], eta[1] ** -0.5, (draws, *eta[0].shape)
    ),
    moments=lambda eta: (eta[0] / eta[1], eta[1] ** -0.5),
    parameters=("precision_mean", "precision"),
    random_parameters=lambda shape, rng: (rng.normal(size=shape), rng.uniform(0.5, 2.0, shape)),
    around=lambda eta, x, times: (x * times * eta[1], times * eta[1]),
)


def _gamma_statistics(log_density: AnyVariable, x: Tensor) -> tuple[Tensor, ...]:
    """A log x - b x, as (a, b); a density has a - 1."""
    first, second = two_derivatives(log_density, x)
    return -(x**2) * second, -(first + x * second)


def _gamma_rule(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    """The two points with the mean of x and the mean of log x."""
    shape, rate = eta[0] + 1, eta[1]
    mean, geometric = shape / rate, np.exp(digamma(shape)) / rate
    upper = mean + np.sqrt(np.maximum(mean**2 - geometric**2, 0.0))
    return upper, geometric * (geometric / upper)


def _gamma_around(eta: Natural, x: np.ndarray, times: float) -> Natural:
    # a shape below 1 has its mode at 0: draws of it would be there
    shape = times * np.maximum(eta[0] + 1, 1.0)
    return shape - 1, shape / x


GAMMA = ExponentialFamily(
    name="Gamma",
    statistics=_gamma_statistics,
    rule=_gamma_rule,
    reference=lambda eta: (eta[0] + 1) / eta[1],
    deviations=(0.0, 1.0),
    whiten=lambda eta, mean, unit: (eta[0], eta[1] * mean),
    restore=lambda eta, mean, unit: (eta[0], eta[1] / mean),
    sample=lambda eta, draws, rng: rng.gamma(eta[0] + 1, 1 / eta[1], (draws, *eta[0].shape)),
    moments=lambda eta: ((eta[0] + 1) / eta[1], np.sqrt(eta[0] + 1) / eta[1]),
    parameters=("log_coefficient", "rate"),
    random_parameters=uniform((0.5, 3.0), (0.5, 2.0)),
    around=_gamma_around,
)


def _beta_statistics(log_density: AnyVariable, p: Tensor) -> tuple[Tensor, ...]:
    """A log p + b log(1 - p), as (a, b); a density has a - 1 and b - 1."""
    first, second = two_derivatives(log_density, p)
    odds = p / (1 - p)
    b = -(p * first + p**2 * second) / (odds * (1 + odds))
    return p * first + odds * b, b


def _beta_rule(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    """The two points with the mean of log p and the mean of log(1 - p)."""
    a, b = eta[0] + 1, eta[1] + 1
    yes, no = np.exp(digamma(a) - digamma(a + b)), np.exp(digamma(b) - digamma(a + b))
    half = (1 + yes**2 - no**2) / 2
    upper = half + np.sqrt(np.maximum(half**2 - yes**2, 0.0))
    return upper, yes * (yes / upper)


def _beta_moments(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    a, b = eta[0] + 1, eta[1] + 1
    mean = a / (a + b)
    return mean, np.sqrt(mean * (1 - mean) / (a + b + 1))


def _beta_around(eta: Natural, p: np.ndarray, times: float) -> Natural:
    count = times * np.maximum(eta[0] + eta[1] + 2, 2.0)
    return count * p - 1, count * (1 - p) - 1


BETA = ExponentialFamily(
    name="Beta",
    statistics=_beta_statistics,
    rule=_beta_rule,
    reference=lambda eta: _beta_moments(eta)[0],
    deviations=(0.0, 0.0),
    sample=lambda eta, draws, rng: rng.beta(eta[0] + 1, eta[1] + 1, (draws, *eta[0].shape)),
    moments=_beta_moments,
    parameters=("log_coefficient", "log_complement_coefficient"),
    random_parameters=uniform((0.5, 3.0), (0.5, 3.0)),
    around=_beta_around,
)


def _dirichlet_statistics(log_density: AnyVariable, p: Tensor) -> tuple[Tensor, ...]:
    """Sum a log p, as (a,); a density has a - 1."""
    [slope] = gradients(log_density, [p])
    return (p * slope,)


def geometric_mean(concentration: np.ndarray) -> np.ndarray:
    """exp(E log p) of Dirichlet rows: the point at which log p has its expectation."""
    total = concentration.sum(axis=-1, keepdims=True)
    return np.asarray(np.exp(digamma(concentration) - digamma(total)))


def _dirichlet_moments(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    concentration = eta[0] + 1
    total = concentration.sum(axis=-1, keepdims=True)
    mean = concentration / total
    return mean, np.sqrt(mean * (1 - mean) / (total + 1))


def _dirichlet_sample(eta: Natural, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw by the logarithms of gamma variables, which do not underflow; one draw at a time."""
    concentration = eta[0] + 1
    values = np.empty((draws, *concentration.shape))
    for value in values:
        log = np.log(rng.standard_gamma(concentration + 1))
        log -= rng.standard_exponential(concentration.shape) / concentration
        value[...] = softmax(log, axis=-1)
    return values


def _dirichlet_around(eta: Natural, p: np.ndarray, times: float) -> Natural:
    total = (eta[0] + 1).sum(axis=-1, keepdims=True)
    return (times * np.maximum(total, p.shape[-1]) * p - 1,)


DIRICHLET = ExponentialFamily(
    name="Dirichlet",
    statistics=_dirichlet_statistics,
    rule=lambda eta: (geometric_mean(eta[0] + 1),),
    reference=lambda eta: _dirichlet_moments(eta)[0],
    deviations=(0.0,),
    sample=_dirichlet_sample,
    moments=_dirichlet_moments,
    parameters=("log_coefficient",),
    random_parameters=uniform((0.5, 3.0)),
    around=_dirichlet_around,
)


# One over an inverse gamma variance x is a Gamma precision; the log density -a log x - b / x has
# the coefficients (a, b) of the same likelihood in the precision.


def of_precision(eta: Natural) -> Natural:
    """Turn the density of a variance into that of the precision: x = 1 / tau, dx = dtau / tau^2."""
    return np.asarray(eta[0] - 2), eta[1]


def of_variance(eta: Natural) -> Natural:
    """Undo `of_precision`."""
    return np.asarray(eta[0] + 2), eta[1]


def _inverse_gamma_statistics(log_density: AnyVariable, x: Tensor) -> tuple[Tensor, ...]:
    """-a log x - b / x, as (a, b); a density has a + 1."""
    first, second = two_derivatives(log_density, x)
    b = -(x**2) * (first + x * second)
    return b / x - x * first, b


def _inverse_gamma_moments(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    """Infinite where the density's tail is too heavy."""
    shape, rate = eta[0] - 1, eta[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(shape > 1, rate / (shape - 1), np.inf)
        return mean, np.where(shape > 2, mean / np.sqrt(np.maximum(shape - 2, 0.0)), np.inf)


INVERSE_GAMMA = ExponentialFamily(
    name="inverse gamma",
    statistics=_inverse_gamma_statistics,
    # the two points with the mean of log x and the mean of 1 / x
    rule=lambda eta: tuple(1 / tau for tau in GAMMA.rule(of_precision(eta))),
    reference=lambda eta: 1 / GAMMA.reference(of_precision(eta)),
    deviations=(0.0, 1.0),
    sample=lambda eta, draws, rng: 1 / GAMMA.sample(of_precision(eta), draws, rng),
    moments=_inverse_gamma_moments,
    parameters=("log_inverse_coefficient", "inverse_coefficient"),
    random_parameters=uniform((2.5, 5.0), (0.5, 2.0)),
    around=lambda eta, x, times: of_variance(GAMMA.around(of_precision(eta), 1 / x, times)),
    whiten=lambda eta, at, unit: (eta[0], eta[1] / at),
    restore=lambda eta, at, unit: (eta[0], eta[1] * at),
)


class NoisyBlock(NamedTuple):
    """Natural parameters of one block, with noise on the part that was released."""

    prior: Natural  # the prior's part
    likelihood: Natural  # the likelihood's part, as released
    variances: Natural  # of the noise on every entry of it


def within_bounds(family: ExponentialFamily, likelihood: Natural, variances: Natural) -> Natural:
    """Raise natural parameters of the likelihood to their lower bounds."""
    each = zip(likelihood, variances, family.deviations, strict=True)
    return tuple(x if k is None else np.maximum(x, k * v**0.5) for x, v, k in each)


def draw(
    family: ExponentialFamily, block: NoisyBlock, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw a block, each draw with its own noise on what was released.

    That is the posterior of the true sums where nothing else is known about them.
    """
    values = []
    for _ in range(draws):
        noise = tuple(v**0.5 * rng.standard_normal(v.shape) for v in block.variances)
        if family is NORMAL:
            noise = _noise_of_normal(block, noise[1], rng)
        likelihood = tuple(a + b for a, b in zip(block.likelihood, noise, strict=True))
        likelihood = within_bounds(family, likelihood, block.variances)
        eta = tuple(a + b for a, b in zip(block.prior, likelihood, strict=True))
        values.append(family.sample(eta, 1, rng)[0])
    return np.stack(values)


def _noise_of_normal(block: NoisyBlock, precision: np.ndarray, rng: np.random.Generator) -> Natural:
    """Noise of eta = score + mean * precision: the two parts are released with noise each."""
    bounded = within_bounds(NORMAL, block.likelihood, block.variances)
    mean = (block.prior[0] + bounded[0]) / (block.prior[1] + bounded[1])
    of_score = np.maximum(block.variances[0] - mean**2 * block.variances[1], 0.0)
    score = of_score**0.5 * rng.standard_normal(precision.shape)
    return score + mean * precision, precision


# --- blocks ------------------------------------------------------------------------------------

Point = dict[str, np.ndarray]
Rule = list[Point]
# (rows, point of all latents, values of further inputs) -> values of graphs
AtPoint = Callable[..., tuple[np.ndarray, ...]]
# relative difference of values that count as equal; graphs are evaluated in double precision
TOLERANCE = 1e-6
# most rounds of updates over blocks whose priors depend on each other; they use released values
ROUNDS = 50
# the prior's random variable decides the family of a block; the graph must then prove it conjugate
FAMILY_OF = {
    NormalRV: NORMAL,
    GammaRV: GAMMA,
    ExponentialRV: GAMMA,
    InvGammaRV: INVERSE_GAMMA,
    BetaRV: BETA,
    DirichletRV: DIRICHLET,
}


@dataclass(frozen=True)
class Message:
    """Natural parameters that the prior gives to one block, as a function of a point."""

    # points -> natural parameters, stacked along a first axis
    evaluate: Callable[[Sequence[Point]], Natural]
    needs: tuple[str, ...]  # the latents that it depends on; the block itself may be among them

    def __call__(self, point: Point) -> Natural:
        """Evaluate at a point of at least the latents that are needed."""
        return tuple(part[0] for part in self.evaluate([point]))

    def average(self, rules: Iterable[Rule]) -> Natural:
        """Average over the product of rules."""
        return tuple(part.mean(axis=0) for part in self.evaluate(list(grid(rules))))


class ConjugatePrior(NamedTuple):
    """A prior of conjugate blocks; both mappings are by the latent's name."""

    families: Mapping[str, ExponentialFamily]
    messages: Mapping[str, Message]

    def message(self, name: str, posterior: Mapping[str, Natural]) -> Natural:
        """Expectation of a block's message: its own reference point, the other blocks averaged."""
        message = self.messages[name]
        needed = {other: self.families[other] for other in message.needs}
        return message.average(rules_of(needed, posterior, own=name))

    def coordinate_ascent(
        self,
        names: Iterable[str],
        likelihood: Mapping[str, Natural],
        posterior: Mapping[str, Natural],
        rounds: int = ROUNDS,
    ) -> dict[str, Natural]:
        """Set blocks in turn to prior plus ``likelihood``, if it has them, until they converge."""
        names, posterior = tuple(names), dict(posterior)
        for _ in range(rounds):
            before = dict(posterior)
            for name in names:
                own = self.message(name, posterior)
                added = likelihood.get(name, (0.0,) * len(own))
                posterior[name] = tuple(a + b for a, b in zip(own, added, strict=True))
            if converged(before, posterior):
                break
        return posterior


def converged(first: Mapping[str, Natural], second: Mapping[str, Natural]) -> bool:
    """Whether two posteriors are the same up to rounding."""
    return all(
        np.allclose(a, b, rtol=1e-13, atol=0)
        for name in first
        for a, b in zip(first[name], second[name], strict=True)
    )


def families_of(records: Records, apart: Collection[str] = ()) -> dict[str, ExponentialFamily]:
    """Find the family of every shared latent that is not in ``apart``."""
    families = {}
    for name in records.latents:
        if name in apart:
            continue
        op = records.distributions[name]
        if op not in FAMILY_OF:
            raise NotConjugateError(
                f"`{name}` has a prior ({op.__name__.removesuffix('RV')}) of no conjugate family"
            )
        families[name] = FAMILY_OF[op]
    return families


def gaussian_latents(records: Records) -> list[str]:
    """Names of the latents with Gaussian priors."""
    normal = (NormalRV, MvNormalRV)
    return [name for name in records.latents if issubclass(records.distributions[name], normal)]


def precision_family(records: Records, name: str) -> ExponentialFamily:
    """Return the family of a precision, or of one over it, with (a, b) of a log tau - b tau."""
    return INVERSE_GAMMA if issubclass(records.distributions[name], InvGammaRV) else GAMMA


def conjugate_prior(
    records: Records, families: Mapping[str, ExponentialFamily], rng: np.random.Generator
) -> ConjugatePrior:
    """Compile the prior's messages, and prove at random points that they are conjugate."""
    first, second = (probe_point(records, families, rng) for _ in range(2))
    messages = prior_messages(records, families)
    for name, message in messages.items():
        if not all(map(nearly_equal, message(first), message(first | {name: second[name]}))):
            raise NotConjugateError(f"the prior of `{name}` is not conjugate")
    return ConjugatePrior(families, messages)


def prior_messages(
    records: Records, families: Mapping[str, ExponentialFamily]
) -> dict[str, Message]:
    """Compile the natural parameters that the prior gives to each block."""

    def message(name: str, family: ExponentialFamily) -> Message:
        graphs = partial(family.statistics, records.prior, records.latents[name])
        return at_points(records, (family.name, name), graphs)

    return {name: message(name, family) for name, family in families.items()}


def at_points(
    records: Records, what: Hashable, graphs: Callable[[], Sequence[AnyVariable]]
) -> Message:
    """Compile graphs of the prior, called ``what``, for many points."""
    inputs, rows, needs = made_once(records, what, lambda: _for_points(records, graphs()))
    fn = function(inputs, rows, "python")

    def evaluate(points: Sequence[Point]) -> Natural:
        return tuple(fn(len(points), *[np.stack([at[name] for at in points]) for name in needs]))

    return Message(evaluate, needs)


def _for_points(
    records: Records, graphs: Sequence[AnyVariable]
) -> tuple[list[AnyVariable], list[AnyVariable], tuple[str, ...]]:
    """Return inputs and graphs of many points, and the names of the latents that they read."""
    with without_c():
        # before: shapes of points would be dependences, too. A list: as what it is given
        plain: Any = rewrite_graph(list(graphs), clone=True)
    ancestry = set(ancestors(plain))
    needs = tuple(name for name, latent in records.latents.items() if latent in ancestry)
    count = lscalar("count")
    latents = [records.latents[name] for name in needs]
    many = {x: TensorType(x.type.dtype, (None, *x.type.shape))() for x in latents}
    vectorized: list[AnyVariable] = vectorize_graph(plain, many)
    rows = [spread(each, one, count) for each, one in zip(vectorized, plain, strict=True)]
    return [count, *many.values()], rows, needs


def rules_of(
    families: Mapping[str, ExponentialFamily],
    posterior: Mapping[str, Natural],
    own: str | None = None,
) -> list[Rule]:
    """Return the rule of every block; of the block ``own``, its reference point alone."""

    def points(name: str, family: ExponentialFamily) -> Iterable[np.ndarray]:
        eta = posterior[name]
        return [family.reference(eta)] if name == own else family.rule(eta)

    return [[{name: x} for x in points(name, family)] for name, family in families.items()]


def grid(rules: Iterable[Rule]) -> Iterator[Point]:
    """Combine the points of independent groups in every way."""
    for points in product(*rules):
        yield {name: x for point in points for name, x in point.items()}


def average(fn: Callable[[Point], Any], rules: Iterable[Rule]) -> list[np.ndarray]:
    """Average a function's arrays over the product of rules."""
    values = [fn(point) for point in grid(rules)]
    return [np.mean(parts, axis=0) for parts in zip(*values, strict=True)]


def at_point(
    records: Records,
    graph: RecordGraph,
    outputs: Iterable[AnyVariable],
    further: Sequence[AnyVariable] = (),
    backend: str = "python",
) -> AtPoint:
    """Compile graphs of records, with ``further`` inputs."""
    inputs = [*further, *graph.inputs.values(), *records.latents.values()]
    fn = function(inputs, list(outputs), backend)

    def evaluate(rows: Batch, point: Point, *values: np.ndarray) -> tuple[np.ndarray, ...]:
        leaves = [rows[name] for name in graph.inputs]
        return tuple(fn(*values, *leaves, *[point[name] for name in records.latents]))

    return evaluate


def for_each_row(
    records: Records, one: Sequence[Tensor], backend: str, further: Sequence[AnyVariable] = ()
) -> AtPoint:
    """Compile variables of the graph of one record, for every row of a batch."""
    rows = [checked(records, row) for row in by_record(records, one)]
    return at_point(records, records.batch, rows, further, backend)


def ones(records: Records) -> Point:
    """Return the point at which every latent is 1."""
    return {name: np.ones(value.shape) for name, value in records.point.items()}


def probe_rows(records: Records, rng: np.random.Generator, whole: Sequence[int]) -> Batch:
    """Draw one row for each entry of ``whole``, which is the value of all its whole numbers."""

    def values(name: str) -> np.ndarray:
        shape = [len(whole) if length is None else length for length in records.shapes[name]]
        dtype = records.batch.inputs[name].type.dtype
        if dtype.startswith("float"):
            return rng.uniform(0.1, 0.9, shape)
        along = [-1 if length is None else 1 for length in records.shapes[name]]
        return np.broadcast_to(np.reshape(whole, along), shape).astype(dtype)

    return {name: values(name) for name in records.batch.inputs}


def probe_point(
    records: Records, families: Mapping[str, ExponentialFamily], rng: np.random.Generator
) -> Point:
    """Draw values of all shared latents, inside their supports."""
    return {
        name: family.rule(family.random_parameters(records.point[name].shape, rng))[0]
        for name, family in families.items()
    }


def nearly_equal(first: np.ndarray, second: np.ndarray | float) -> bool:
    """Whether two evaluations of a graph are the same up to rounding; nan equals nothing."""
    scale = max(1.0, float(np.abs(first).max(initial=0.0)))
    return bool((np.abs(first - second) <= TOLERANCE * scale).all())


def sample(
    families: Mapping[str, ExponentialFamily],
    posterior: Mapping[str, Natural],
    draws: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Draw all blocks, each by itself."""
    return {name: family.sample(posterior[name], draws, rng) for name, family in families.items()}


def describe(
    records: Records,
    families: Mapping[str, ExponentialFamily],
    posterior: Mapping[str, Natural],
    variances: Mapping[str, Natural],
) -> xr.Dataset:
    """Return moments and natural parameters of factorised blocks, with the noise on the latter."""
    mean, sd = flat_moments(families, posterior)
    variables = {"mean_vector": ("rows", mean), "standard_deviation": ("rows", sd)}
    variables |= natural_parameters(records, families, posterior)
    noise = {name: tuple(v**0.5 for v in parts) for name, parts in variances.items()}
    for name, value in natural_parameters(records, families, noise).items():
        variables[f"{name}_noise_sd"] = value
    return xr.Dataset(variables, {"rows": records.labels})


def natural_parameters(
    records: Records, families: Mapping[str, ExponentialFamily], posterior: Mapping[str, Natural]
) -> dict[str, tuple[Any, ...]]:
    """Name the natural parameters ``latent.parameter``, with the latent's dims."""
    return {
        f"{name}.{parameter}": (dims_of(records, name), value)
        for name, family in families.items()
        for parameter, value in zip(family.parameters, posterior[name], strict=True)
    }


def dims_of(records: Records, name: str) -> tuple[str, ...]:
    """Return the dims of a latent, as in the posterior group."""
    return named_dims(records.outputs.dims[name], name, records.point[name].ndim)


def flat_moments(
    families: Mapping[str, ExponentialFamily], posterior: Mapping[str, Natural]
) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard deviations of all coordinates."""
    moments = [family.moments(posterior[name]) for name, family in families.items()]
    mean, sd = zip(*moments, strict=True)
    return np.concatenate([m.ravel() for m in mean]), np.concatenate([s.ravel() for s in sd])
