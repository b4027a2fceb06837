"""Scores as combinations of a few vectors of each record, its channels.

A gradient is linear in the cotangents of the frontier: as many numbers as there are predictors that
a record's likelihood reads. What multiplies them, such as a row of data, is the same whatever the
outcome. So the scores of one record at many outcomes lie in the span of few vectors, in an
orthonormal basis of which (by Gram-Schmidt) norms and sums are computed.
"""

from collections.abc import Collection
from math import prod
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import equal_computations
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Shape, Shape_i

from pymc_dp.contributions.frontier import (
    Edge,
    NoFrontierRuleError,
    Product,
    Spread,
    by_row,
    cut_frontier,
    edges_of,
    is_itself,
    pulled_back,
    rows_of,
)
from pymc_dp.contributions.gradients import checked
from pymc_dp.model import Records
from pymc_dp.model.graphs import AnyVariable, Tensor, pt
from pymc_dp.privacy.norms import each_product, row_norms

# of more latents than MANY_LATENTS the diagonal of curvatures is released alone, and the trace of
# products of weighted scores, and no more coordinates are integrated out. Their scores are formed
# fast, so that more than MOST_FOR_MANY channels cost more than they save
MANY_LATENTS, MOST_FOR_MANY = 150, 6


def coordinates_of(records: Records, latents: Collection[AnyVariable]) -> np.ndarray:
    """Return which coordinates are those of some latents, (d,)."""
    sizes = [x.size for x in records.point.values()]
    return np.repeat([z in latents for z in records.latents.values()], sizes)


class Channels(NamedTuple):
    """Graphs of the factors of scores: that of a record is ``weights @ vectors``."""

    weights: Tensor  # (rows, c)
    vectors: list[Tensor]  # c graphs of shape (rows, d), the same whatever the outcome
    reach: np.ndarray  # which latents each of them reads, (c, d): others have a score of 0
    # what else is the same whatever the outcome, and the axis of the records in it: predictors, and
    # whether a record's indices are valid
    fixed: dict[Tensor, int]
    # for each vector the array that holds the predictor in which its weight is the slope of the log
    # likelihood, and the axis of the records there, those of one array in its order; none at all
    # where one of them is a latent that all records share
    predictors: list[tuple[Tensor, int]]


class _Channel(NamedTuple):
    """Edges of the frontier that share one cotangent."""

    cotangent: Tensor  # (rows, width), or (rows,)
    width: int
    edges: list[Edge]


