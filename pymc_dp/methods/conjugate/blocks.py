"""Blocks of latents with conjugate priors: proof, messages of the prior, and what a result says.

Graphs are compiled as functions of rows and points, and tried at random ones. The prior of a block
decides its family, and its messages prove that it is conjugate. Expectations under a factorised
posterior are then exact: a rule is a list of points whose plain average reproduces the expectation
of a group's sufficient statistics. The natural parameters that reach one block are linear in the
statistics of every other, so their average over the product of the rules is their expectation.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
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

from pymc_dp.compiling.compile import function
from pymc_dp.contributions.gradients import by_record, checked, spread
from pymc_dp.methods.conjugate.exponential import (
    BETA,
    DIRICHLET,
    GAMMA,
    INVERSE_GAMMA,
    NORMAL,
    ExponentialFamily,
    Natural,
)
from pymc_dp.methods.options import NotConjugateError
from pymc_dp.methods.prior import made_once
from pymc_dp.model import Records
from pymc_dp.model.batch import RecordGraph
from pymc_dp.model.graphs import AnyVariable, Tensor
from pymc_dp.model.modes import as_written, without_c
from pymc_dp.model.split import named_dims
from pymc_dp.privacy.contribution import Batch

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
        return Message(*at_points(records, (family.name, name), graphs))

    return {name: message(name, family) for name, family in families.items()}


def at_points(
    records: Records, what: Hashable, graphs: Callable[[], Sequence[AnyVariable]]
) -> tuple[Callable[[Sequence[Point]], Natural], tuple[str, ...]]:
    """Compile graphs of the prior, called ``what``, for many points; name the latents they read."""
    inputs, rows, needs = made_once(records, what, lambda: _for_points(records, graphs()))
    fn = function(inputs, rows, "python")

    def evaluate(points: Sequence[Point]) -> Natural:
        return tuple(fn(len(points), *[np.stack([at[name] for at in points]) for name in needs]))

    return evaluate, needs


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
    return [
        [{name: family.reference(posterior[name])}]
        if name == own
        else [{name: x} for x in family.rule(posterior[name])]
        for name, family in families.items()
    ]


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
    """Compile variables of a graph of records; ``further`` are inputs beside rows and latents."""
    inputs = [*further, *graph.inputs.values(), *records.latents.values()]
    fn = function(inputs, list(outputs), backend)

    def evaluate(rows: Batch, point: Point, *values: np.ndarray) -> tuple[np.ndarray, ...]:
        leaves = [rows[name] for name in graph.inputs]
        return tuple(fn(*values, *leaves, *[point[name] for name in records.latents]))

    return evaluate


def at_few_points(
    records: Records, outputs: Sequence[AnyVariable], further: Sequence[AnyVariable] = ()
) -> AtPoint:
    """Return what `at_point` does for one record, for decisions: rewritten only if not finite."""
    compiled = cache(lambda: at_point(records, records.single, outputs, further))
    leaves, latents = records.single.inputs, records.latents
    fn = as_written([*further, *leaves.values(), *latents.values()], outputs)

    def evaluate(rows: Batch, point: Point, *values: np.ndarray) -> tuple[np.ndarray, ...]:
        with np.errstate(all="ignore"):
            results = fn(*values, *[rows[name] for name in leaves], *[point[n] for n in latents])
        if all(np.isfinite(x).all() for x in results):
            return tuple(results)
        return compiled()(rows, point, *values)

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


def nearly_equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two evaluations of a graph are the same up to rounding; nan equals nothing."""
    scale = max(1.0, float(np.abs(first).max(initial=0.0)))
    return bool((np.abs(first - second) <= TOLERANCE * scale).all())


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
