"""Gradients of single records without a backward pass for each: cut the graph where records begin.

The frontier are the inputs of operations on records that depend on the latents alone. Cut there,
one backward pass gives cotangents that still have a row per record. `cut_frontier` finds the edges,
each of which has the algebra of its operation. The cotangent of a cut determines the norm of the
record's gradient without the gradient itself (ghost norms: Li et al. 2022), and the weighted sum of
the gradients without a second backward pass (book-keeping: Bu et al. 2023): `record_sums`. Where
rows are wanted, `record_rows` forms them.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from pytensor.compile.ops import deep_copy_op
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import Mul
from pytensor.tensor.basic import Alloc
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import LogAddExp, XLog1PY, XLogY
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.model.batch import RecordGraph, remake
from pymc_dp.model.compilation import sum_over_records
from pymc_dp.model.graphs import Node, Tensor, pt
from pymc_dp.model.separation_proof import gather_layout
from pymc_dp.privacy.norms import graph_norms


def by_row(x: Tensor, count: Tensor) -> Tensor:
    """Flatten all axes but the first, of length ``count``, into one."""
    return x[:, None] if x.ndim == 1 else x.reshape((count, -1))


class NoFrontierRuleError(Exception):
    """No rule covers an edge of the graph; per-record gradients must be formed instead."""


class Spread(NamedTuple):
    """``operand`` is broadcast over the records.

    Every edge has five methods. ``norms`` are those of the records' gradients in the operand,
    (rows,); ``rows`` the gradients, (rows, size of the operand); ``total`` their weighted sum, of
    the operand's shape. ``core`` is the shape of a record's part of the cut, given the operand's.
    ``through`` multiplies a matrix for the operand, (*its shape, n), by what the j-th number of
    that part has to do with it: (rows, n). ``axis`` is that of the records in the cut.
    """

    operand: Tensor
    cut: Tensor
    axis: int

    def norms(self, cotangent: Tensor) -> Tensor:
        return graph_norms(self.rows(cotangent))

    def rows(self, cotangent: Tensor) -> Tensor:
        return by_row(pt.moveaxis(cotangent, self.axis, 0), cotangent.shape[self.axis])

    def total(self, cotangent: Tensor, weights: Tensor) -> Tensor:
        aligned = [0 if k == self.axis else "x" for k in range(cotangent.ndim)]
        summed = (weights.dimshuffle(aligned) * cotangent).sum(axis=self.axis, keepdims=True)
        return summed.reshape(self.operand.shape, ndim=self.operand.ndim)

    def core(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        padded = (1,) * int(self.cut.ndim - len(shape)) + shape
        return padded[: self.axis] + padded[self.axis + 1 :]

    def through(self, matrix: Tensor, j: int) -> Tensor:
        row = matrix.reshape((-1, matrix.shape[-1]))[j]
        return pt.broadcast_to(row, [self.cut.shape[self.axis], row.shape[0]])


class Product(NamedTuple):
    """``operand`` is multiplied by one row of ``data`` (rows, n) per record in a matrix product."""

    operand: Tensor
    cut: Tensor
    data: Tensor
    # shape (rows,): their norms; an input where the data are a leaf, computed outside the graph
    data_norms: Tensor
    from_left: bool

    @property
    def axis(self) -> int:
        return self.cut.ndim - 1 if self.from_left else 0

    def norms(self, cotangent: Tensor) -> Tensor:
        return self.data_norms * graph_norms(self._each_record(cotangent))

    def rows(self, cotangent: Tensor) -> Tensor:
        left, right = self.data, self._each_record(cotangent)
        if right.ndim == 1:
            return left * right[:, None]
        if self.from_left:
            left, right = right, left
        return by_row(left[:, :, None] * right[:, None, :], self.data.shape[0])

    def total(self, cotangent: Tensor, weights: Tensor) -> Tensor:
        rows = self._each_record(cotangent)
        weighted = pt.shape_padright(weights, rows.ndim - 1) * rows
        if self.from_left and rows.ndim == 2:
            return sum_over_records(weighted.T, self.data)
        return sum_over_records(self.data.T, weighted)

    def core(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape[:-1] if self.from_left else shape[1:]

    def through(self, matrix: Tensor, j: int) -> Tensor:
        if matrix.ndim == 2:
            return self.data @ matrix
        return self.data @ (matrix[j] if self.from_left else matrix[:, j])

    def _each_record(self, cotangent: Tensor) -> Tensor:
        return cotangent.T if self.from_left else cotangent


class Gather(NamedTuple):
    """Each record reads one entry of ``operand``, at its ``indices``."""

    operand: Tensor
    cut: Tensor
    indices: tuple[Tensor, ...]

    @property
    def axis(self) -> int:
        return 0

    def norms(self, cotangent: Tensor) -> Tensor:
        return graph_norms(cotangent)

    def rows(self, cotangent: Tensor) -> Tensor:
        count = cotangent.shape[0]
        empty = pt.zeros((count, *self.operand.shape), dtype=cotangent.dtype)
        picked = empty[(pt.arange(count), *self.indices)]  # an index may be the same for all rows
        return by_row(pt.set_subtensor(picked, cotangent), count)

    def total(self, cotangent: Tensor, weights: Tensor) -> Tensor:
        weighted = pt.shape_padright(weights, cotangent.ndim - 1) * cotangent
        return pt.inc_subtensor(pt.zeros_like(self.operand)[self.indices], weighted)

    def core(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape[len(self.indices) :]

    def through(self, matrix: Tensor, j: int) -> Tensor:
        leading = [matrix.shape[k] for k in range(len(self.indices))]
        return matrix.reshape((*leading, -1, matrix.shape[-1]))[..., j, :][self.indices]


Edge = Spread | Product | Gather


def cut_frontier(
    graph: RecordGraph, latents: Sequence[Tensor], outcomes: Collection[Tensor] | None = None
) -> dict[Edge, Tensor]:
    """Return every edge of the frontier with the cotangent of its cut; row i is record i's.

    Where ``outcomes`` are given, a latent number times a column that reads none of them is a matrix
    product, too: a part of a linear predictor. Elsewhere the number is spread.

    Raises `NoFrontierRuleError` where an edge has no rule.
    """
    from_latents = set(latents)
    moving = None if outcomes is None else from_latents | set(outcomes)
    renewed: dict[Tensor, Tensor] = {}
    edges: list[Edge] = []
    for node in toposort(list(graph.terms)):
        if any(x in from_latents for x in node.inputs):
            from_latents.update(node.outputs)
        operands = [renewed.get(x, x) for x in node.inputs]
        carrying = [output for output in node.outputs if output in graph.axis]
        entering = [
            i
            for i, x in enumerate(node.inputs)
            if carrying
            and x in from_latents
            and x not in graph.axis
            # gradients do not pass through whole numbers, such as sizes and indices
            and x.type.dtype.startswith("float")
        ]
        cuts = [
            _column(node, operands, i, graph, moving) or _cut(node, operands, i, carrying[0], graph)
            for i in entering
        ]
        if any(new is not old for new, old in zip(operands, node.inputs, strict=True)) or cuts:
            renewed.update(zip(node.outputs, remake(node, operands), strict=True))
        # a product or a gather is cut at the node's output, which exists only now
        edges += [x._replace(cut=renewed[carrying[0]]) if x.cut is None else x for x in cuts]
    terms = tuple(renewed.get(term, term) for term in graph.terms)
    each: Tensor = graph._replace(terms=terms).log_likelihood()
    cotangents = pt.grad(each.sum(), [edge.cut for edge in edges], disconnected_inputs="ignore")
    return dict(zip(edges, cotangents, strict=True))


def _column(
    node: Node, operands: list[Tensor], i: int, graph: RecordGraph, moving: set[Tensor] | None
) -> Edge | None:
    """Describe a product of number ``i`` and each record's own, which reads nothing ``moving``."""
    is_product = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Mul)
    if moving is None or not is_product or len(node.inputs) != 2:
        return None
    number: Tensor = node.inputs[i]
    column: Tensor = node.inputs[1 - i]
    if column not in graph.axis or column.ndim != 1 or not all(number.type.broadcastable):
        return None
    if not moving.isdisjoint(ancestors([column])):
        return None
    data = operands[1 - i][:, None]
    return Product(number.reshape((1,)), None, data, graph_norms(data), from_left=False)


