"""Norms, sums and rows of per-record gradients from the frontier's cotangents."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pytensor.compile.ops import deep_copy_op
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, SpecifyShape

from pymc_dp.contributions.frontier import Edge, Product, by_row, cut_frontier
from pymc_dp.model.batch import RecordGraph
from pymc_dp.model.graphs import Tensor, pt
from pymc_dp.model.modes import sum_over_records
from pymc_dp.privacy.norms import graph_norms


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


class _Part(NamedTuple):
    """Gradients with respect to one latent; the fields are as in `RecordSums`."""

    norms: Tensor | None  # None where no record depends on the latent
    total: Tensor
    kept: tuple[Tensor, ...] = ()
    formed: bool = False


def record_sums(graph: RecordGraph, latents: Sequence[Tensor]) -> RecordSums:
    """Build the norms and the weighted sum of per-record gradients from the frontier.

    A latent that enters at one edge, as it is, needs no gradient: |x| |r| is its norm. For the
    others rows of the gradient are formed, which both the norm and the sum read: terms that cancel
    within a record would not cancel in the same way if they were added over the batch first.
    Raises `NoFrontierRuleError` where an edge has no rule.
    """
    # a copy prevents rewrites: |f g| as |f| |g| turned a stable residual into a norm 33% short
    edges = {edge: deep_copy_op(c) for edge, c in cut_frontier(graph, latents).items()}
    weights = pt.vector("weights", dtype="float64")
    latent_data = _latent_data(edges, latents)
    parts = {latent: _part(latent, edges, latent_data, weights, graph.rows) for latent in latents}
    norms = [part.norms for part in parts.values() if part.norms is not None]
    names = {leaf: name for name, leaf in graph.inputs.items()}
    return RecordSums(
        norms=norms[0] if len(norms) == 1 else graph_norms(pt.stack(norms, axis=1)),
        kept=tuple(dict.fromkeys(kept for part in parts.values() for kept in part.kept)),
        weighted_sum=pt.concatenate([part.total for part in parts.values()]),
        weights=weights,
        leaf_norms={
            edge.data_norms: names[edge.data]
            for edge in edges
            if isinstance(edge, Product) and edge.data in names
        },
        by_rows=tuple(latent for latent, part in parts.items() if part.formed),
    )


def _part(
    latent: Tensor,
    edges: dict[Edge, Tensor],
    latent_data: dict[Edge, Tensor],
    weights: Tensor,
    count: Tensor,
) -> _Part:
    touching = edges_of(latent, edges)
    if not touching:
        return _Part(None, pt.zeros((latent.size,)))
    if len(touching) == 1 and is_itself(touching[0].operand, latent):
        [edge] = touching
        kept = (edges[edge], latent_data[edge]) if edge in latent_data else (edges[edge],)
        return _Part(edge.norms(edges[edge]), edge.total(edges[edge], weights).ravel(), kept)
    rows: Tensor = deep_copy_op(rows_of(latent, touching, edges, count))  # prevents rewrites
    return _Part(graph_norms(rows), sum_over_records(weights, rows), (rows,), formed=True)


def _latent_data(edges: dict[Edge, Tensor], latents: Sequence[Tensor]) -> dict[Edge, Tensor]:
    """Return factors of products that depend on latents: kept, they are not computed again."""
    return {
        edge: edge.data
        for edge in edges
        if isinstance(edge, Product) and set(latents).intersection(ancestors([edge.data]))
    }


def record_rows(graph: RecordGraph, latents: Sequence[Tensor]) -> Tensor:
    """Build every record's gradient, shape (rows, size of all latents), from the frontier."""
    edges = cut_frontier(graph, latents)
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
