"""One rule per Op: which axis of each input carries the records, given the axis of the output.

A rule gets the node, the index of an output and the axis ``k`` of that output along which the
records lie. It yields what the inputs must then carry. An Op without a rule is refused.
"""

from collections.abc import Iterator
from functools import singledispatch
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.basic import Alloc, AllocEmpty, Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
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
from pymc_dp.records.indexing import SameLength, counted_rows, gather_layout


class Carries(NamedTuple):
    """Input number ``input`` carries the records along ``axis``."""

    input: int
    axis: int


class Counts(NamedTuple):
    """Input number ``input`` is the number of records, or holds it at ``position`` of a shape."""

    input: int
    position: int | None = None


Need = Carries | Counts | SameLength


@singledispatch
def needs(op: Op, node: Apply, output: int, k: int) -> Iterator[Need]:
    """Yield what the inputs of ``node`` must carry if axis ``k`` of an output is the records'."""
    raise NotSeparableError(f"no rule says how {_title(op)} treats its records")


@needs.register(Elemwise)
@needs.register(XLogY)
@needs.register(XLog1PY)
@needs.register(LogAddExp)
def _elementwise(op, node, output, k):
    ndim = node.outputs[output].ndim
    for i, x in enumerate(node.inputs):
        axis = k - (ndim - x.ndim)
        if axis >= 0 and not x.type.broadcastable[axis]:
            yield Carries(i, axis)


@needs.register(DimShuffle)
def _dimshuffle(op, node, output, k):
    if op.new_order[k] != "x":
        yield Carries(0, op.new_order[k])


@needs.register(CAReduce)
def _reduction(op, node, output, k):
    ndim = node.inputs[0].ndim
    reduced = set(range(ndim)) if op.axis is None else {axis % ndim for axis in op.axis}
    yield Carries(0, [axis for axis in range(ndim) if axis not in reduced][k])


@needs.register(Softmax)
@needs.register(LogSoftmax)
def _softmax(op, node, output, k):
    ndim = node.inputs[0].ndim
    if op.axis is None or k in {axis % ndim for axis in op.axis}:
        raise NotSeparableError("a softmax runs over the records")
    yield Carries(0, k)


@needs.register(LogSumExp)
def _logsumexp(op, node, output, k):
    yield from _reduction(op, node, output, k)


@needs.register(Dot)
def _dot(op, node, output, k):
    left, right = node.inputs
    if left.ndim == 2 and k == 0:
        yield Carries(0, 0)
    else:
        yield Carries(1, right.ndim - 1)


@needs.register(Blockwise)
def _blockwise(op, node, output, k):
    batch = node.outputs[output].ndim - len(op.outputs_sig[output])
    if k < batch:
        for i, (x, signature) in enumerate(zip(node.inputs, op.inputs_sig, strict=True)):
            axis = k - (batch - (x.ndim - len(signature)))
            if axis >= 0 and not x.type.broadcastable[axis]:
                yield Carries(i, axis)
        return
    if not isinstance(op.core_op, Dot):
        raise NotSeparableError(f"{_title(op.core_op)} works across the records")
    left, right = node.inputs
    if k == batch and len(op.inputs_sig[0]) == 2:
        yield Carries(0, left.ndim - 2)
    else:
        yield Carries(1, right.ndim - 1)


@needs.register(SpecifyShape)
def _specify_shape(op, node, output, k):
    yield Carries(0, k)
    yield Counts(1 + k)


@needs.register(Alloc)
def _alloc(op, node, output, k):
    value = node.inputs[0]
    yield Counts(1 + k)
    axis = k - (node.outputs[0].ndim - value.ndim)
    if axis >= 0 and not value.type.broadcastable[axis]:
        yield Carries(0, axis)


@needs.register(AllocEmpty)
def _alloc_empty(op, node, output, k):
    yield Counts(k)


@needs.register(Join)
def _join(op, node, output, k):
    if op.axis % node.outputs[0].ndim == k:
        raise NotSeparableError("records are joined end to end")
    for i in range(len(node.inputs)):
        yield Carries(i, k)


@needs.register(Reshape)
def _reshape(op, node, output, k):
    before, after = node.inputs[0].type.shape, node.outputs[0].type.shape
    if None not in before[1:] and None not in after[1:] and k == 0:
        if before[1:] and np.prod(before[1:]) == np.prod(after[1:]):
            yield Carries(0, 0)
            yield Counts(1, 0)
            return
    raise NotSeparableError("a reshape mixes records with other dimensions")


@needs.register(Subtensor)
def _subtensor(op, node, output, k):
    indices = indices_from_subtensor(node.inputs[1:], op.idx_list)
    kept = [
        (axis, indices[axis] if axis < len(indices) else slice(None))
        for axis in range(node.inputs[0].ndim)
        if axis >= len(indices) or isinstance(indices[axis], slice)
    ]
    axis, index = kept[k]
    if index != slice(None):
        raise NotSeparableError("a slice picks some of the records")
    yield Carries(0, axis)


@needs.register(IncSubtensor)
def _set_subtensor(op, node, output, k):
    base, value = node.inputs[:2]
    indices = indices_from_subtensor(node.inputs[2:], op.idx_list)
    if k < len(indices) and indices[k] != slice(None):
        raise NotSeparableError("a slice of the records is written to")
    yield Carries(0, k)
    scalar = [axis for axis, index in enumerate(indices) if not isinstance(index, slice)]
    axis = k - sum(a < k for a in scalar) - (base.ndim - len(scalar) - value.ndim)
    if axis >= 0 and not value.type.broadcastable[axis]:
        yield Carries(1, axis)


@needs.register(AdvancedSubtensor)
def _gather(op, node, output, k):
    base = node.inputs[0]
    layout = gather_layout(node)
    if not layout.start <= k < layout.start + layout.ndim:
        axis = layout.other_axes[k]
        if axis in layout.sliced:
            raise NotSeparableError("a slice picks some of the records")
        yield Carries(0, axis)
        return
    for axis, index in layout.arrays.items():
        at = k - layout.start - (layout.ndim - index.ndim)
        along = at >= 0 and not index.type.broadcastable[at]
        rows = counted_rows(index)
        if rows is not None:  # base[arange(number of records), ...] walks along the records of base
            if not along:
                raise NotSeparableError("every record is paired with all of them")
            yield Carries(0, axis)
            yield rows
        elif along:
            yield Carries(node.inputs.index(index), at)
    if base.ndim == 0:
        raise NotSeparableError("a scalar is indexed")


def _title(op: Op) -> str:
    return type(op).__name__
