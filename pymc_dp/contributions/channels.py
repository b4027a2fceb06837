"""Scores as combinations of a few vectors of each record, its channels.

A gradient is linear in the cotangents of the frontier: as many numbers as there are predictors that
a record's likelihood reads. What multiplies them, such as a row of data, is the same whatever the
outcome. So the scores of one record at many outcomes lie in the span of few vectors.
"""

from collections.abc import Collection, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import equal_computations
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Shape, Shape_i

from pymc_dp.contributions.frontier import Edge, NoFrontierRuleError, Spread, by_row, cut_frontier
from pymc_dp.contributions.ghost import edges_of, rows_through
from pymc_dp.model import Records
from pymc_dp.model.compile import function
from pymc_dp.model.graph_types import AnyVariable, Tensor, pt


class Channels(NamedTuple):
    """Graphs of the factors of scores: that of a record is ``weights @ vectors``."""

    weights: Tensor  # (rows, c)
    vectors: list[Tensor]  # c graphs of shape (rows, d), the same whatever the outcome
    # predictors, which are the same whatever the outcome, and the axis of the records in each
    predictors: dict[Tensor, int]


class _Channel(NamedTuple):
    """Edges of the frontier that share one cotangent."""

    cotangent: Tensor  # (rows, width), or (rows,)
    edges: dict[Edge, tuple[int, ...]]  # with the shapes of a record's part of their cuts

    @property
    def width(self) -> int:
        return prod(next(iter(self.edges.values())))

    @property
    def weights(self) -> Tensor:
        return self.cotangent[:, None] if self.cotangent.ndim == 1 else self.cotangent


def record_channels(records: Records, outcomes: Collection[str]) -> Channels:
    """Factor the scores of a batch, whose leaves named ``outcomes`` are the outcomes.

    Raises `NoFrontierRuleError` where an edge has no rule, where a channel's vector depends on
    outcomes, or where channels are more than half as many as latents.
    """
    graph, latents = records.batch, list(records.latents.values())
    edges = cut_frontier(graph, latents)
    channels = _merged(edges, _cores(records, edges))
    spread = [c for c in channels if all(isinstance(edge, Spread) for edge in c.edges)]
    varying = [c for c in channels if c not in spread]
    reached = {
        name: latent
        for name, latent in records.latents.items()
        if any(edges_of(latent, c.edges) for c in spread)
    }
    weights = [c.weights for c in varying]
    vectors = [row for c in varying for row in _vectors(c, records)]
    if sum(records.point[name].size for name in reached) < sum(c.width for c in spread):
        every = [edge for c in spread for edge in c.edges]
        weights += [_gradient(latent, every, edges) for latent in reached.values()]
        vectors += _own_coordinates(list(reached), records)
    else:
        weights += [c.weights for c in spread]
        vectors += [row for c in spread for row in _vectors(c, records)]
    leaves = {graph.inputs[name] for name in outcomes}
    if 2 * len(vectors) > records.size or not _values_read(vectors).isdisjoint(leaves):
        raise NoFrontierRuleError
    predictors = {edge.cut: edge.axis for edge in edges if not isinstance(edge, Spread)}
    return Channels(pt.concatenate(weights, axis=1), vectors, predictors)


def _cores(records: Records, edges: Collection[Edge]) -> list[tuple[int, ...]]:
    """Return the shapes of a record's part of each cut."""
    operands = [edge.operand for edge in edges]
    shapes = [operand.type.shape for operand in operands]
    if any(None in shape for shape in shapes):
        fn = function(list(records.latents.values()), [x.shape for x in operands], "python")
        found = fn(*records.split(records.start))
        shapes = [tuple(int(n) for n in shape) for shape in found]
    return [edge.core(shape) for edge, shape in zip(edges, shapes, strict=True)]


def _merged(edges: dict[Edge, Tensor], cores: list[tuple[int, ...]]) -> list[_Channel]:
    """Put edges together whose cotangents are one computation, as those of added terms are."""
    channels: list[_Channel] = []
    for (edge, cotangent), core in zip(edges.items(), cores, strict=True):
        each = _by_record(cotangent, edge.axis, core)
        for channel in channels:
            if equal_computations([channel.cotangent], [each]):
                channel.edges[edge] = core
                break
        else:
            channels.append(_Channel(each, {edge: core}))
    return channels


def _by_record(cotangent: Tensor, axis: int, core: tuple[int, ...]) -> Tensor:
    """Bring a cotangent to the shape (rows,) where a record has one number of it, else (rows, m)."""
    if prod(core) != 1:
        return by_row(pt.moveaxis(cotangent, axis, 0), cotangent.shape[axis])
    vector = cotangent
    while vector.ndim > 1 and vector.owner and isinstance(vector.owner.op, DimShuffle):
        vector = vector.owner.inputs[0]  # all of its axes but the records' have length 1
    others = tuple(k for k in range(cotangent.ndim) if k != axis)
    return vector if vector.ndim == 1 else cotangent.squeeze(others)


def _vectors(channel: _Channel, records: Records) -> list[Tensor]:
    """Return the gradient of all latents for each cotangent that is 1 in one place."""
    return [
        pt.concatenate(
            [_block(channel, latent, j, records.batch.rows) for latent in records.latents.values()],
            axis=1,
        )
        for j in range(channel.width)
    ]


def _block(channel: _Channel, latent: Tensor, j: int, count: Tensor) -> Tensor:
    units = {edge: _unit(edge, core, j, count) for edge, core in channel.edges.items()}
    return _gradient(latent, list(channel.edges), units, count)


def _unit(edge: Edge, core: tuple[int, ...], j: int, count: Tensor) -> Tensor:
    """Return a cotangent that is 1 at every record's place j, and else 0."""
    one = np.zeros(prod(core))
    one[j] = 1.0
    alone = np.expand_dims(one.reshape(core), edge.axis)
    return pt.broadcast_to(alone, [count if k == edge.axis else n for k, n in enumerate(alone.shape)])


def _gradient(
    latent: Tensor, edges: Sequence[Edge], cotangents: dict[Edge, Tensor], count: Tensor = None
) -> Tensor:
    touching = edges_of(latent, edges)
    if not touching:
        return pt.zeros((count, latent.size))
    return pt.add(*[rows_through(latent, edge, cotangents[edge]) for edge in touching])


def _own_coordinates(names: list[str], records: Records) -> list[Tensor]:
    """Return a vector for each coordinate of some latents, which is 1 there."""
    places = dict(zip(records.latents, records.split(np.arange(records.size)), strict=True))
    chosen = np.concatenate([places[name].ravel() for name in names])
    one = np.eye(records.size)
    return [pt.broadcast_to(one[[k]], (records.batch.rows, records.size)) for k in chosen]


def _values_read(graphs: Collection[Tensor]) -> set[AnyVariable]:
    """Return what graphs depend on by more than its shape."""
    shapes = [v for v in ancestors(graphs) if v.owner and isinstance(v.owner.op, Shape | Shape_i)]
    return set(ancestors(graphs, blockers=shapes))
