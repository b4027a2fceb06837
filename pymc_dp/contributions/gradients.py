"""The gradient of a record's log likelihood with respect to all latents: ADVI's contribution.

In the order of this file: weights of 0 in mixtures get a logarithm of slope 0; gradients are
compiled, by ghost norms where the graph allows (`frontier`), else record by record; and batches are
padded to few sizes, for a backend that compiles anew for every shape.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Add, Log, Sub
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.special import LogAddExp, LogSumExp

from pymc_dp.contributions.frontier import NoFrontierRuleError, by_row, record_rows, record_sums
from pymc_dp.contributions.local_latents import (
    local_densities,
    marginal_scores,
    nodes_of_quadrature,
    with_shares,
)
from pymc_dp.model import Records
from pymc_dp.model.batch import RecordGraph, rebuilt
from pymc_dp.model.compilation import function
from pymc_dp.model.graphs import AnyVariable, Node, Tensor, pt
from pymc_dp.privacy.contribution import (
    OWNER,
    Batch,
    Contribution,
    FactoredContribution,
    RowContribution,
    rows_along,
)
from pymc_dp.privacy.norms import row_norms


def with_absent_components(records: Records) -> Records:
    """Let weights of 0 have a logarithm whose slope is 0, in the likelihood of all records.

    Known labels give such weights in mixtures, and the chain rule computes 0 / 0 there.
    """
    batch, single = records.batch, records.single
    return records._replace(batch=_with_constants(batch), single=_with_constants(single))


def _with_constants(graph: RecordGraph) -> RecordGraph:
    logs = _logarithms_of_weights(graph)
    if not logs:
        return graph
    axis = dict(graph.axis)

    def change(node: Node, operands: list[Tensor]) -> None:
        for i, x in enumerate(node.inputs):
            if x in logs:
                weight = operands[i].owner.inputs[0]
                absent: Tensor = pt.eq(weight, 0)
                present = pt.switch(absent, 1.0, weight)
                value = pt.log(present)
                operands[i] = pt.switch(absent, -np.inf, value)
                made = (absent, present, value, operands[i])
                axis.update(dict.fromkeys(made, graph.axis[x]))

    found = rebuilt(list(graph.terms), {}, change)
    axis |= {found[x]: k for x, k in graph.axis.items() if x in found}
    return graph._replace(terms=tuple(found.get(x, x) for x in graph.terms), axis=axis)


def _logarithms_of_weights(graph: RecordGraph) -> set[AnyVariable]:
    """Find logarithms of records' numbers that are added to what is summed on the log scale."""
    sums = [v for v in ancestors(graph.terms) if isinstance(v.owner_op, LogSumExp | LogAddExp)]
    waiting, found = [x for v in sums for x in v.owner.inputs], set()
    while waiting:
        x = waiting.pop()
        scalar_op = getattr(x.owner_op, "scalar_op", None)
        if isinstance(scalar_op, Log) and x in graph.axis:
            found.add(x)
        elif isinstance(x.owner_op, DimShuffle) or isinstance(scalar_op, Add | Sub):
            waiting += x.owner.inputs
    return found