def record_channels(records: Records, outcomes: Collection[str]) -> Channels:
    """Factor the scores of a batch, whose leaves named ``outcomes`` are the outcomes.

    Raises `NoFrontierRuleError` where an edge has no rule, where a channel's vector depends on
    outcomes, or where so many channels would save nothing.
    """
    graph, latents = records.batch, records.latents
    leaves = {graph.inputs[name] for name in outcomes}
    edges = cut_frontier(graph, list(latents.values()), leaves)
    shapes = _shapes(records, edges)
    channels = _merged(edges, shapes)
    spread = [c for c in channels if all(isinstance(edge, Spread) for edge in c.edges)]
    others = [c for c in channels if c not in spread]
    through = [edge for c in spread for edge in c.edges]
    reached = [z for z in latents.values() if edges_of(z, through)]
    own = []  # latents whose coordinates are channels: fewer than the numbers that are spread
    if coordinates_of(records, reached).sum() < sum(c.width for c in spread):
        spread, own = [], reached
    used = (*others, *spread)
    weights = [by_row(c.cotangent, graph.rows) for c in used]
    weights += [rows_of(z, edges_of(z, through), edges, graph.rows) for z in own]
    units = [*np.eye(records.size)[coordinates_of(records, own)]]
    vectors = [row for c in used for row in _vectors(c, records, shapes)]
    vectors += [pt.broadcast_to(unit, (graph.rows, records.size)) for unit in units]
    reach = []
    for c in used:
        read = [z for z in latents.values() if edges_of(z, c.edges)]
        reach += [coordinates_of(records, read)] * c.width
    reach += [unit > 0 for unit in units]
    most = max(1, records.size // 2) if records.size <= MANY_LATENTS else MOST_FOR_MANY
    if len(vectors) > most or not _values_read(vectors).isdisjoint(leaves):
        raise NoFrontierRuleError
    fixed = {edge.cut: edge.axis for edge in edges if not isinstance(edge, Spread)}
    if graph.valid is not None and leaves.isdisjoint(_values_read([graph.valid])):
        fixed[graph.valid] = 0
    # of the predictors whose sum is a channel's one stands for all: they have one derivative
    predictors = [
        next((x.cut, x.axis) for x in c.edges if not isinstance(x, Spread))
        for c in others
        for _ in range(c.width)
    ]
    return Channels(
        checked(records, pt.concatenate(weights, axis=1)),
        vectors,
        np.array(reach),
        fixed,
        predictors if len(predictors) == len(vectors) else [],
    )


def _shapes(records: Records, edges: Collection[Edge]) -> dict[Edge, tuple[int, ...]]:
    """Return the shape of each operand."""
    known = {
        latent: latent.type.clone(shape=records.point[name].shape)()
        for name, latent in records.latents.items()
    }
    found = clone_replace([edge.operand for edge in edges], known, rebuild_strict=False)
    shapes = [operand.type.shape for operand in found]
    if any(None in shape for shape in shapes):
        raise NoFrontierRuleError
    return dict(zip(edges, shapes, strict=True))


def _merged(edges: dict[Edge, Tensor], shapes: dict[Edge, tuple[int, ...]]) -> list[_Channel]:
    """Put edges together whose cotangents are one computation, as those of added terms are."""
    channels: list[_Channel] = []
    for edge, cotangent in edges.items():
        width = prod(edge.core(shapes[edge]))
        each = _by_record(cotangent, edge.axis, width)
        for channel in channels:
            if equal_computations([channel.cotangent], [each]):
                channel.edges.append(edge)
                break
        else:
            channels.append(_Channel(each, width, [edge]))
    return channels


def _by_record(cotangent: Tensor, axis: int, width: int) -> Tensor:
    """Bring a cotangent to the shape (rows, width), or (rows,) where the width is 1."""
    if width != 1:
        return by_row(pt.moveaxis(cotangent, axis, 0), cotangent.shape[axis])
    vector = cotangent
    while vector.ndim > 1 and isinstance(vector.owner_op, DimShuffle):
        vector = vector.owner.inputs[0]  # all of its axes but the records' have length 1
    others = tuple(k for k in range(cotangent.ndim) if k != axis)
    return vector if vector.ndim == 1 else cotangent.squeeze(others)


def _vectors(
    channel: _Channel, records: Records, shapes: dict[Edge, tuple[int, ...]]
) -> list[Tensor]:
    """Return the gradients of all latents for each cotangent that is 1 in one place."""
    found, rows = [], records.batch.rows
    for j in range(channel.width):
        blocks = []
        latent: Tensor
        for latent in records.latents.values():
            touching = edges_of(latent, channel.edges)
            parts = [_block(edge, latent, shapes[edge], j) for edge in touching]
            blocks.append(pt.add(*parts) if parts else pt.zeros((rows, latent.size)))
        found.append(pt.concatenate(blocks, axis=1))
    return found


def _block(edge: Edge, latent: Tensor, shape: tuple[int, ...], j: int) -> Tensor:
    """Return the gradient of a latent through an edge for a cotangent that is 1 at place j."""
    core = edge.core(shape)
    if isinstance(edge, Product) and is_itself(edge.operand, latent):
        unit = np.eye(prod(core))[j].reshape(core)
        return edge.rows(pt.expand_dims(unit, edge.axis) * pt.ones_like(edge.cut))
    matrix = pulled_back(latent, edge.operand, pt.constant(np.eye(prod(shape))))
    return edge.through(matrix.reshape((*shape, matrix.shape[-1])), j)


def _values_read(graphs: Collection[Tensor]) -> set[AnyVariable]:
    """Return what graphs depend on by more than its shape."""
    shapes = [v for v in ancestors(graphs) if isinstance(v.owner_op, Shape | Shape_i)]
    return set(ancestors(graphs, blockers=shapes))


# what is left of a vector beside the others, as a share of it, that is rounding alone
ROUNDING = 1e-14
# shorter vectors count as 0: of numbers so small only some digits are kept
SHORTEST = 1e-280


def orthonormal(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Q (c, rows, d) and R (c, c, rows) with ``vectors[j] = sum over i of R[i, j] Q[i]``.

    For every row the Q[i] are orthonormal, or 0 where the vectors span fewer than c dimensions
    (Gram-Schmidt, twice: Björck 1994). R is upper triangular, and nan where a vector is not finite.
    """
    c, rows, _ = vectors.shape
    Q, R = np.empty_like(vectors), np.zeros((c, c, rows))
    for j, vector in enumerate(vectors):
        left, whole = vector, row_norms(vector)
        for _ in range(2 if j else 0):
            for i in range(j):
                part = np.vecdot(Q[i], left)
                R[i, j] += part
                left = left - part[:, None] * Q[i]
        norms = np.where(np.isfinite(whole), row_norms(left) if j else whole, np.nan)
        none = norms <= np.maximum(ROUNDING * whole, SHORTEST)
        R[j, j] = np.where(none, 0.0, norms)
        np.multiply(left, np.where(none, 0.0, 1 / np.where(none, 1.0, norms))[:, None], out=Q[j])
    return Q, R


def coordinates(R: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return weights (rows, k, c) of vectors as those of a basis, given its R, (b, c, rows)."""
    found = np.zeros((len(R), *weights.shape[:2]))
    for i, row in enumerate(R):
        for j, share in enumerate(row):  # those of 0, too: a weight that is not finite shows
            found[i] += weights[:, :, j] * share[:, None]
    return np.moveaxis(found, 0, -1)  # in this order in memory, loops are long


def combined(weights: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Sum vectors (c, rows, d) with weights (rows, k, c); shape (rows, k, d)."""
    return each_product(weights, np.swapaxes(vectors, 0, 1))


def sum_of_products(Q: np.ndarray, packed: np.ndarray) -> np.ndarray:
    """Sum Q' M Q, (d, d), of all rows; Q is (c, rows, d), and M packed as by `svec`."""
    c, _, d = Q.shape
    total = np.zeros((d, d))
    for m, i, j in zip(packed.T, *np.triu_indices(c), strict=True):
        product = Q[i].T @ (m[:, None] * Q[j])
        total += product if i == j else (product + product.T) / 2**0.5
    return total


def diagonals(Q: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Return the diagonals of Q' M Q, shape (rows, d), for symmetric M, shape (rows, c, c)."""
    total = np.zeros(Q.shape[1:])
    for i, q in enumerate(Q):
        for j in range(i + 1):
            total += (M[:, i, j] * (1 if i == j else 2))[:, None] * q * Q[j]
    return total
