"""The gradient of a record's log likelihood with respect to all latents: ADVI's contribution.

In the order of this file: weights of 0 in mixtures get a logarithm of slope 0; gradients are
formed, record by record, in one backward pass where the graph allows (`frontier`); and batches are
padded to few sizes, for a backend that compiles anew for every shape.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.compile.ops import deep_copy_op
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Add, Log, Sub
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.special import LogAddExp, LogSumExp

from pymc_dp.contributions.frontier import (
    NoFrontierRuleError,
    by_row,
    cut_frontier,
    edges_of,
    rows_of,
)
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
    RowContribution,
    rows_along,
)


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


def gradient(
    records: Records, backend: str, draws: int = 1, *, aligned: bool = True
) -> RowContribution:
    """Contribute d log p(record | z) / dz at ``draws`` points, concatenated.

    The context is an array of points z, shape (draws, size). Not ``aligned``, as in Jälkö et al.
    (2017), are gradients with respect to mu and rho: the second half is a function of the first, so
    noise on it is wasted. Their context are the points, and d z / d rho at each, same shape.
    """
    gradients, size = each_gradient(records, backend), draws * records.size
    size *= 1 if aligned else 2

    def prepare(batch: Batch, context: Any) -> np.ndarray:
        points, slopes = (context, None) if aligned else context
        rows = [gradients(batch, z) for z in points]
        if slopes is not None:
            rows = [part for x, slope in zip(rows, slopes, strict=True) for part in (x, x * slope)]
        return np.concatenate(rows, axis=1)

    return RowContribution(
        size,
        width=size * nodes_of_quadrature(records),
        rows=lambda rows, context: rows,
        prepare=prepare,
        together=records.of_units,
    )


def each_gradient(records: Records, backend: str) -> Callable[[Batch, np.ndarray], np.ndarray]:
    """Compile the gradient of every record of a batch at a point, shape (rows, size)."""
    if not records.local_latents:
        return on_batch(records, [], gradient_rows(records), backend)
    records = with_shares(records)
    density, *more = (checked(records, graph) for graph in local_densities(records))
    derivatives = on_batch(records, [], [density, *more], backend)
    scores = on_batch(records, [], [density, gradient_rows(records)], backend)
    return marginal_scores(records, derivatives, scores)


def gradient_rows(records: Records) -> Tensor:
    """Return every record's gradient, shape (rows, size), on the inputs of ``records.batch``."""
    latents, count = list(records.latents.values()), records.batch.rows
    try:
        cotangents = cut_frontier(records.batch, latents)
    except NoFrontierRuleError:
        return checked(records, vectorized_rows(records))
    # copies prevent rewrites of what is stable: x times a residual of -1 would become 0
    edges = {edge: deep_copy_op(x) for edge, x in cotangents.items()}
    blocks = [rows_of(latent, edges_of(latent, edges), edges, count) for latent in latents]
    return checked(records, pt.concatenate(blocks, axis=1))


def vectorized_rows(records: Records) -> Tensor:
    """Return the same from the gradient of a single record: slower, and for every graph."""
    one: Tensor = records.single.log_likelihood()
    gradients = pt.grad(one.sum(), list(records.latents.values()), disconnected_inputs="ignore")
    rows = by_record(records, gradients)
    return pt.concatenate([by_row(row, records.batch.rows) for row in rows], axis=1)


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

    changed: dict[str, Any] = {"prepare": prepare}
    if unit := contribution.unit:
        total, rows = of_all(unit.weighted_sum), of_all(unit.rows)
        changed["unit"] = unit._replace(weighted_sum=total, rows=rows)
    if isinstance(contribution, RowContribution):
        changed["rows"] = of_all(contribution.rows)
    else:
        changed["norms"] = of_all(contribution.norms)
        changed["weighted_sum"] = of_all(contribution.weighted_sum)
    return contribution._replace(**changed)


def _padded_size(rows: int) -> int:
    """Round up to one of eight sizes between a power of two and the next."""
    step: int = max(SMALLEST_BATCH, 1 << (rows - 1).bit_length()) // 16
    return max(SMALLEST_BATCH, -(-rows // step) * step)
