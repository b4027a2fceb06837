"""The gradient of a record's log likelihood with respect to all latents: ADVI's contribution."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.replace import graph_replace, vectorize_graph

from pymc_dp.compiling.compile import function
from pymc_dp.contributions.frontier import NoFrontierRuleError, by_row
from pymc_dp.contributions.ghost import record_rows, record_sums
from pymc_dp.contributions.local_latents import (
    local_densities,
    marginal_scores,
    nodes_of_quadrature,
    with_shares,
)
from pymc_dp.model import Records
from pymc_dp.model.graphs import Tensor, pt
from pymc_dp.privacy.contribution import Batch, Contribution, FactoredContribution, RowContribution
from pymc_dp.privacy.norms import row_norms


class Measured(NamedTuple):
    """A batch, its norms, and for each draw what the weighted sum reads of their computation."""

    batch: Batch
    norms: np.ndarray
    kept: list[list[np.ndarray]]


class Directions(NamedTuple):
    """Points z, shape (draws, size), and d z / d rho at each of them, same shape."""

    points: np.ndarray
    slopes: np.ndarray


def gradient(records: Records, backend: str, draws: int = 1) -> Contribution:
    """Contribute d log p(record | z) / dz at ``draws`` points, concatenated.

    The context is an array of points z, shape (draws, size). Where the graph allows, norms and
    sum come from one forward and one backward pass, and no gradient of a record is formed.
    """
    if records.local_latents:
        return _formed_gradient(records, backend, draws)
    try:
        sums = record_sums(records.batch, list(records.latents.values()))
    except NoFrontierRuleError:
        return _formed_gradient(records, backend, draws)
    formed = [x for name, x in records.point.items() if records.latents[name] in sums.by_rows]
    width = draws * sum(x.size for x in formed)
    outputs = [checked(records, sums.norms), *sums.kept]
    measure = on_batch(records, list(sums.leaf_norms), outputs, backend)
    kept = {variable: variable.type() for variable in sums.kept}
    total = graph_replace(sums.weighted_sum, kept, strict=False)
    sum_weighted = on_batch(records, [sums.weights, *kept.values()], total, backend)

    def prepare(batch: Batch, points: np.ndarray) -> Measured:
        leaf_norms = [row_norms(batch[name]) for name in sums.leaf_norms.values()]
        each = [measure(batch, z, *leaf_norms) for z in points]
        norms = each[0][0]
        if draws > 1:
            norms = row_norms(np.stack([norms for norms, *_ in each], axis=1))
        return Measured(batch, norms, [kept for _, *kept in each])

    def weighted_sum(at: Measured, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
        parts = zip(points, at.kept, strict=True)
        return np.concatenate([sum_weighted(at.batch, z, weights, *kept) for z, kept in parts])

    gradients = cache(partial(each_gradient, records, backend))  # compiled for units alone

    def rows(at: Measured, points: np.ndarray) -> np.ndarray:
        return np.concatenate([gradients()(at.batch, z) for z in points], axis=1)

    size = draws * records.size
    return FactoredContribution(
        size, width, lambda at, points: at.norms, weighted_sum, prepare, rows
    )


def _formed_gradient(records: Records, backend: str, draws: int) -> RowContribution:
    """Contribute gradients that are formed record by record."""
    gradients, size = each_gradient(records, backend), draws * records.size

    def prepare(batch: Batch, points: np.ndarray) -> np.ndarray:
        return np.concatenate([gradients(batch, z) for z in points], axis=1)

    width = size * nodes_of_quadrature(records)
    return RowContribution(size, width, as_prepared, prepare, together=records.of_units)


def as_prepared(rows: np.ndarray, context: Any) -> np.ndarray:
    """Return the vectors that were prepared."""
    return rows


def plain_gradient(records: Records, backend: str, draws: int = 1) -> RowContribution:
    """Contribute the gradients with respect to mu and rho, both clipped and noised.

    For reproduction of Jälkö et al. (2017): the second half is a function of the first, so noise
    on it is wasted (`gradient` releases the first half alone). The context is a `Directions`.
    """
    gradients, size = each_gradient(records, backend), 2 * draws * records.size

    def prepare(batch: Batch, at: Directions) -> np.ndarray:
        halves = []
        for z, slope in zip(at.points, at.slopes, strict=True):
            g = gradients(batch, z)
            halves += [g, g * slope]
        return np.concatenate(halves, axis=1)

    return RowContribution(size, size, as_prepared, prepare, together=records.of_units)


def gradient_rows(records: Records) -> Tensor:
    """Return every record's gradient, shape (rows, size), on the inputs of ``records.batch``."""
    one: Tensor = records.single.log_likelihood()
    gradients = pt.grad(one.sum(), list(records.latents.values()), disconnected_inputs="ignore")
    rows = by_record(records, gradients)
    return pt.concatenate([by_row(row, records.batch.rows) for row in rows], axis=1)


