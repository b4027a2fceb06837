"""Norms, sums and rows of per-record gradients from the frontier's cotangents."""

from collections.abc import Sequence
from typing import NamedTuple

import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad, grad
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, SpecifyShape

from pymc_dp.contributions.contribution import graph_norms
from pymc_dp.contributions.frontier import Edge, Product, by_row, cut_frontier
from pymc_dp.records.batch import RecordGraph

# a record counts as at least this share of its parts; beyond it, doubles lose the other records
LEAST_SHARE = 1e-10


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
    """

    norms: Variable
    kept: tuple[Variable, ...]
    weighted_sum: Variable
    weights: Variable
    leaf_norms: dict[Variable, str]


def record_sums(graph: RecordGraph, latents: Sequence[Variable]) -> RecordSums:
    """Build the norms and the weighted sum of per-record gradients from the frontier.

    A latent that meets the records once, as it is, needs no gradient: |x| |r| is its norm. For
    the others the cotangents are pulled back to (rows, size of the latent).

    Raises
    ------
    NoFrontierRuleError
        An edge of the graph has no rule.
    """
    edges = cut_frontier(graph, latents)
    weights = pt.vector("weights", dtype="float64")
    totals = [
        (disconnected_grad(edge.total(cotangent, weights)) * edge.operand).sum()
        for edge, cotangent in edges.items()
    ]
    parts = grad(pt.add(*totals), list(latents), disconnected_inputs="ignore")
    hidden = [
        edge.data
        for edge in edges
        if isinstance(edge, Product) and set(latents).intersection(ancestors([edge.data]))
    ]
    return RecordSums(
        norms=_norms(edges, graph, latents),
        kept=tuple(dict.fromkeys([*edges.values(), *hidden])),
        weighted_sum=pt.concatenate([part.ravel() for part in parts]),
        weights=weights,
        leaf_norms=_leaf_norms(edges, graph),
    )


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


def _norms(
    edges: dict[Edge, Variable], graph: RecordGraph, latents: Sequence[Variable]
) -> Variable:
    reached = {latent: _edges_of(latent, edges) for latent in latents}
    blocks = [
        _block(latent, touching, edges, graph.rows)
        for latent, touching in reached.items()
        if touching
    ]
    return blocks[0] if len(blocks) == 1 else graph_norms(pt.stack(blocks, axis=1))


def _edges_of(latent: Variable, edges: dict[Edge, Variable]) -> list[Edge]:
    return [edge for edge in edges if latent in set(ancestors([edge.operand]))]


def _block(
    latent: Variable, touching: list[Edge], edges: dict[Edge, Variable], count: Variable
) -> Variable:
    if len(touching) == 1 and _is_itself(touching[0].operand, latent):
        return touching[0].norms(edges[touching[0]])
    norms = graph_norms(_rows(latent, touching, edges, count))
    # parts that cancel within a record are added over the batch first: keep them small there
    least = LEAST_SHARE * pt.add(*[edge.norms(edges[edge]) for edge in touching])
    return pt.switch(pt.gt(least, norms), least, norms)


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
