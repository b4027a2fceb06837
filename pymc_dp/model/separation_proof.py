"""Prove that a log likelihood is a sum over records, by following the record axis.

*Demand* walks back from the terms, whose axis 0 is the records', and learns which axis of which
variable carries them. `needs` has one rule per Op: a rule gets the node, the index of an output and
the axis ``k`` of that output along which the records lie, and yields what the inputs must then
carry. An Op without a rule is refused. *Taint* then walks forward: whatever depends on a record
must have been demanded, or an operation mixed the records. No value is looked at. At the end stands
how graphs index arrays (`gather_layout`, `counted_rows`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Alloc, AllocEmpty, ARange, Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogAddExp, LogSoftmax, LogSumExp, Softmax, XLog1PY, XLogY
from pytensor.tensor.subtensor import (
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.graphs import LISTED, SPECS, AnyVariable, Node, layers


class Length(NamedTuple):
    """``variable`` must carry the records along ``axis``; or must not, where ``same`` is False."""

    variable: AnyVariable
    axis: int
    same: bool = True


class GatherLayout(NamedTuple):
    """How ``base[...]`` with index arrays lays its axes out, as NumPy does."""

    arrays: dict[int, AnyVariable]  # axis of the base to the array that indexes it
    axes: list[int | None]  # of the base, for each of the output; None for those of the arrays
    sliced: set[int]  # axes of the base of which a slice picks a part


class Carries(NamedTuple):
    """Input number ``input`` carries the records along ``axis``."""

    input: int
    axis: int


class Counts(NamedTuple):
    """Input number ``input`` is the number of records, or holds it at ``position`` of a shape."""

    input: int
    position: int | None = None


Need = Carries | Counts | Length
CENSORED = (
    "for censored outcomes keep all rows: pm.Censored('y', dist, lower=..., upper=...), or choose "
    "between two log densities by pm.math.switch(censored, ..., ...) in a pm.Potential"
)


class RecordAxes(NamedTuple):
    """Which axis of each variable carries the records."""

    axis: dict[AnyVariable, int]
    carried: set[tuple[Node, int]]  # node inputs that go along the records with the node's output
    # node inputs that are the number of records, or hold it at this position of a shape
    counts: dict[tuple[Node, int], int | None]

    def inputs(self) -> dict[AnyVariable, int]:
        """Return the graph inputs that carry records, with their axes."""
        return {v: k for v, k in self.axis.items() if v.owner is None}


def find_record_axes(terms: dict[str, AnyVariable]) -> RecordAxes:
    """Follow the records from the terms back to the inputs, and check that nothing mixes them."""
    axes = RecordAxes({}, set(), {})
    for name, term in terms.items():
        with _naming(name):
            _demand(term, axes)
    refuse_mixing(terms, axes)
    return axes


def refuse_mixing(
    terms: dict[str, AnyVariable], axes: RecordAxes, lengths: frozenset[AnyVariable] = frozenset()
) -> None:
    """Check that no operation mixes records, or computes with their number or with ``lengths``."""
    for name, term in terms.items():
        with _naming(name):
            _check_taint(term, axes, set(lengths))


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Complete the reason of a refusal by the name of the term, and by what to do."""
    try:
        yield
    except NotSeparableError as reason:
        raise NotSeparableError(
            f"The log likelihood of `{name}` cannot be split into records: {reason}. "
            "A private fit needs one term per record along the first axis: compute on each record "
            "alone, take public numbers, and leave missing values as nan in observed=."
        ) from None


def _demand(term: AnyVariable, axes: RecordAxes) -> None:
    if term.type.ndim == 0:
        raise NotSeparableError(
            "it is one number for all records. Give one row a record in place of totals, and one "
            "row a person of a series; of a Gaussian process over records take pm.gp.HSGP; of "
            "kinship, name families in unit=; leave the sum of a pm.Potential out; and name one "
            "observed number in public=, if it is"
        )
    if term.type.broadcastable[0]:
        raise NotSeparableError(
            "it has a single row, and one record looks like what all records share: name what it "
            "observes in public=[...] if that is public, add up a potential of latents alone, and "
            "else build the model on two records or more"
        )
    _require(axes, term, 0)
    nodes = list(toposort([term]))
    to_check = []
    for node in reversed(nodes):
        for number, output in enumerate(node.outputs):
            if output not in axes.axis:
                continue
            for need in needs(node, number, axes.axis[output]):
                match need:
                    case Carries(i, axis):
                        _require(axes, node.inputs[i], axis)
                        axes.carried.add((node, i))
                    case Counts(i, position):
                        axes.counts[node, i] = position
                    case Length():
                        to_check.append(need)
    for need in to_check:
        counts_records = axes.axis.get(need.variable) == need.axis
        if counts_records and not need.same:
            raise NotSeparableError("every record is paired with all of them")
        if not counts_records and need.same:
            raise NotSeparableError("it is indexed by a range that is not the records' own")