def _cut(node: Node, operands: list[Tensor], i: int, output: Tensor, graph: RecordGraph) -> Edge:
    """Describe the edge into input ``i``; a broadcast operand is also replaced by its cut."""
    op, k = node.op, graph.axis[output]
    operand: Tensor = node.inputs[i]
    if isinstance(op, Alloc) and i > 0:
        raise NoFrontierRuleError
    if isinstance(op, Elemwise | XLogY | XLog1PY | LogAddExp | Alloc):
        return _spread(operands, i, operand, output.ndim, k, graph)
    is_dot = isinstance(op, Blockwise) and isinstance(op.core_op, Dot)
    if isinstance(op, Dot) or (is_dot and output.ndim == len(op.outputs_sig[0])):
        return _product(node, operands, i, k, graph)
    if isinstance(op, AdvancedSubtensor) and i == k == 0:
        layout = gather_layout(node)
        indices = tuple(operands[node.inputs.index(index)] for index in layout.arrays.values())
        leading = list(layout.arrays) == list(range(len(indices)))
        if leading and not layout.sliced and all(index.ndim == 1 for index in indices):
            return Gather(operand, None, indices)
    if isinstance(op, Blockwise):
        batch = output.ndim - len(op.outputs_sig[0])
        if k < batch:
            return _spread(operands, i, operand, batch + len(op.inputs_sig[i]), k, graph)
    raise NoFrontierRuleError


