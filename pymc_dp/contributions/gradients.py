"""The gradient of a record's log likelihood with respect to all latents: ADVI's contribution."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.ops import deep_copy_op
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace, vectorize_graph

from pymc_dp.compile import function
from pymc_dp.contributions.contribution import Batch, Contribution, graph_norms, row_norms
from pymc_dp.contributions.frontier import NoFrontierRuleError, by_row
from pymc_dp.contributions.ghost import RecordSums, record_rows, record_sums
from pymc_dp.records import Records


class Measured(NamedTuple):
    """A batch with what the pass behind the norms left, for each draw."""

    batch: Batch
    norms: np.ndarray
    kept: list[list[np.ndarray]]


def gradient(records: Records, backend: str, draws: int = 1) -> Contribution:
    """Contribute d log p(record | z) / dz at ``draws`` points, concatenated.

    The context is an array of points z, shape (draws, size). Where the graph allows, norms and
    sum come from one forward and one backward pass, and no gradient of a record is formed.
    """
    try:
        sums = record_sums(records.batch, list(records.latents.values()))
    except NoFrontierRuleError:
        sums = _sums_of_rows(records)
    formed = [x for name, x in records.point.items() if records.latents[name] in sums.by_rows]
    width = draws * sum(x.size for x in formed)
    outputs = [checked(records, sums.norms), *sums.kept]
    measure = on_batch(records, list(sums.leaf_norms), outputs, backend)
    kept = {variable: variable.type() for variable in sums.kept}
    [total] = graph_replace([sums.weighted_sum], kept, strict=False)
    add_up = on_batch(records, [sums.weights, *kept.values()], total, backend)

    def prepare(batch: Batch, points: np.ndarray) -> Measured:
        leaf_norms = [row_norms(batch[name]) for name in sums.leaf_norms.values()]
        each = [measure(batch, z, *leaf_norms) for z in points]
        norms = each[0][0]
        if draws > 1:
            norms = row_norms(np.stack([norms for norms, *_ in each], axis=1))
        return Measured(batch, norms, [kept for _, *kept in each])

    def weighted_sum(at: Measured, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
        parts = zip(points, at.kept, strict=True)
        return np.concatenate([add_up(at.batch, z, weights, *kept) for z, kept in parts])

    @cache  # compiled where units of several records need it
    def each() -> Callable:
        return each_gradient(records, backend)

    def rows(at: Measured, points: np.ndarray) -> np.ndarray:
        return np.concatenate([each()(at.batch, z) for z in points], axis=1)

    def norms(at: Measured, points: np.ndarray) -> np.ndarray:
        return at.norms

    return Contribution(draws * records.size, width, norms, weighted_sum, prepare, rows)


def gradient_rows(records: Records) -> Variable:
    """Return every record's gradient, shape (rows, size), on the inputs of ``records.batch``.

    The graph of one record is differentiated and then vectorized over the rows.
    """
    one = records.single.log_likelihood().sum()
    latents = list(records.latents.values())
    gradients = grad(one, latents, disconnected_inputs="ignore")
    rows = by_record(records, gradients)
    return pt.concatenate([by_row(row, records.batch.rows) for row in rows], axis=1)


def each_gradient(records: Records, backend: str) -> Callable[[Batch, np.ndarray], np.ndarray]:
    """Compile the gradient of every record of a batch at a point, shape (rows, size)."""
    try:
        rows = record_rows(records.batch, list(records.latents.values()))
    except NoFrontierRuleError:
        rows = gradient_rows(records)
    return on_batch(records, [], checked(records, rows), backend)


def by_record(
    records: Records, graphs: Sequence[Variable], given: Mapping[Variable, Variable] | None = None
) -> list[Variable]:
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


def spread(rows: Variable, core: Variable, count: Variable) -> Variable:
    """A graph that no leaf reaches is the same for every record and has no rows yet."""
    if rows.ndim == core.ndim:
        rows = pt.broadcast_to(rows, [count, *[rows.shape[k] for k in range(rows.ndim)]])
    return rows


def _sums_of_rows(records: Records) -> RecordSums:
    """Without a frontier: form the gradients; their norms and their sum read the same numbers."""
    weights = pt.vector("weights", dtype="float64")
    rows = deep_copy_op(gradient_rows(records))  # bars rewrites, as in `cut_frontier`
    latents = tuple(records.latents.values())
    return RecordSums(graph_norms(rows), (rows,), weights @ rows, weights, {}, latents)


def checked(records: Records, values: Variable) -> Variable:
    """Make the rows nan whose indices point outside the array that they index."""
    valid = records.batch.valid
    if valid is None:
        return values
    return pt.switch(pt.shape_padright(valid, values.ndim - 1), values, np.nan)


def on_batch(
    records: Records, given: list[Variable], outputs: Variable | list[Variable], backend: str
) -> Callable:
    """Compile ``outputs`` as a function of a batch, a point z and the values of ``given``."""
    inputs = [*given, *records.batch.inputs.values(), *records.latents.values()]
    fn, names = function(inputs, outputs, backend), list(records.batch.inputs)

    def call(batch: Batch, z: np.ndarray, *values: np.ndarray) -> Any:
        return fn(*values, *[batch[name] for name in names], *records.split(z))

    return call