def _require(axes: RecordAxes, variable: AnyVariable, axis: int) -> None:
    if axes.axis.setdefault(variable, axis) != axis:
        raise NotSeparableError(f"{_describe(variable)} is used along two of its axes")
    if isinstance(variable, Constant):
        raise NotSeparableError(f"{_describe(variable)} is a constant where records are expected")


def _check_taint(term: AnyVariable, axes: RecordAxes, lengths: set[AnyVariable]) -> None:
    tainted = set(axes.inputs())
    for node in toposort([term]):
        carries = any(output in axes.axis for output in node.outputs)
        reads = {i for i, x in enumerate(node.inputs) if x in tainted}
        sized = {i for i, x in enumerate(node.inputs) if x in lengths}
        if reads and isinstance(node.op, Shape | Shape_i):
            if isinstance(node.op, Shape) or node.op.i == axes.axis[node.inputs[0]]:
                lengths.update(node.outputs)
            continue
        measured = measured_axis(node.outputs[0])
        if measured and axes.axis.get(measured.variable, measured.axis) != measured.axis:
            continue  # `x.shape[i]` with an axis `i` that is not the records'
        for i in reads:
            if not (carries and (node, i) in axes.carried):
                raise NotSeparableError(
                    f"{type(node.op).__name__} takes {_describe(node.inputs[i])} across its records"
                    ", as a mean, a scale or a rank of the data does"
                )
        if carries and not all(_only_sizes(node, i, axes) for i in sized):
            raise NotSeparableError(
                f"{type(node.op).__name__} computes with the number of records, which is private"
            )
        if reads or (sized and carries):  # an array sized by the records walks along them too
            tainted.update(node.outputs)
        elif sized:
            lengths.update(node.outputs)


def _only_sizes(node: Node, i: int, axes: RecordAxes) -> bool:
    """The number of records may size an array or count its rows; no value may come from it."""
    if isinstance(node.op, AdvancedSubtensor):  # rows are counted along those of the base alone
        base, index = node.inputs[0], node.inputs[i]
        places = {x: axis for axis, x in gather_layout(node).arrays.items()}
        return counted_rows(index) is not None and axes.axis.get(base) == places.get(index)
    return (node, i) in axes.counts


def _describe(variable: AnyVariable) -> str:
    return f"`{variable.name}`" if variable.name else "an unnamed intermediate result"


def needs(node: Node, output: int, k: int) -> Iterator[Need]:
    """Yield what the inputs of ``node`` must carry if axis ``k`` of an output is the records'."""
    for op in layers(node.op):
        # what `public=` allows may be run record by record, but by no function of all records
        by_record = op is not node.op and not any(getattr(op, spec, None) for spec in SPECS)
        if not (type(op) in LISTED or by_record):
            raise NotSeparableError(f"no rule says how {type(op).__name__} treats its records")
    return _needs(node.op, node, output, k)


@singledispatch
def _needs(op: Op, node: Node, output: int, k: int) -> Iterator[Need]:
    raise NotSeparableError(f"no rule says how {type(op).__name__} treats its records")


def _broadcast(node: Node, i: int, axis: int) -> Iterator[Need]:
    """Yield that input ``i`` carries the records along ``axis``, if it has it and more than one."""
    if axis >= 0 and not node.inputs[i].type.broadcastable[axis]:
        yield Carries(i, axis)


@_needs.register
def _elementwise(
    op: Elemwise | XLogY | XLog1PY | LogAddExp, node: Node, output: int, k: int
) -> Iterator[Need]:
    for i, x in enumerate(node.inputs):
        yield from _broadcast(node, i, k - (node.outputs[output].type.ndim - x.type.ndim))