def _spread(
    operands: list[Tensor], i: int, operand: Tensor, ndim: int, axis: int, graph: RecordGraph
) -> Edge:
    """Repeat input ``i`` along the records' axis, and put the result in its place."""
    padded = pt.shape_padleft(operand, ndim - operand.ndim)
    shape = [graph.rows if k == axis else padded.shape[k] for k in range(padded.ndim)]
    operands[i] = pt.broadcast_to(padded, shape)
    return Spread(operand, operands[i], axis)


def _product(node: Node, operands: list[Tensor], i: int, k: int, graph: RecordGraph) -> Edge:
    data, last = operands[1 - i], node.outputs[0].type.ndim - 1
    if data.ndim != 2 or (i, k) not in {(1, 0), (0, last)}:
        raise NoFrontierRuleError
    if i == 0:
        return Product(node.inputs[0], None, data.T, graph_norms(data.T), from_left=True)
    leaf = data in graph.inputs.values()
    norms = pt.vector("data_norms", dtype="float64") if leaf else graph_norms(data)
    return Product(node.inputs[1], None, data, norms, from_left=False)


class RecordSums(NamedTuple):
    """Graphs of the norms and the weighted sum of the records' gradients."""

    # shape (rows,): the L2 norm of each record's gradient with respect to all latents
    norms: Tensor
    # intermediate results of the norms that the sum reads: given these, it needs no second pass
    kept: tuple[Tensor, ...]
    # shape (size,): the sum of the gradients, each times its entry in ``weights``, latent by latent
    weighted_sum: Tensor
    weights: Tensor  # shape (rows,)
    # inputs for the norms of a leaf's rows, with the name of the leaf
    leaf_norms: dict[Tensor, str]
    by_rows: tuple[Tensor, ...]  # latents of which every record's gradient is formed


