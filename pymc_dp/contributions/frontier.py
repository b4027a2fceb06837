"""The frontier: every place where a function of the latents alone meets the records.

Cutting the graph there gives one backward pass whose results still have a row per record. From
the cotangent of each cut follow the norm of the record's gradient, without the gradient itself
(ghost norms: Li et al. 2022), and the weighted sum of the gradients without a second backward pass
(book-keeping: Bu et al. 2023).
"""

from collections.abc import Sequence
from typing import NamedTuple

import pytensor.tensor as pt
from pytensor.compile.ops import deep_copy_op
from pytensor.gradient import grad
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Alloc
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.special import LogAddExp, XLog1PY, XLogY
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.contributions.contribution import graph_norms
from pymc_dp.records.batch import RecordGraph, remake
from pymc_dp.records.indexing import gather_layout


def by_row(x: Variable, count: Variable) -> Variable:
    """Flatten all axes but the first, of length ``count``, into one."""
    return x[:, None] if x.ndim == 1 else x.reshape((count, -1))


class NoFrontierRuleError(Exception):
    """The graph has an edge without a rule; per-record gradients must be formed instead."""


class Spread(NamedTuple):
    """``operand`` is broadcast over the records.

    Every edge has three methods. ``norms`` are those of the records' gradients with respect to
    the operand, shape (rows,); ``rows`` the gradients themselves, shape (rows, size of the
    operand); ``total`` their weighted sum, of the operand's shape.
    """

    operand: Variable
    cut: Variable
    axis: int

    def norms(self, cotangent: Variable) -> Variable:
        return graph_norms(self.rows(cotangent))

    def rows(self, cotangent: Variable) -> Variable:
        return by_row(pt.moveaxis(cotangent, self.axis, 0), cotangent.shape[self.axis])

    def total(self, cotangent: Variable, weights: Variable) -> Variable:
        aligned = [0 if k == self.axis else "x" for k in range(cotangent.ndim)]
        summed = (weights.dimshuffle(aligned) * cotangent).sum(axis=self.axis, keepdims=True)
        return summed.reshape(self.operand.shape, ndim=self.operand.ndim)


class Product(NamedTuple):
    """``operand`` meets one row of ``data`` (rows, n) per record in a matrix product.

    ``data_norms`` are the norms of those rows; an input of its own where the data are a leaf, so
    that they can be computed outside the graph.
    """

    operand: Variable
    cut: Variable
    data: Variable
    data_norms: Variable
    from_left: bool

    def norms(self, cotangent: Variable) -> Variable:
        return self.data_norms * graph_norms(self._turned(cotangent))

    def rows(self, cotangent: Variable) -> Variable:
        left, right = self.data, self._turned(cotangent)
        if right.ndim == 1:
            return left * right[:, None]
        if self.from_left:
            left, right = right, left
        return by_row(left[:, :, None] * right[:, None, :], self.data.shape[0])

    def total(self, cotangent: Variable, weights: Variable) -> Variable:
        turned = self._turned(cotangent)
        weighted = pt.shape_padright(weights, turned.ndim - 1) * turned
        if self.from_left and turned.ndim == 2:
            return weighted.T @ self.data
        return self.data.T @ weighted

    def _turned(self, cotangent: Variable) -> Variable:
        return cotangent.T if self.from_left else cotangent


class Gather(NamedTuple):
    """Each record picks one entry of ``operand``, by its ``indices``."""

    operand: Variable
    cut: Variable
    indices: tuple[Variable, ...]

    def norms(self, cotangent: Variable) -> Variable:
        return graph_norms(cotangent)

    def rows(self, cotangent: Variable) -> Variable:
        count = cotangent.shape[0]
        empty = pt.zeros((count, *self.operand.shape), dtype=cotangent.dtype)
        picked = empty[(pt.arange(count), *self.indices)]
        return by_row(pt.set_subtensor(picked, cotangent), count)

    def total(self, cotangent: Variable, weights: Variable) -> Variable:
        weighted = pt.shape_padright(weights, cotangent.ndim - 1) * cotangent
        empty = pt.zeros_like(self.operand)
        return pt.inc_subtensor(empty[self.indices], weighted)


Edge = Spread | Product | Gather


