"""What of a posterior may leave, and the numbers in a model that are trusted.

Latents may leave, and deterministics that are formulas of them, which no number from the data has
entered (`is_formula`): as a factor, as a length, a position, or as how often an operation is
repeated. What is in doubt is no formula. Numbers in a model that no check can see into are trusted,
and listed by name (`trusted_constants`).
"""

from collections import Counter
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from pymc.distributions.mixture import MixtureRV
from pytensor.graph.basic import Constant
from pytensor.graph.op import HasMultipleInnerGraph
from pytensor.graph.traversal import ancestors, toposort, walk
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import Alloc, AllocEmpty, ARange, Eye, Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT

from pymc_dp.model.graphs import AnyVariable, Node, inner_variables, layers, tensor_constants
from pymc_dp.model.harden import DataLeaf, HardenedModel, is_size, is_structural, side_of_triangle
from pymc_dp.model.separation_proof import RecordAxes
from pymc_dp.model.split import KEPT_WHOLE, Dims, Split, without_lengths

# numbers that formulas are made of; any other may have been computed from data
NUMBERS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
# how often an operation may be repeated, and how many axes may be added
MOST_REPEATS = 2
MOST_NODES = 200
# which inputs of an operation are lengths, and which are positions
LENGTHS: dict[type, slice] = {
    **dict.fromkeys((Alloc, SpecifyShape), slice(1, None)),
    **dict.fromkeys((ARange, Reshape), slice(1, 2)),
    Eye: slice(2),
}
POSITIONS: dict[type, int] = {AdvancedSubtensor: 1, AdvancedIncSubtensor: 2}
# what PyMC itself adds to a mixture are shapes; the others are as PyTensor makes them
CLOSED = (MixtureRV, *KEPT_WHOLE)


class Known(NamedTuple):
    """What is public beside the formula itself."""

    variables: frozenset[AnyVariable]  # the latents that records share, and data declared public
    lengths: frozenset[int]  # of these latents, and of the sides of the triangles that they fill
    arrays: dict[AnyVariable, np.ndarray]  # those that the model holds without a name


class Outputs(NamedTuple):
    """The releasable part of a posterior as graphs of the latents' value variables."""

    graphs: dict[str, AnyVariable]
    dims: dict[str, tuple[str, ...]]
    coords: dict[str, np.ndarray]
    withheld: tuple[str, ...]  # the deterministics that stay behind
    declarable: dict[str, set[str]]  # those that public= would let go: dimensions that are why


class Trusted(NamedTuple):
    """What is trusted: names are the author's, and may hold any text, so none is made of them."""

    kind: str
    name: str
    numbers: str = ""

    def __str__(self) -> str:
        """Write the line that a result lists."""
        return f"{self.kind} {self.name}" + (f": {self.numbers}" if self.numbers else "")


def releasable(
    split: Split,
    order: Sequence[str],
    dims: Dims,
    shapes: Mapping[str, tuple[int, ...]],
    unproved: Collection[str],
) -> Outputs:
    """Pick the latents and the deterministics of a hardened model that may be released.

    ``order`` is that of the author's model, ``shapes`` are those of unconstrained values by the
    latent's name, and ``unproved`` names deterministics with operations that may hold data.

    **Privacy.** A deterministic is withheld if its graph reaches data that are not public, or is no
    formula (``b * y_sd`` beside ``b`` would return ``y_sd``), or if it has a dimension that is not
    public, unless its own name is declared public. A declaration covers numbers, never arrays of
    data, latents of single records or the records' dimensions. Coords leave for what is released.
    """
    model, public = split.hardened.model, split.hardened.public
    shared = [rv for rv in model.free_RVs if rv.name in split.shared]
    variables = shared + model.deterministics
    names = [variable.name for variable in variables]
    graphs = dict(zip(names, model.replace_rvs_by_values(variables), strict=True))
    own = {name: tuple(model.named_vars_to_dims.get(name, ())) for name in names}
    private = _private(split)
    reasons = {n: _of_records(graphs[n], private, dims.records.intersection(own[n])) for n in names}
    of_records = {name: why for name, why in reasons.items() if why}
    for name in public.intersection(of_records):
        raise ValueError(f"public= names the deterministic `{name}`, {of_records[name]}")
    # latents leave, so a deterministic may read them: what they are made of does not matter
    plain = without_lengths(variables)
    latents = plain[: len(shared)]
    lengths = {n for rv in shared for n in (*rv.type.shape, *shapes[str(rv.name)]) if n is not None}
    sides = {side for n in lengths if (side := side_of_triangle(n)) is not None}
    known = known_parts(split.hardened, latents, lengths | sides)
    withheld = tuple(
        name
        for name, graph in zip(names[len(shared) :], plain[len(shared) :], strict=True)
        if name not in public
        and (
            name in unproved
            or not dims.public.issuperset(filter(None, own[name]))
            or not is_formula(graph, known)
        )
    )
    kept = [name for name in order if name in graphs and name not in withheld]
    used = {dim for name in kept for dim in own[name]}
    return Outputs(
        graphs={name: graphs[name] for name in kept},
        dims={name: own[name] for name in kept},
        coords={d: np.asarray(x) for d, x in model.coords.items() if d in used and x is not None},
        withheld=withheld,
        declarable={n: {*own[n]} - {None, *dims.public} for n in withheld if n not in of_records},
    )


