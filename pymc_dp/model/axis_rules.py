"""One rule per Op: which axis of each input carries the records, given the axis of the output.

A rule gets the node, the index of an output and the axis ``k`` of that output along which the
records lie. It yields what the inputs must then carry. An Op without a rule is refused.
"""

from collections.abc import Iterator
from functools import singledispatch
from typing import NamedTuple

import numpy as np
from pytensor.graph.op import Op
from pytensor.tensor.basic import Alloc, AllocEmpty, Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import LogAddExp, LogSoftmax, LogSumExp, Softmax, XLog1PY, XLogY
from pytensor.tensor.subtensor import (
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.as_made import SPECS
from pymc_dp.model.graph_types import Node
from pymc_dp.model.indexing import OtherLength, SameLength, counted_rows, gather_layout
from pymc_dp.model.operations import is_listed
from pymc_dp.model.walk import layers


class Carries(NamedTuple):
    """Input number ``input`` carries the records along ``axis``."""

    input: int
    axis: int


class Counts(NamedTuple):
    """Input number ``input`` is the number of records, or holds it at ``position`` of a shape."""

    input: int
    position: int | None = None


Need = Carries | Counts | SameLength | OtherLength


def needs(node: Node, output: int, k: int) -> Iterator[Need]:
    """Yield what the inputs of ``node`` must carry if axis ``k`` of an output is the records'."""
    for op in layers(node.op):
        # what `public=` allows may be run record by record, but by no function of all records
        alone = op is not node.op and not any(getattr(op, spec, None) for spec in SPECS)
        if not (is_listed(type(op)) or alone):
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
    ndim = node.outputs[output].type.ndim
    for i, x in enumerate(node.inputs):
        yield from _broadcast(node, i, k - (ndim - x.type.ndim))


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
def _softmax(op: Softmax | LogSoftmax, node: Node, output: int, k: int) -> Iterator[Need]:
    ndim = node.inputs[0].type.ndim
    if op.axis is None or k in {axis % ndim for axis in op.axis}:
        raise NotSeparableError("a softmax runs over the records")
    yield Carries(0, k)


@_needs.register
def _running(op: CumOp, node: Node, output: int, k: int) -> Iterator[Need]:
    if op.axis is None or k == op.axis % node.inputs[0].type.ndim:
        raise NotSeparableError("a running sum or product goes over the records")
    yield Carries(0, k)


@_needs.register(Dot)
def _dot(op: Dot, node: Node, output: int, k: int) -> Iterator[Need]:
    yield _factor(node, k == 0 and node.inputs[0].type.ndim == 2)


@_needs.register(Blockwise)
def _blockwise(op: Blockwise, node: Node, output: int, k: int) -> Iterator[Need]:
    batch = node.outputs[output].type.ndim - len(op.outputs_sig[output])
    if k < batch:
        for i, (x, signature) in enumerate(zip(node.inputs, op.inputs_sig, strict=True)):
            yield from _broadcast(node, i, k - (batch - (x.type.ndim - len(signature))))
        return
    if not isinstance(op.core_op, Dot):
        raise NotSeparableError(f"{type(op.core_op).__name__} works across the records")
    yield _factor(node, k == batch and len(op.inputs_sig[0]) == 2)


def _factor(node: Node, is_row: bool) -> Carries:
    """Return the factor of a product whose rows, or else whose columns, are the product's."""
    left, right = node.inputs
    return Carries(0, left.type.ndim - 2) if is_row else Carries(1, right.type.ndim - 1)


@_needs.register(SpecifyShape)
def _specify_shape(op: SpecifyShape, node: Node, output: int, k: int) -> Iterator[Need]:
    yield Carries(0, k)
    yield Counts(1 + k)


@_needs.register(Alloc)
def _alloc(op: Alloc, node: Node, output: int, k: int) -> Iterator[Need]:
    value = node.inputs[0]
    yield Counts(1 + k)
    yield from _broadcast(node, 0, k - (node.outputs[0].type.ndim - value.type.ndim))


@_needs.register(AllocEmpty)
def _alloc_empty(op: AllocEmpty, node: Node, output: int, k: int) -> Iterator[Need]:
    yield Counts(k)


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
    indices = indices_from_subtensor(node.inputs[1:], op.idx_list)
    kept = [
        (axis, indices[axis] if axis < len(indices) else slice(None))
        for axis in range(node.inputs[0].type.ndim)
        if axis >= len(indices) or isinstance(indices[axis], slice)
    ]
    axis, index = kept[k]
    if index != slice(None):
        raise NotSeparableError(
            "a slice picks some of the records (make each lag of a series an array of its own, "
            "before the model)"
        )
    yield Carries(0, axis)


@_needs.register(IncSubtensor)
def _set_subtensor(op: IncSubtensor, node: Node, output: int, k: int) -> Iterator[Need]:
    base, value = node.inputs[:2]
    indices = indices_from_subtensor(node.inputs[2:], op.idx_list)
    if k < len(indices) and indices[k] != slice(None):
        raise NotSeparableError("a slice of the records is written to")
    yield Carries(0, k)
    scalar = [axis for axis, index in enumerate(indices) if not isinstance(index, slice)]
    missing = base.type.ndim - len(scalar) - value.type.ndim
    yield from _broadcast(node, 1, k - sum(a < k for a in scalar) - missing)


@_needs.register(AdvancedSubtensor)
def _gather(op: AdvancedSubtensor, node: Node, output: int, k: int) -> Iterator[Need]:
    base = node.inputs[0]
    layout = gather_layout(node)
    if not layout.start <= k < layout.start + layout.ndim:
        axis = layout.other_axes[k]
        if axis in layout.sliced:
            raise NotSeparableError("a slice picks some of the records")
        yield Carries(0, axis)
        return
    for axis, index in layout.arrays.items():
        at = k - layout.start - (layout.ndim - index.type.ndim)
        along = at >= 0 and not index.type.broadcastable[at]
        rows = counted_rows(index)
        if rows is not None:  # base[arange(number of records), ...] walks along the records of base
            if along:
                yield Carries(0, axis)
                yield rows
            else:  # row numbers beside the records would pair each with all; column numbers do not
                yield OtherLength(*rows)
        elif along:
            yield from (Carries(i, at) for i, x in enumerate(node.inputs) if x is index)
    if base.type.ndim == 0:
        raise NotSeparableError("a scalar is indexed")
