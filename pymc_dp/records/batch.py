"""Rebuild the terms on batches: the same graph, with leaves of as many rows as a batch has."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import NamedTuple

import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.records.axis import RecordAxes
from pymc_dp.records.indexing import counted_rows, gather_layout
from pymc_dp.records.terms import KEPT_WHOLE


class RecordGraph(NamedTuple):
    """Log-likelihood terms on ``inputs`` whose rows are records; it holds no data.

    Attributes
    ----------
    terms : tuple of tensors, shape (rows, ...)
        The elementwise log likelihood of every observed variable and potential.
    inputs : dict
        Leaf name to its batch input; float64 where the leaf is real.
    rows : scalar int64
        The number of rows.
    axis : dict
        Every variable that carries records, with the axis along which it does.
    valid : vector of bool, shape (rows,), or None
        Whether the record's indices lie inside the arrays that they index (None: no index).
        Indices outside are clipped, so that no backend reads foreign memory.
    """

    terms: tuple[Variable, ...]
    inputs: dict[str, Variable]
    rows: Variable
    axis: dict[Variable, int]
    valid: Variable | None

    def log_likelihood(self) -> Variable:
        """Sum the terms of each record; shape (rows,)."""
        return pt.add(*[term.sum(axis=tuple(range(1, term.ndim))) for term in self.terms])


def build_graph(
    terms: Mapping[str, Variable],
    axes: RecordAxes,
    leaves: Mapping[str, Variable],
    *,
    rows: int | None,
) -> RecordGraph:
    """Rebuild ``terms`` on batch inputs in place of ``leaves``.

    ``rows=None`` takes batches of any size; ``rows=1`` makes the length static, so that the graph
    of one record can be vectorized.
    """
    inputs = {name: _batch_input(leaf, axes.axis[leaf], rows) for name, leaf in leaves.items()}
    renewed: dict[Variable, Variable] = {leaves[name]: x for name, x in inputs.items()}
    first, leaf = next(iter(leaves.items()))
    count = (
        inputs[first].shape[axes.axis[leaf]] if rows is None else pt.constant(rows, dtype="int64")
    )
    valid: list[Variable] = []
    for node in toposort(list(terms.values())):
        operands = [renewed.get(x, x) for x in node.inputs]
        _count_rows(node, operands, axes, count)
        valid += _clip_indices(node, operands, axes)
        if any(new is not old for new, old in zip(operands, node.inputs, strict=True)):
            renewed.update(zip(node.outputs, remake(node, operands), strict=True))
    axis = {renewed.get(variable, variable): k for variable, k in axes.axis.items()}
    batch_terms = tuple(renewed.get(term, term) for term in terms.values())
    return RecordGraph(batch_terms, inputs, count, axis, pt.all(valid, axis=0) if valid else None)


def _batch_input(leaf: Variable, axis: int, rows: int | None) -> Variable:
    """Return an input like ``leaf``, in the widest type of its kind.

    A length of 1 is made static: PyTensor turns ``X @ b`` into ``X * b`` where it knows it of one.
    """
    lengths = leaf.get_value(borrow=True).shape if isinstance(leaf, SharedVariable) else ()
    shape = [1 if 1 in ends else ends[0] for ends in zip_longest(leaf.type.shape, lengths)]
    shape[axis] = rows
    return pt.tensor(leaf.name, dtype=batch_dtype(leaf.type.dtype), shape=tuple(shape))


def batch_dtype(stored: str) -> str:
    """Widen a leaf's dtype: an index given by ``data=`` must not wrap into the template's."""
    if stored == "bool":
        return stored
    return "float64" if stored.startswith("float") else "int64"


def _count_rows(node: Apply, operands: list[Variable], axes: RecordAxes, count: Variable) -> None:
    for i, operand in enumerate(operands):
        if (node, i) in axes.counts:
            position = axes.counts[node, i]
            sized = count if position is None else pt.set_subtensor(operand[position], count)
            operands[i] = sized


def _clip_indices(node: Apply, operands: list[Variable], axes: RecordAxes) -> list[Variable]:
    """Keep indices that come from records inside their array; return which records obeyed."""
    checks = []
    if isinstance(node.op, AdvancedSubtensor):
        for axis, index in gather_layout(node).arrays.items():
            if index in axes.axis and counted_rows(index) is None:
                i = node.inputs.index(index)
                size = operands[0].shape[axis]
                inside = pt.clip(operands[i], -size, size - 1)
                record = axes.axis[index]
                others = tuple(a for a in range(index.ndim) if a != record)
                checks.append(pt.all(pt.eq(inside, operands[i]), axis=others))
                operands[i] = inside.astype(operands[i].dtype)
    return checks


def remake(node: Apply, operands: list[Variable]) -> list[Variable]:
    """Apply the node's operation to new operands, letting static shapes be inferred anew."""
    if isinstance(node.op, KEPT_WHOLE):  # their inner graphs remember the old static shapes
        output = node.op(*operands)
        return [output]
    if isinstance(node.op, Reshape):
        return [pt.reshape(operands[0], operands[1], ndim=node.outputs[0].ndim)]
    return list(node.op.make_node(*operands).outputs)
