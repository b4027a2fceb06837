"""The gradient of a record's log likelihood with respect to all latents: ADVI's contribution."""

from collections.abc import Callable

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad, grad
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph

from pymc_dp.compile import function
from pymc_dp.contributions.contribution import Batch, Contribution, graph_norms, row_norms
from pymc_dp.contributions.frontier import NoFrontierRuleError, by_row
from pymc_dp.contributions.ghost import gradient_norms
from pymc_dp.records import Records


def gradient(records: Records, backend: str, draws: int = 1) -> Contribution:
    """Contribute d log p(record | z) / dz at ``draws`` points, concatenated.

    The context is an array of points z, shape (draws, size). The norms are ghost norms where the
    graph allows; the sum is one ordinary backward pass.
    """
    norms, width = _norms(records, backend)
    total = _weighted_sum(records, backend)

    def all_norms(batch: Batch, points: np.ndarray) -> np.ndarray:
        each = [norms(batch, z) for z in points]
        return each[0] if len(each) == 1 else row_norms(np.stack(each, axis=1))

    def all_sums(batch: Batch, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.concatenate([total(batch, z, weights) for z in points])

    return Contribution(draws * records.size, width, all_norms, all_sums)


def gradient_rows(records: Records) -> Variable:
    """Return every record's gradient, shape (rows, size), on the inputs of ``records.batch``.

    The graph of one record is differentiated and then vectorized over the rows.
    """
    latents = list(records.latents.values())
    one = records.single.log_likelihood().sum()
    batched = {}
    for name, single in records.single.inputs.items():
        axis = records.single.axis[single]
        batch = records.batch.inputs[name]
        batched[single] = pt.expand_dims(pt.moveaxis(batch, axis, 0), axis + 1)
    gradients = grad(one, latents, disconnected_inputs="ignore")
    rows = vectorize_graph(gradients, batched)
    count = records.batch.rows
    return pt.concatenate(
        [_spread(row, g, count) for row, g in zip(rows, gradients, strict=True)], axis=1
    )


def _spread(rows: Variable, core: Variable, count: Variable) -> Variable:
    """A gradient that no leaf reaches is the same for every record and has no rows yet."""
    if rows.ndim == core.ndim:
        rows = pt.broadcast_to(rows, [count, *[rows.shape[k] for k in range(rows.ndim)]])
    return by_row(rows, count)


def _norms(records: Records, backend: str) -> tuple[Callable, int]:
    try:
        norms, width = gradient_norms(records.batch, list(records.latents.values())), 0
    except NoFrontierRuleError:
        norms, width = graph_norms(gradient_rows(records)), records.size
    return per_row(records, checked(records, norms), backend), width


def checked(records: Records, values: Variable) -> Variable:
    """Make the rows nan whose indices point outside the array that they index."""
    valid = records.batch.valid
    if valid is None:
        return values
    return pt.switch(pt.shape_padright(valid, values.ndim - 1), values, np.nan)


def per_row(records: Records, values: Variable, backend: str) -> Callable:
    """Compile ``values`` as a function of a batch and a point z."""
    inputs = [*records.batch.inputs.values(), *records.latents.values()]
    fn = function(inputs, values, backend)
    names = list(records.batch.inputs)

    def call(batch: Batch, z: np.ndarray) -> np.ndarray:
        return fn(*[batch[name] for name in names], *split(records, z))

    return call


def _weighted_sum(records: Records, backend: str) -> Callable:
    weights = pt.vector("weights", dtype="float64")
    total = (disconnected_grad(weights) * records.batch.log_likelihood()).sum()
    parts = grad(total, list(records.latents.values()), disconnected_inputs="ignore")
    flat = pt.concatenate([part.ravel() for part in parts])
    inputs = [weights, *records.batch.inputs.values(), *records.latents.values()]
    fn = function(inputs, flat, backend)
    names = list(records.batch.inputs)

    def call(batch: Batch, z: np.ndarray, w: np.ndarray) -> np.ndarray:
        return fn(w, *[batch[name] for name in names], *split(records, z))

    return call


def split(records: Records, z: np.ndarray) -> list[np.ndarray]:
    """Cut a point into the latents' values, in their order."""
    parts, start = [], 0
    for value in records.point.values():
        parts.append(z[start : start + value.size].reshape(value.shape))
        start += value.size
    return parts