def record_sums(graph: RecordGraph, latents: Sequence[Tensor]) -> RecordSums:
    """Build the norms and the weighted sum of per-record gradients from the frontier.

    A latent that enters at one edge, as it is, needs no gradient: |x| |r| is its norm. For the
    others rows of the gradient are formed, which both the norm and the sum read: terms that cancel
    within a record would not cancel in the same way if they were added over the batch first.
    Raises `NoFrontierRuleError` where an edge has no rule.
    """
    edges = _stable_frontier(graph, latents)
    weights = pt.vector("weights", dtype="float64")
    norms, totals, kept, by_rows = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
    for latent in latents:
        touching = edges_of(latent, edges)
        if not touching:
            totals.append(pt.zeros((latent.size,)))
        elif len(touching) == 1 and is_itself(touching[0].operand, latent):
            [edge] = touching
            norms.append(edge.norms(edges[edge]))
            totals.append(edge.total(edges[edge], weights).ravel())
            kept.append(edges[edge])
            # a factor that depends on latents is not computed again
            if isinstance(edge, Product) and not set(latents).isdisjoint(ancestors([edge.data])):
                kept.append(edge.data)
        else:
            rows: Tensor = deep_copy_op(rows_of(latent, touching, edges, graph.rows))
            norms.append(graph_norms(rows))
            totals.append(sum_over_records(weights, rows))
            kept.append(rows)
            by_rows.append(latent)
    names = {leaf: name for name, leaf in graph.inputs.items()}
    return RecordSums(
        norms=norms[0] if len(norms) == 1 else graph_norms(pt.stack(norms, axis=1)),
        kept=tuple(dict.fromkeys(kept)),
        weighted_sum=pt.concatenate(totals),
        weights=weights,
        leaf_norms={
            edge.data_norms: names[edge.data]
            for edge in edges
            if isinstance(edge, Product) and edge.data in names
        },
        by_rows=tuple(by_rows),
    )


def _stable_frontier(graph: RecordGraph, latents: Sequence[Tensor]) -> dict[Edge, Tensor]:
    """Return the frontier with copies of cotangents, so that no rewrite takes them apart.

    |f g| as |f| |g| made a norm 33% short, and x times a residual of -1 became 0.
    """
    return {edge: deep_copy_op(c) for edge, c in cut_frontier(graph, latents).items()}


def record_rows(graph: RecordGraph, latents: Sequence[Tensor]) -> Tensor:
    """Build every record's gradient, shape (rows, size of all latents), from the frontier."""
    edges = _stable_frontier(graph, latents)
    blocks = [rows_of(latent, edges_of(latent, edges), edges, graph.rows) for latent in latents]
    return pt.concatenate(blocks, axis=1)


def rows_of(
    latent: Tensor, touching: list[Edge], edges: dict[Edge, Tensor], count: Tensor
) -> Tensor:
    """Return the rows of the gradient with respect to a latent, through some edges."""
    if not touching:
        return pt.zeros((count, latent.size))
    parts = [pulled_back(latent, edge.operand, edge.rows(edges[edge])) for edge in touching]
    return pt.add(*parts)


def edges_of(latent: Tensor, edges: Iterable[Edge]) -> list[Edge]:
    """Return the edges whose operand depends on a latent."""
    return [edge for edge in edges if latent in set(ancestors([edge.operand]))]


def is_itself(operand: Tensor, latent: Tensor) -> bool:
    """Whether the operand is the latent up to its shape, its entries in the same order."""
    while operand is not latent:
        op = operand.owner_op
        if isinstance(op, DimShuffle):
            kept = [axis for axis in op.new_order if axis != "x"]
            if kept != sorted(kept):
                return False
        elif not isinstance(op, Reshape | SpecifyShape):
            return False
        operand = operand.owner.inputs[0]
    return True


def pulled_back(latent: Tensor, operand: Tensor, rows: Tensor) -> Tensor:
    """Turn gradients with respect to an operand, (rows, its size), into those of the latent."""
    if is_itself(operand, latent):
        return rows
    one = operand.type.clone(dtype="float64")("cotangent")
    pullback = pt.grad((one * operand).sum(), latent)
    if one not in ancestors([pullback]):  # the operand is piecewise constant: a comparison, a sign
        return pt.zeros((rows.shape[0], latent.size))
    shape = [rows.shape[0], *[operand.shape[k] for k in range(operand.ndim)]]
    batched = pt.specify_shape(rows.reshape(shape), [None, *operand.type.shape])
    return by_row(vectorize_graph(pullback, {one: batched}), rows.shape[0])