def known_parts(
    hardened: HardenedModel, variables: Iterable[AnyVariable], lengths: set[int]
) -> Known:
    """Gather what a deterministic may be made of: these, public data, undeclared arrays."""
    leaves = hardened.leaves.items()
    declared = [variable for variable, leaf in leaves if leaf.name in hardened.public]
    arrays = {variable: leaf.value for variable, leaf in leaves if not leaf.declared}
    return Known(frozenset({*variables, *declared}), frozenset(lengths), arrays)


def _private(split: Split) -> dict[AnyVariable, str]:
    """Describe the data, and the latents of single records, that no declaration covers."""
    private: dict[AnyVariable, str] = {
        variable: str(leaf)
        for variable, leaf in split.hardened.leaves.items()
        if (variable in split.axes.axis or (leaf.declared and leaf.variable.ndim))
        and leaf.name not in split.hardened.public
    }
    private |= {value: f"the latent `{name}`" for name, value in split.local.items()}
    return private | {value: f"the latent `{value.name}`" for value in split.unit_latents.rows}


def _of_records(graph: AnyVariable, private: Mapping[AnyVariable, str], dims: Iterable[str]) -> str:
    """Say why no declaration lets a variable go: it returns data, or the records' labels."""
    for variable in private.keys() & set(ancestors([graph])):
        return (
            f"which reads {private[variable]}: it would return what belongs to single records. "
            "Compute it after the fit, from the released latents."
        )
    for dim in dims:
        return (
            f"which has the records' own dimension `{dim}`, their number and labels: leave it out."
        )
    return ""


def is_formula(graph: AnyVariable, known: Known) -> bool:
    """Whether a graph computes from known variables and from the numbers of formulas alone.

    **Privacy.** Numbers are those of ``NUMBERS``; lengths may also be those of the latents, and
    positions arrays that follow from a length. An operation is applied twice in a row at most.
    """
    if graph.owner is None:
        return graph in known.variables or _is_formula_number(graph)
    nodes = list(toposort([graph], blockers=known.variables))
    axes = max((variable.type.ndim for variable in known.variables), default=0) + MOST_REPEATS
    return (
        len(nodes) <= MOST_NODES
        and graph.type.ndim <= axes
        and all(_is_plain(node) for node in nodes)
        and all(_may_read(node, i, known) for node in nodes for i in range(len(node.inputs)))
        and not _repeats(nodes)
    )


def _is_plain(node: Node) -> bool:
    """Whether an operation is no graph of its own, draws nothing, and has no large setting."""
    ops = list(layers(node.op))
    if any(isinstance(op, RandomVariable | AllocEmpty) for op in ops):
        return False  # an empty array holds whatever the memory held before
    if any(isinstance(op, HasMultipleInnerGraph) for op in ops if type(op) not in KEPT_WHOLE):
        return False
    variables = (*node.inputs, *node.outputs)
    most = max(MOST_REPEATS, len(node.inputs), *(getattr(v, "ndim", 0) for v in variables))
    return all(abs(number) <= most for op in ops for number in _settings(op))


def _settings(op: object) -> Iterator[float]:
    left = [getattr(op, name) for name in getattr(op, "__props__", None) or ()]
    while left:
        value = left.pop()
        if isinstance(value, int | float):
            yield value
        elif isinstance(value, slice):
            left += [value.start, value.stop, value.step]
        elif isinstance(value, tuple | list | set | frozenset | dict):
            left += value.values() if isinstance(value, dict) else value


def _may_read(node: Node, i: int, known: Known) -> bool:
    variable = node.inputs[i]
    if variable.owner is not None or variable in known.variables or _is_formula_number(variable):
        return True
    if variable in known.arrays:
        first = POSITIONS.get(type(node.op))
        return first is not None and i >= first and _follows(known.arrays[variable], known.lengths)
    return (
        isinstance(variable, Constant)
        and i in range(len(node.inputs))[LENGTHS.get(type(node.op), slice(0))]
        and bool(np.isin(variable.data, list(known.lengths)).all())
    )


def _is_formula_number(variable: AnyVariable) -> bool:
    if not isinstance(variable, Constant):
        return False
    if isinstance(variable.type, TensorType | ScalarType):
        return bool(np.isin(variable.data, NUMBERS).all())
    return isinstance(variable.type, NoneTypeT)


def _follows(positions: np.ndarray, lengths: frozenset[int]) -> bool:
    """Whether positions follow from a length: all of them, backwards too, or a triangle's."""
    if positions.dtype.kind not in "iu" or len(positions) not in lengths:
        return False
    order = np.arange(len(positions))
    side = side_of_triangle(len(positions)) or 0
    regular = (order, order[::-1], *np.tril_indices(side))
    return any(np.array_equal(positions, x) for x in regular)