def gradient(records: Records, backend: str, draws: int = 1) -> Contribution:
    """Contribute d log p(record | z) / dz at the context, points z (draws, size), concatenated.

    Where the graph allows, no gradient of a record is formed (`record_sums`).
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

    # a batch, its norms, and for each draw what the weighted sum reads of their computation
    def prepare(batch: Batch, points: np.ndarray) -> tuple[Batch, np.ndarray, list[Any]]:
        leaf_norms = [row_norms(batch[name]) for name in sums.leaf_norms.values()]
        each = [measure(batch, z, *leaf_norms) for z in points]
        norms = each[0][0]
        if draws > 1:
            norms = row_norms(np.stack([norms for norms, *_ in each], axis=1))
        return batch, norms, [kept for _, *kept in each]

    def weighted_sum(at: Any, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
        batch, _, every = at
        parts = zip(points, every, strict=True)
        return np.concatenate([sum_weighted(batch, z, weights, *kept) for z, kept in parts])

    gradients = cache(partial(each_gradient, records, backend))  # compiled for units alone
    return FactoredContribution(
        size=draws * records.size,
        width=width,
        norms=lambda at, points: at[1],
        weighted_sum=weighted_sum,
        prepare=prepare,
        rows=lambda at, points: np.concatenate([gradients()(at[0], z) for z in points], axis=1),
    )


def _formed_gradient(records: Records, backend: str, draws: int) -> RowContribution:
    """Contribute gradients that are formed record by record."""
    gradients, size = each_gradient(records, backend), draws * records.size
    return RowContribution(
        size,
        width=size * nodes_of_quadrature(records),
        rows=lambda rows, points: rows,
        prepare=lambda batch, points: np.concatenate([gradients(batch, z) for z in points], axis=1),
        together=records.of_units,
    )


def plain_gradient(records: Records, backend: str, draws: int = 1) -> RowContribution:
    """Contribute the gradients in mu and rho, both clipped and noised, as Jälkö et al. (2017).

    The second is a function of the first, so noise on it is wasted (`gradient`). The context are
    points z, shape (draws, size), and d z / d rho at each of them, same shape.
    """
    formed = _formed_gradient(records, backend, draws)

    def prepare(batch: Batch, at: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        points, slopes = at
        each = formed.prepare(batch, points).reshape(-1, draws, 1, records.size)
        both = np.concatenate([each, each * slopes[:, None]], axis=2)
        return both.reshape(len(both), 2 * formed.size)

    return formed._replace(size=2 * formed.size, width=2 * formed.width, prepare=prepare)


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
    """Vectorize graphs of one record, on ``given`` inputs and a batch's, to rows along axis 0."""
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
    """Compile outputs as a function of a batch, by ``read``, a point z and ``given``."""
    read = records.batch.inputs if read is None else read
    fn = function([*given, *read.values(), *records.latents.values()], outputs, backend)

    def call(batch: Batch, z: np.ndarray, *values: Any) -> Any:
        return fn(*values, *[batch[name] for name in read], *records.split(z))

    return call


SMALLEST_BATCH = 64


def padded(contribution: Contribution, axes: dict[str, int]) -> Contribution:
    """Round batches up to one of few sizes with copies of the first row, of weight 0.

    A batch is prepared as its number of records, and the contribution's own result.
    """

    def prepare(batch: Batch, context: Any) -> tuple[int, Any]:
        name, values = next(iter(batch.items()))
        count = values.shape[axes[name]]
        places = np.arange(_padded_size(count))
        source = np.where(places < count, places, 0)
        rows = rows_along(axes, batch, source)
        if OWNER in rows:  # copies are a unit of their own
            rows[OWNER] = np.where(places < count, rows[OWNER], rows[OWNER][count - 1] + 1)
        return count, contribution.prepare(rows, context)

    def of_all(function: Any) -> Any:  # that of the contribution, of a batch without copies
        def of_first(at: tuple[int, Any], context: Any, *weights: np.ndarray) -> np.ndarray:
            padding = (0, _padded_size(at[0]) - at[0])
            found = np.asarray(function(at[1], context, *[np.pad(w, padding) for w in weights]))
            return found if weights else found[: at[0]]

        return function and of_first

    changed: dict[str, Any] = {"prepare": prepare, "rows": of_all(contribution.rows)}
    if unit := contribution.unit:
        total, rows = of_all(unit.weighted_sum), of_all(unit.rows)
        changed["unit"] = unit._replace(weighted_sum=total, rows=rows)
    if isinstance(contribution, FactoredContribution):
        changed["norms"] = of_all(contribution.norms)
        changed["weighted_sum"] = of_all(contribution.weighted_sum)
    return contribution._replace(**changed)


def _padded_size(rows: int) -> int:
    """Round up to one of eight sizes between a power of two and the next."""
    step: int = max(SMALLEST_BATCH, 1 << (rows - 1).bit_length()) // 16
    return max(SMALLEST_BATCH, -(-rows // step) * step)