@_needs.register(DimShuffle)
def _dimshuffle(op: DimShuffle, node: Node, output: int, k: int) -> Iterator[Need]:
    axis = op.new_order[k]
    if axis != "x":
        yield Carries(0, axis)


@_needs.register
def _reduction(op: CAReduce | LogSumExp, node: Node, output: int, k: int) -> Iterator[Need]:
    ndim = node.inputs[0].type.ndim
    reduced = set(range(ndim)) if op.axis is None else {axis % ndim for axis in op.axis}
    yield Carries(0, [axis for axis in range(ndim) if axis not in reduced][k])


@_needs.register
def _along(op: Softmax | LogSoftmax | CumOp, node: Node, output: int, k: int) -> Iterator[Need]:
    axes = range(node.inputs[0].type.ndim)
    if op.axis is None or k in {axes[axis] for axis in np.atleast_1d(op.axis)}:
        what = "running sum or product" if isinstance(op, CumOp) else "softmax"
        raise NotSeparableError(f"a {what} goes over the records")
    yield Carries(0, k)


@_needs.register(Dot)
@_needs.register(Blockwise)
def _product(op: Any, node: Node, output: int, k: int) -> Iterator[Need]:
    stacked = isinstance(op, Blockwise)
    own = [len(sides) for sides in op.inputs_sig] if stacked else [x.type.ndim for x in node.inputs]
    batch = node.outputs[output].type.ndim - len(op.outputs_sig[output]) if stacked else 0
    if k < batch:
        for i, (x, ndim) in enumerate(zip(node.inputs, own, strict=True)):
            yield from _broadcast(node, i, k - (batch - (x.type.ndim - ndim)))
    elif stacked and not isinstance(op.core_op, Dot):
        raise NotSeparableError(f"{type(op.core_op).__name__} works across the records")
    elif k == batch and own[0] == 2:  # the rows of a product are those of the left factor
        yield Carries(0, node.inputs[0].type.ndim - 2)
    else:
        yield Carries(1, node.inputs[1].type.ndim - 1)


@_needs.register(Alloc)
@_needs.register(AllocEmpty)
@_needs.register(SpecifyShape)
def _alloc(op: Op, node: Node, output: int, k: int) -> Iterator[Need]:
    yield Counts(k if isinstance(op, AllocEmpty) else 1 + k)
    if isinstance(op, SpecifyShape):
        yield Carries(0, k)
    elif isinstance(op, Alloc):
        yield from _broadcast(node, 0, k - (node.outputs[0].type.ndim - node.inputs[0].type.ndim))


@_needs.register(Join)
def _join(op: Join, node: Node, output: int, k: int) -> Iterator[Need]:
    if op.axis % node.outputs[0].type.ndim == k:
        raise NotSeparableError("records are joined end to end")
    for i in range(len(node.inputs)):
        yield Carries(i, k)


@_needs.register(Reshape)
def _reshape(op: Reshape, node: Node, output: int, k: int) -> Iterator[Need]:
    before, after = node.inputs[0].type.shape, node.outputs[0].type.shape
    # rows stay in order where all dimensions before theirs have length 1: a batch has as many of
    # them after as before (`Counts`), so that a reshape which fits can only lay each out anew
    axis = next((axis for axis, length in enumerate(before) if length != 1), None)
    if axis is None or not set(after[:k]) <= {1}:
        raise NotSeparableError("a reshape mixes records with other dimensions")
    own, rest = before[axis + 1 :], after[k + 1 :]
    known = None not in (*own, *rest)
    if (known and np.prod(own) != np.prod(rest)) or (not own and set(rest) - {1}):
        raise NotSeparableError("a reshape makes rows of parts of records, or of several")
    yield Carries(0, axis)
    yield Counts(1, k)


@_needs.register(Subtensor)
def _subtensor(op: Subtensor, node: Node, output: int, k: int) -> Iterator[Need]:
    axis, index = [*_slices(node, 1).items()][k]
    if index != slice(None):
        raise NotSeparableError(
            "a slice picks some of the records (make each lag an array of its own, before a model)"
        )
    yield Carries(0, axis)


