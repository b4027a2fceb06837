"""Rebuild the terms on batches: the same graph, with leaves of as many rows as a batch has."""

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import toposort
from pytensor.tensor.shape import Reshape, reshape
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.model.axis import RecordAxes
from pymc_dp.model.graph_types import AnyVariable, Node, Tensor, pt, stored_value
from pymc_dp.model.indexing import counted_rows, gather_layout
from pymc_dp.model.terms import KEPT_WHOLE


class RecordGraph(NamedTuple):
    """Log-likelihood terms on ``inputs`` whose rows are records; it holds no data."""

    # shape (rows, ...): the elementwise log likelihood of every observed variable and potential
    terms: tuple[AnyVariable, ...]
    inputs: dict[str, AnyVariable]  # leaf name to its batch input; float64 where the leaf is real
    rows: AnyVariable  # the number of rows
    # every variable that carries records, with the axis along which it does
    axis: dict[AnyVariable, int]
    # shape (rows,): whether the record's indices lie inside the arrays that they index (None: no
    # index). Indices outside are clipped, so that no backend reads foreign memory.
    valid: AnyVariable | None

    @property
    def axes(self) -> dict[str, int]:
        """The axis of the records in every input, by name."""
        return {name: self.axis[leaf] for name, leaf in self.inputs.items()}

    def log_likelihood(self) -> Tensor:
        """Sum the terms of each record; shape (rows,)."""
        terms: tuple[Tensor, ...] = self.terms
        return pt.add(*[x.sum(axis=tuple(range(1, x.ndim))) for x in terms])


def build_graph(
    terms: Mapping[str, AnyVariable],
    axes: RecordAxes,
    leaves: Mapping[str, AnyVariable],
    *,
    rows: int | None,
) -> RecordGraph:
    """Rebuild ``terms`` on batch inputs in place of ``leaves``.

    ``rows=None`` takes batches of any size; ``rows=1`` makes the length static, so that the graph
    of one record can be vectorized.
    """
    inputs: dict[str, AnyVariable] = {
        name: _batch_input(leaf, axes.axis[leaf], rows) for name, leaf in leaves.items()
    }
    first, leaf = next(iter(leaves.items()))
    along: Tensor = inputs[first]
    count = along.shape[axes.axis[leaf]] if rows is None else pt.constant(rows, dtype="int64")
    valid: list[Tensor] = []

    def on_rows(node: Node, operands: list[Tensor]) -> None:
        for i, operand in enumerate(operands):
            if (node, i) in axes.counts:
                position = axes.counts[node, i]
                whole = position is None
                operands[i] = count if whole else pt.set_subtensor(operand[position], count)
        valid.extend(_clip_indices(node, operands, axes))

    on_inputs = {leaves[name]: x for name, x in inputs.items()}
    renewed = rebuilt(list(terms.values()), on_inputs, on_rows)
    axis = {renewed.get(variable, variable): k for variable, k in axes.axis.items()}
    batch_terms = tuple(renewed.get(term, term) for term in terms.values())
    return RecordGraph(
        batch_terms, inputs, count, axis, pt.stack(valid).all(axis=0) if valid else None
    )


def rebuilt(
    graphs: Sequence[AnyVariable],
    renewed: Mapping[AnyVariable, AnyVariable],
    change: Callable[[Node, list[Tensor]], None] = lambda node, operands: None,
) -> dict[AnyVariable, AnyVariable]:
    """Add to ``renewed`` what the graphs compute from it, and from operands that are changed."""
    found = dict(renewed)
    for node in toposort(graphs):
        operands: list[Tensor] = [found.get(x, x) for x in node.inputs]
        change(node, operands)
        same = all(new is old for new, old in zip(operands, node.inputs, strict=True))
        if not same and found.keys().isdisjoint(node.outputs):
            found.update(zip(node.outputs, remake(node, operands), strict=True))
    return found


def _batch_input(leaf: AnyVariable, axis: int, rows: int | None) -> Tensor:
    """Return an input like ``leaf``, in the widest type of its kind."""
    # a length of 1 is made static: PyTensor turns `X @ b` into `X * b` where it knows it of one
    lengths = stored_value(leaf).shape if isinstance(leaf, SharedVariable) else ()
    shape = [1 if 1 in ends else ends[0] for ends in zip_longest(leaf.type.shape, lengths)]
    shape[axis] = rows
    return pt.TensorType(batch_dtype(leaf.type.dtype), tuple(shape))(leaf.name)


def batch_dtype(stored: str) -> str:
    """Widen a leaf's dtype: an index given by ``data=`` must not wrap into the template's."""
    if stored == "bool":
        return stored
    return "float64" if stored.startswith("float") else "int64"


def _clip_indices(node: Node, operands: list[Tensor], axes: RecordAxes) -> list[Tensor]:
    """Keep indices that come from records inside their array; return which records obeyed."""
    checks = []
    if isinstance(node.op, AdvancedSubtensor):
        i = 0
        for axis, index in gather_layout(node).arrays.items():
            i = node.inputs.index(index, i + 1)  # one array may index several axes
            if index in axes.axis and counted_rows(index) is None:
                size = operands[0].shape[axis]
                # pt.clip would be a loop in Python on the Python linker
                inside = pt.minimum(pt.maximum(operands[i], -size), size - 1)
                record = axes.axis[index]
                others = tuple(a for a in range(index.type.ndim) if a != record)
                checks.append(pt.eq(inside, operands[i]).all(axis=others))
                operands[i] = inside.astype(operands[i].dtype)
    return checks


def remake(node: Node, operands: list[AnyVariable]) -> list[AnyVariable]:
    """Apply the node's operation to new operands, letting static shapes be inferred anew."""
    if type(node.op) in KEPT_WHOLE:  # their inner graphs remember the old static shapes
        return [node.op(*operands)]
    if isinstance(node.op, Reshape):
        return [reshape(operands[0], operands[1], ndim=node.outputs[0].type.ndim)]
    return list(node.op.make_node(*operands).outputs)