def each_gradient(records: Records, backend: str) -> Callable[[Batch, np.ndarray], np.ndarray]:
    """Compile the gradient of every record of a batch at a point, shape (rows, size)."""
    if not records.local_latents:
        return on_batch(records, [], _joint_rows(records), backend)
    records = with_shares(records)
    density, *more = (checked(records, graph) for graph in local_densities(records))
    derivatives = on_batch(records, [], [density, *more], backend)
    scores = on_batch(records, [], [density, _joint_rows(records)], backend)
    return marginal_scores(records, derivatives, scores)


def _joint_rows(records: Records) -> Tensor:
    try:
        rows = record_rows(records.batch, list(records.latents.values()))
    except NoFrontierRuleError:
        rows = gradient_rows(records)
    return checked(records, rows)


def by_record(
    records: Records, graphs: Sequence[Tensor], given: Mapping[Tensor, Tensor] | None = None
) -> list[Tensor]:
    """Vectorize graphs of one record over a batch; each gets the rows as its first axis.

    ``given`` maps further inputs of the graphs of one record to their values for a batch.
    """
    batched = dict(given or {})
    for name, single in records.single.inputs.items():
        axis = records.single.axis[single]
        batch = records.batch.inputs[name]
        batched[single] = pt.expand_dims(pt.moveaxis(batch, axis, 0), axis + 1)
    rows = vectorize_graph(list(graphs), batched)
    count = records.batch.rows
    return [spread(row, graph, count) for row, graph in zip(rows, graphs, strict=True)]


def spread(rows: Tensor, core: Tensor, count: Tensor) -> Tensor:
    """Repeat a vectorized graph that depends on no leaf, and so has no axis of records yet."""
    if rows.ndim == core.ndim:
        rows = pt.broadcast_to(rows, [count, *[rows.shape[k] for k in range(rows.ndim)]])
    return rows


def checked(records: Records, values: Tensor) -> Tensor:
    """Make the rows nan whose indices point outside the array that they index."""
    valid = records.batch.valid
    if valid is None:
        return values
    return pt.switch(pt.shape_padright(valid, values.ndim - 1), values, np.nan)


def on_batch(
    records: Records,
    given: Sequence[Tensor],
    outputs: Tensor | list[Tensor],
    backend: str,
    read: Mapping[str, Tensor] | None = None,
) -> Callable[..., Any]:
    """Compile ``outputs`` as a function of a batch, a point z and the values of ``given``.

    ``read`` maps the arrays of the batch that are read to their inputs: by default those of
    ``records.batch``.
    """
    read = records.batch.inputs if read is None else read
    fn = function([*given, *read.values(), *records.latents.values()], outputs, backend)

    def call(batch: Batch, z: np.ndarray, *values: Any) -> Any:
        return fn(*values, *[batch[name] for name in read], *records.split(z))

    return call