def cut_frontier(graph: RecordGraph, latents: Sequence[Variable]) -> dict[Edge, Variable]:
    """Return every edge of the frontier with the cotangent of its cut; row i is record i's.

    Raises
    ------
    NoFrontierRuleError
        An edge has no rule.
    """
    from_latents = set(latents)
    renewed: dict[Variable, Variable] = {}
    edges: list[Edge] = []
    for node in toposort(list(graph.terms)):
        if any(x in from_latents for x in node.inputs):
            from_latents.update(node.outputs)
        operands = [renewed.get(x, x) for x in node.inputs]
        carrying = [output for output in node.outputs if output in graph.axis]
        entering = [
            i
            for i, x in enumerate(node.inputs)
            if carrying and x in from_latents and x not in graph.axis and _is_real(x)
        ]
        cuts = [_cut(node, operands, i, carrying[0], graph) for i in entering]
        if any(new is not old for new, old in zip(operands, node.inputs, strict=True)) or cuts:
            renewed.update(zip(node.outputs, remake(node, operands), strict=True))
        # a product or a gather is cut behind the node: its output is known only now
        edges += [
            edge._replace(cut=renewed[carrying[0]]) if edge.cut is None else edge for edge in cuts
        ]
    total = (
        graph._replace(terms=tuple(renewed.get(term, term) for term in graph.terms))
        .log_likelihood()
        .sum()
    )
    cotangents = grad(total, [edge.cut for edge in edges], disconnected_inputs="ignore")
    # a copy bars rewrites: |f g| as |f| |g| turned a stable residual into a norm 33% short
    return dict(zip(edges, [deep_copy_op(c) for c in cotangents], strict=True))


def _cut(
    node: Apply, operands: list[Variable], i: int, output: Variable, graph: RecordGraph
) -> Edge:
    """Describe the edge into input ``i``; where the cut is the operand itself, put it in place."""
    op, k = node.op, graph.axis[output]
    operand = node.inputs[i]
    if isinstance(op, Elemwise | XLogY | XLog1PY | LogAddExp | Alloc):
        if i > 0 and isinstance(op, Alloc):
            raise NoFrontierRuleError
        padded = pt.shape_padleft(operand, output.ndim - operand.ndim)
        operands[i] = _repeat(padded, k, graph.rows)
        return Spread(operand, operands[i], k)
    if is_product(node):
        return _product(node, operands, i, k, graph)
    if isinstance(op, AdvancedSubtensor) and i == 0:
        return _gather(node, operands, k)
    if isinstance(op, Blockwise):
        batch = output.ndim - len(op.outputs_sig[0])
        if k < batch:
            core = len(op.inputs_sig[i])
            padded = pt.shape_padleft(operand, batch + core - operand.ndim)
            operands[i] = _repeat(padded, k, graph.rows)
            return Spread(operand, operands[i], k)
    raise NoFrontierRuleError


def _repeat(x: Variable, axis: int, rows: Variable) -> Variable:
    return pt.broadcast_to(x, [rows if k == axis else x.shape[k] for k in range(x.ndim)])


def is_product(node: Apply) -> bool:
    """Whether the node is a plain matrix product."""
    op = node.op
    whole = isinstance(op, Blockwise) and isinstance(op.core_op, Dot)
    return isinstance(op, Dot) or (whole and node.outputs[0].ndim == len(op.outputs_sig[0]))


def _product(node: Apply, operands: list[Variable], i: int, k: int, graph: RecordGraph) -> Edge:
    data, last = operands[1 - i], node.outputs[0].ndim - 1
    if data.ndim != 2 or (i, k) not in {(1, 0), (0, last)}:
        raise NoFrontierRuleError
    if i == 0:
        return Product(node.inputs[0], None, data.T, graph_norms(data.T), from_left=True)
    leaf = data in graph.inputs.values()
    norms = pt.vector("data_norms", dtype="float64") if leaf else graph_norms(data)
    return Product(node.inputs[1], None, data, norms, from_left=False)


def _gather(node: Apply, operands: list[Variable], k: int) -> Edge:
    layout = gather_layout(node)
    indices = tuple(operands[node.inputs.index(index)] for index in layout.arrays.values())
    leading = list(layout.arrays) == list(range(len(indices)))
    if k != 0 or not leading or layout.sliced or any(index.ndim != 1 for index in indices):
        raise NoFrontierRuleError
    return Gather(node.inputs[0], None, indices)


def _is_real(x: Variable) -> bool:
    """No gradient passes through whole numbers: sizes, indices, comparisons."""
    return x.type.dtype.startswith("float")
