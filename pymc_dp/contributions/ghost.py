"""Norms, sums and rows of per-record gradients from the frontier's cotangents."""

from collections.abc import Sequence
from typing import NamedTuple

import pytensor.tensor as pt
from pytensor.compile.ops import deep_copy_op
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, SpecifyShape

from pymc_dp.contributions.contribution import graph_norms
from pymc_dp.contributions.frontier import Edge, Product, by_row, cut_frontier
from pymc_dp.records.batch import RecordGraph


class RecordSums(NamedTuple):
    """Graphs of the records' gradients, none of which forms a gradient.

    Attributes
    ----------
    norms : vector, shape (rows,)
        The L2 norm of each record's gradient with respect to all latents.
    kept : tuple
        What of the pass behind the norms the sum needs; given, it costs no second pass.
    weighted_sum : vector, shape (size,)
        The sum of the gradients, each times its entry in ``weights``; the latents concatenated.
    weights : vector, shape (rows,)
    leaf_norms : dict
        Inputs for the norms of a leaf's rows, with the name of the leaf.
    by_rows : tuple
        Latents of which every record's gradient is formed.
    """

    norms: Variable
    kept: tuple[Variable, ...]
    weighted_sum: Variable
    weights: Variable
    leaf_norms: dict[Variable, str]
    by_rows: tuple[Variable, ...]


class _Part(NamedTuple):
    """Norms of the gradients of one latent, if it has any, their weighted sum, what to keep."""

    norms: Variable | None
    total: Variable
    kept: tuple[Variable, ...] = ()
    formed: bool = False


def record_sums(graph: RecordGraph, latents: Sequence[Variable]) -> RecordSums:
    """Build the norms and the weighted sum of per-record gradients from the frontier.

    A latent that meets the records once, as it is, needs no gradient: |x| |r| is its norm. For
    the others rows of the gradient are formed. Norm and sum read the same ones: parts that cancel
    within a record would not cancel in the same way if they were added over the batch first.

    Raises
    ------
    NoFrontierRuleError
        An edge of the graph has no rule.
    """
    edges = cut_frontier(graph, latents)
    weights = pt.vector("weights", dtype="float64")
    hidden = _hidden(edges, latents)
    parts = {latent: _part(latent, edges, hidden, weights, graph.rows) for latent in latents}
    norms = [part.norms for part in parts.values() if part.norms is not None]
    return RecordSums(
        norms=norms[0] if len(norms) == 1 else graph_norms(pt.stack(norms, axis=1)),
        kept=tuple(dict.fromkeys(kept for part in parts.values() for kept in part.kept)),
        weighted_sum=pt.concatenate([part.total for part in parts.values()]),
        weights=weights,
        leaf_norms=_leaf_norms(edges, graph),
        by_rows=tuple(latent for latent, part in parts.items() if part.formed),
    )


def _part(
    latent: Variable,
    edges: dict[Edge, Variable],
    hidden: dict[Edge, Variable],
    weights: Variable,
    count: Variable,
) -> _Part:
    touching = _edges_of(latent, edges)
    if not touching:
        return _Part(None, pt.zeros((latent.size,)))
    if len(touching) == 1 and _is_itself(touching[0].operand, latent):
        [edge] = touching
        kept = (edges[edge], hidden[edge]) if edge in hidden else (edges[edge],)
        return _Part(edge.norms(edges[edge]), edge.total(edges[edge], weights).ravel(), kept)
    rows = deep_copy_op(_rows(latent, touching, edges, count))  # bars rewrites
    return _Part(graph_norms(rows), weights @ rows, (rows,), formed=True)


def _hidden(edges: dict[Edge, Variable], latents: Sequence[Variable]) -> dict[Edge, Variable]:
    """Data that depend on latents, by their edges: where they are kept, a sum needs no latent."""
    return {
        edge: edge.data
        for edge in edges
        if isinstance(edge, Product) and set(latents).intersection(ancestors([edge.data]))
    }


def record_rows(graph: RecordGraph, latents: Sequence[Variable]) -> Variable:
    """Build every record's gradient, shape (rows, size of all latents), from the frontier.

    Raises
    ------
    NoFrontierRuleError
        An edge of the graph has no rule.
    """
    edges = cut_frontier(graph, latents)
    blocks = [_rows(latent, _edges_of(latent, edges), edges, graph.rows) for latent in latents]
    return pt.concatenate(blocks, axis=1)


def _rows(
    latent: Variable, touching: list[Edge], edges: dict[Edge, Variable], count: Variable
) -> Variable:
    if not touching:
        return pt.zeros((count, latent.size))
    return pt.add(*[_pulled_back(latent, edge, edges[edge]) for edge in touching])


def _leaf_norms(edges: dict[Edge, Variable], graph: RecordGraph) -> dict[Variable, str]:
    names = {leaf: name for name, leaf in graph.inputs.items()}
    return {
        edge.data_norms: names[edge.data]
        for edge in edges
        if isinstance(edge, Product) and edge.data in names
    }


def _edges_of(latent: Variable, edges: dict[Edge, Variable]) -> list[Edge]:
    return [edge for edge in edges if latent in set(ancestors([edge.operand]))]


def _is_itself(operand: Variable, latent: Variable) -> bool:
    """Whether the operand is the latent up to its shape, its entries in the same order."""
    while operand is not latent:
        node = operand.owner
        if node is None or not isinstance(node.op, DimShuffle | Reshape | SpecifyShape):
            return False
        if isinstance(node.op, DimShuffle):
            kept = [axis for axis in node.op.new_order if axis != "x"]
            if kept != sorted(kept):
                return False
        operand = node.inputs[0]
    return True


def _pulled_back(latent: Variable, edge: Edge, cotangent: Variable) -> Variable:
    """Rows of the gradient with respect to the latent, through this edge alone."""
    rows = edge.rows(cotangent)
    if _is_itself(edge.operand, latent):
        return rows
    one = edge.operand.type.clone(dtype="float64")("cotangent")
    pullback = grad((one * edge.operand).sum(), latent)
    shape = [rows.shape[0], *[edge.operand.shape[k] for k in range(edge.operand.ndim)]]
    batched = pt.specify_shape(rows.reshape(shape), [None, *edge.operand.type.shape])
    return by_row(vectorize_graph(pullback, {one: batched}), rows.shape[0])