def _repeats(nodes: list[Node]) -> bool:
    """Whether an operand or an operation comes again and again: how often is a number."""
    # equal computations count as one, and one operation with the same other operands as the same
    numbers: dict[Hashable, int] = {}
    of: dict[AnyVariable, int] = {}
    applied: dict[int, Counter[Hashable]] = {}

    def number(variable: AnyVariable) -> int:
        key: Hashable = variable
        if isinstance(variable, Constant):
            key = (variable.type, np.asarray(variable.data).tobytes())
        return of.setdefault(variable, numbers.setdefault(key, len(numbers)))

    for node in nodes:
        operands = [number(x) for x in node.inputs]
        if isinstance(node.op, DimShuffle):
            of[node.outputs[0]] = operands[0]
            continue
        stacked = isinstance(node.op, Join | MakeVector)
        if max(Counter(operands).values(), default=0) > (1 if stacked else MOST_REPEATS):
            return True
        counts: Counter[Hashable] = Counter()
        for i, operand in enumerate(operands):
            before = applied.get(operand, Counter())
            step = (node.op, *sorted(chain(operands[:i], operands[i + 1 :])))
            counts |= before | Counter({step: before[step] + 1})
        if max(counts.values(), default=0) > MOST_REPEATS:
            return True
        for k, output in enumerate(node.outputs):
            key = (node.op, tuple(operands), k)
            of[output] = numbers.setdefault(key, len(numbers))
            applied[of[output]] = counts
    return False


def trusted_constants(
    split: Split,
    read: Mapping[str, Iterable[AnyVariable]],
    operations: Iterable[str],
    released: Iterable[AnyVariable],
) -> dict[Trusted, tuple[float, ...]]:
    """Count the numbers in a model that no check can see into; one line for each name.

    A line maps to the single numbers among its arguments, which are for the curator alone; to none
    if it is of what goes by records, where one can be their number.
    """
    model = split.hardened.model
    counted = {
        variable: leaf
        for variable, leaf in split.hardened.leaves.items()
        if variable not in split.axes.axis
        and variable is not split.unit_latents.column
        and leaf.name not in split.hardened.public
    }
    # an observed distribution may read records that its term does not, such as trials
    single = {variable: leaf for variable, leaf in counted.items() if leaf.value.ndim == 0}
    variables = set(model.basic_RVs)
    lines: dict[Trusted, tuple[float, ...]] = {}
    kinds = {rv.name: "likelihood" for rv in model.observed_RVs}
    kinds |= {potential.name: "potential" for potential in model.potentials}
    deterministics = {str(variable.name): [variable] for variable in released}
    kinds |= dict.fromkeys(deterministics, "deterministic")
    for name, graphs in {**read, **deterministics}.items():
        kind = kinds.get(name, "prior")
        arrays = single if kind == "likelihood" else counted
        densities = [graph for graph in graphs if graph not in variables]
        # a distribution is read by its arguments, since its own parents have lines of their own
        own = [x for g in graphs if g in variables and g.owner for x in g.owner.inputs] or densities
        arguments = _numbers(own, variables, arrays, split.axes)
        density = _numbers(densities, variables, counted, split.axes)
        count = sum(arguments.values())
        others = sum(density[key] for key in density.keys() - arguments.keys())
        if count or others:
            text = f"{count} number{'s' * (count != 1)}"
            text += f", and {others} in its density" if others else ""
            shown = () if name in split.terms else (x for x in arguments if isinstance(x, str))
            lines[Trusted(f"{kind} of", name, text)] = tuple(sorted(map(float, shown)))
    lines |= {Trusted("initial value of", name): () for name in split.hardened.initvals}
    return lines | {Trusted("operation", name): () for name in sorted(operations)}


def _numbers(
    graphs: Iterable[AnyVariable],
    blockers: Container[AnyVariable],
    leaves: Mapping[AnyVariable, DataLeaf],
    axes: RecordAxes,
) -> dict[Hashable, int]:
    """Map a key of each array in some graphs to how many numbers the array may carry."""
    # Sizes of random variables and the number of records are left out. PyMC writes the author's
    # numbers anew with other types and axes, so that keys are values.

    def operands(variable: AnyVariable) -> list[AnyVariable]:
        node = variable.owner
        return [
            x
            for i, x in enumerate(node.inputs if node else ())
            if x not in blockers and (node, i) not in axes.counts and not is_size(node, x)
        ]

    every = list(walk([graph for graph in graphs if graph not in blockers], operands))
    values = [leaves[v].value for v in every if v in leaves]
    values += [v.data for v in tensor_constants([*every, *inner_variables(every, CLOSED)])]
    # a regular array, such as ones, carries at most two numbers
    return {_key(x): min(np.size(x), 2 if is_structural(x) else np.size(x)) for x in values}


def _key(value: np.ndarray) -> Hashable:
    value = np.asarray(value)
    if value.size == 1:
        return str(float(value.item()))
    return value.shape, str(value.dtype), value.tobytes()