@_needs.register(IncSubtensor)
def _set_subtensor(op: IncSubtensor, node: Node, output: int, k: int) -> Iterator[Need]:
    slices = _slices(node, 2)
    if slices.get(k) != slice(None):
        raise NotSeparableError("a slice of the records is written to")
    yield Carries(0, k)
    missing = len(slices) - node.inputs[1].type.ndim
    yield from _broadcast(node, 1, [*slices].index(k) - missing)


def _slices(node: Node, first: int) -> dict[int, Any]:
    """Return what is taken of the axes that ``base[...]`` keeps; its indices begin at ``first``."""
    given = dict(enumerate(indices_from_subtensor(node.inputs[first:], node.op.idx_list)))
    every = {axis: given.get(axis, slice(None)) for axis in range(node.inputs[0].type.ndim)}
    return {axis: index for axis, index in every.items() if isinstance(index, slice)}


@_needs.register(AdvancedSubtensor)
def _gather(op: AdvancedSubtensor, node: Node, output: int, k: int) -> Iterator[Need]:
    layout = gather_layout(node)
    own = layout.axes[k]
    if own is not None:
        if own in layout.sliced:
            raise NotSeparableError("a slice picks some of the records")
        yield Carries(0, own)
        return
    for axis, index in layout.arrays.items():
        at = k - layout.axes.index(None) - (layout.axes.count(None) - index.type.ndim)
        along = at >= 0 and not index.type.broadcastable[at]
        rows = counted_rows(index)
        if rows is not None:  # base[arange(number of records), ...] walks along the records of base
            if along:
                yield Carries(0, axis)
                yield rows
            else:  # row numbers beside the records would pair each with all; column numbers do not
                yield rows._replace(same=False)
        elif along:
            yield from (Carries(i, at) for i, x in enumerate(node.inputs) if x is index)


def index_arrays(node: Node) -> dict[int, AnyVariable]:
    """Return which axes an `AdvancedSubtensor` node indexes by arrays, and by which."""
    indices = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
    return {axis: index for axis, index in enumerate(indices) if isinstance(index, Variable)}


def gather_layout(node: Node) -> GatherLayout:
    """Describe the axes of an `AdvancedSubtensor` node; boolean masks are refused."""
    arrays, slices = index_arrays(node), _slices(node, 1)
    if any(index.type.dtype == "bool" for index in arrays.values()):
        raise NotSeparableError(f"a boolean mask picks some of the records ({CENSORED})")
    ndim = max(index.type.ndim for index in arrays.values())
    first, last = min(arrays), max(arrays)
    start = first if last - first + 1 == len(arrays) else 0
    kept = [*slices]
    sliced = {axis for axis, index in slices.items() if index != slice(None)}
    return GatherLayout(arrays, [*kept[:start], *[None] * ndim, *kept[start:]], sliced)


def counted_rows(index: AnyVariable) -> Length | None:
    """Recognise ``arange(x.shape[axis])``: the row numbers of ``x``."""
    while isinstance(index.owner_op, DimShuffle | Reshape):
        if index.type.broadcastable.count(False) != 1:
            return None  # folded into several axes, they would pair records
        index = index.owner.inputs[0]
    if not isinstance(index.owner_op, ARange):
        return None
    start, stop, step = index.owner.inputs
    constant = isinstance(start, Constant) and isinstance(step, Constant)
    return measured_axis(stop) if constant and (start.data, step.data) == (0, 1) else None


def is_counted_axis(variable: AnyVariable) -> bool:
    """Whether a range is laid along one of several axes, as ``np.ix_`` does."""
    row, shape = variable.owner.inputs if isinstance(variable.owner_op, Reshape) else (None, None)
    if row is None or not (isinstance(row.owner_op, ARange) and isinstance(shape, Constant)):
        return False
    return sorted(shape.data) == [-1] + [1] * (len(shape.data) - 1)


def measured_axis(length: AnyVariable) -> Length | None:
    """Recognise ``x.shape[axis]``."""
    node = length.owner
    if node is None:
        return None
    if isinstance(node.op, Shape_i):
        return Length(node.inputs[0], node.op.i)
    shape = node.inputs[0].owner if isinstance(node.op, Subtensor) else None
    if shape is not None and isinstance(shape.op, Shape):
        [position] = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        if isinstance(position, Constant):
            return Length(shape.inputs[0], int(position.data) % shape.inputs[0].ndim)
    return None
