"""Whether a deterministic is a formula of the latents, which no number from the data has entered.

A number can enter as a factor, but also as a length, a position, or as how often an operation is
repeated. All of these are read here; what is in doubt is no formula.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.graph.op import HasMultipleInnerGraph
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import Alloc, AllocEmpty, ARange, Eye, Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT

from pymc_dp.model.graph_types import AnyVariable, Node
from pymc_dp.model.harden import side_of_triangle
from pymc_dp.model.terms import KEPT_WHOLE
from pymc_dp.model.walk import layers

# numbers that formulas are made of; any other may have been computed from data
NUMBERS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
# how often an operation may be repeated, and how many axes may be added
MOST_REPEATS = 2
MOST_NODES = 200
# which inputs of an operation are lengths, and which are positions
LENGTHS: dict[type, tuple[int, int | None]] = {
    Alloc: (1, None),
    ARange: (1, 2),
    Eye: (0, 2),
    Reshape: (1, 2),
    SpecifyShape: (1, None),
}
POSITIONS: dict[type, int] = {AdvancedSubtensor: 1, AdvancedIncSubtensor: 2}


class Known(NamedTuple):
    """What is public beside the formula itself."""

    variables: frozenset[AnyVariable]  # the latents that records share, and data declared public
    # lengths of these latents, and of the sides of the triangles that they fill
    lengths: frozenset[int]
    # arrays that the model holds without a name, with their values
    arrays: dict[AnyVariable, np.ndarray]


def is_formula(graph: AnyVariable, known: Known) -> bool:
    """Whether a graph computes from known variables and from the numbers of formulas alone.

    **Privacy.** Numbers are those of ``NUMBERS``. Lengths may also be those of the latents.
    Positions are such numbers too, or arrays that follow from a length: all positions in order, or
    those of a triangle. The same operation is applied twice in a row at most.
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
    """Yield the numbers in an operation's settings: axes, offsets, counts."""
    left = [getattr(op, name) for name in getattr(op, "__props__", None) or ()]
    while left:
        value = left.pop()
        if isinstance(value, int | float):
            yield value
        elif isinstance(value, slice):
            left += [value.start, value.stop, value.step]
        elif isinstance(value, tuple | list | set | frozenset):
            left += value
        elif isinstance(value, dict):
            left += value.values()


def _may_read(node: Node, i: int, known: Known) -> bool:
    variable = node.inputs[i]
    if variable.owner is not None or variable in known.variables or _is_formula_number(variable):
        return True
    if variable in known.arrays:
        first = POSITIONS.get(type(node.op))
        return first is not None and i >= first and _follows(known.arrays[variable], known.lengths)
    start, stop = LENGTHS.get(type(node.op), (0, 0))
    return (
        isinstance(variable, Constant)
        and i in range(len(node.inputs))[start:stop]
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
    return any(
        np.array_equal(positions, found) for found in (order, order[::-1], *np.tril_indices(side))
    )


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
            counts |= before
            counts[step] = max(counts[step], before[step] + 1)
        if max(counts.values(), default=0) > MOST_REPEATS:
            return True
        for k, output in enumerate(node.outputs):
            key = (node.op, tuple(operands), k)
            of[output] = numbers.setdefault(key, len(numbers))
            applied[of[output]] = counts
    return False
