"""How graphs index arrays: where the axes of the result come from, and what counts rows."""

from typing import NamedTuple

from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import ARange
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.graph_types import AnyVariable, Node

CENSORED = (
    "for censored outcomes keep all rows: pm.Censored('y', dist, lower=..., upper=...), or choose "
    "between two log densities by pm.math.switch(censored, ..., ...) in a pm.Potential"
)


class SameLength(NamedTuple):
    """``variable`` must be found to carry the records along ``axis``."""

    variable: AnyVariable
    axis: int


class OtherLength(NamedTuple):
    """``variable`` must not be found to carry the records along ``axis``."""

    variable: AnyVariable
    axis: int


class GatherLayout(NamedTuple):
    """How ``base[...]`` with index arrays lays its axes out, as NumPy does."""

    arrays: dict[int, AnyVariable]  # axis of the base to the array that indexes it
    start: int  # first output axis of the broadcast index arrays
    ndim: int  # number of their axes
    other_axes: dict[int, int]  # every other output axis to its axis of the base
    sliced: frozenset[int]  # axes of the base of which a slice picks a part


def index_arrays(node: Node) -> dict[int, AnyVariable]:
    """Return which axes an `AdvancedSubtensor` node indexes by arrays, and by which."""
    indices = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
    return {axis: index for axis, index in enumerate(indices) if isinstance(index, Variable)}


def gather_layout(node: Node) -> GatherLayout:
    """Describe the axes of an `AdvancedSubtensor` node; boolean masks are refused."""
    base, arrays = node.inputs[0], index_arrays(node)
    indices = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
    if any(index.type.dtype == "bool" for index in arrays.values()):
        raise NotSeparableError(f"a boolean mask picks some of the records ({CENSORED})")
    ndim = max(index.type.ndim for index in arrays.values())
    first, last = min(arrays), max(arrays)
    start = first if last - first + 1 == len(arrays) else 0
    rest = [axis for axis in range(base.type.ndim) if axis not in arrays]
    order = [axis for axis in rest if axis < start] + [None] * ndim
    order += [axis for axis in rest if axis not in order]
    others = {out: axis for out, axis in enumerate(order) if axis is not None}
    sliced = {a for a, index in enumerate(indices) if a in rest and index != slice(None)}
    return GatherLayout(arrays, start, ndim, others, frozenset(sliced))


def counted_rows(index: AnyVariable) -> SameLength | None:
    """Recognise ``arange(x.shape[axis])``: the row numbers of ``x``."""
    while isinstance(index.owner_op, DimShuffle | Reshape):
        if index.type.broadcastable.count(False) != 1:
            return None  # folded into several axes, they would pair records
        index = index.owner.inputs[0]
    if not isinstance(index.owner_op, ARange):
        return None
    start, stop, step = index.owner.inputs
    return measured_axis(stop) if _is(start, 0) and _is(step, 1) else None


def is_counted_axis(variable: AnyVariable) -> bool:
    """Whether a range is laid along one of several axes, as ``np.ix_`` does."""
    if not isinstance(variable.owner_op, Reshape):
        return False
    row, shape = variable.owner.inputs
    return (
        isinstance(row.owner_op, ARange)
        and isinstance(shape, Constant)
        and sorted(shape.data) == [-1] + [1] * (len(shape.data) - 1)
    )


def measured_axis(length: AnyVariable) -> SameLength | None:
    """Recognise ``x.shape[axis]``."""
    node = length.owner
    if node is None:
        return None
    if isinstance(node.op, Shape_i):
        return SameLength(node.inputs[0], node.op.i)
    shape = node.inputs[0].owner if isinstance(node.op, Subtensor) else None
    if shape is not None and isinstance(shape.op, Shape):
        [position] = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        if isinstance(position, Constant):
            return SameLength(shape.inputs[0], int(position.data) % shape.inputs[0].ndim)
    return None


def _is(variable: AnyVariable, value: int) -> bool:
    return isinstance(variable, Constant) and int(variable.data) == value
