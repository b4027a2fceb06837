"""Norms of per-record gradients from the frontier's cotangents."""

from collections.abc import Sequence

import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, SpecifyShape

from pymc_dp.contributions.contribution import graph_norms
from pymc_dp.contributions.frontier import Edge, by_row, cut_frontier
from pymc_dp.records.batch import RecordGraph


def gradient_norms(graph: RecordGraph, latents: Sequence[Variable]) -> Variable:
    """Return the L2 norm of each record's gradient with respect to ``latents``; shape (rows,).

    A latent that meets the records once, as it is, needs no gradient: |x| |r| is its norm. For
    the others the cotangents are pulled back to (rows, size of the latent).

    Raises
    ------
    NoFrontierRuleError
        An edge of the graph has no rule.
    """
    edges = cut_frontier(graph, latents)
    reached = {latent: _edges_of(latent, edges) for latent in latents}
    blocks = [
        _block(latent, touching, edges, graph) for latent, touching in reached.items() if touching
    ]
    if not blocks:
        return pt.zeros((graph.rows,))
    return blocks[0] if len(blocks) == 1 else graph_norms(pt.stack(blocks, axis=1))


def _edges_of(latent: Variable, edges: dict[Edge, Variable]) -> list[Edge]:
    return [edge for edge in edges if latent in set(ancestors([edge.operand]))]


def _block(
    latent: Variable, touching: list[Edge], edges: dict[Edge, Variable], graph: RecordGraph
) -> Variable:
    if len(touching) == 1 and _is_itself(touching[0].operand, latent):
        return touching[0].norms(edges[touching[0]])
    rows = [_pulled_back(latent, edge, edges[edge]) for edge in touching]
    return graph_norms(pt.add(*rows))


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
