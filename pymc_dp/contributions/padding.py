"""Few batch sizes instead of many, for a backend that compiles anew for every shape."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pymc_dp.contributions.contribution import Batch, Contribution

SMALLEST_BATCH = 64


def padded(contribution: Contribution, axes: dict[str, int]) -> Contribution:
    """Round batches up to one of few sizes with copies of a row, which weigh nothing."""

    def prepare(batch: Batch, context: Any) -> tuple[int, Any]:
        rows = _rows(batch, axes)
        return rows, contribution.prepare(_pad(batch, axes, rows), context)

    unit = contribution.unit
    return contribution._replace(
        prepare=prepare,
        norms=partial(_first, contribution.norms),
        weighted_sum=partial(_sum_of_first, contribution.weighted_sum),
        rows=contribution.rows and partial(_first, contribution.rows),
        unit=unit and unit._replace(weighted_sum=partial(_sum_of_first, unit.weighted_sum)),
    )


def _first(by_row: Callable, at: tuple[int, Any], context: Any) -> np.ndarray:
    rows, prepared = at
    return np.asarray(by_row(prepared, context))[:rows]


def _sum_of_first(
    weighted_sum: Callable, at: tuple[int, Any], context: Any, weights: np.ndarray
) -> np.ndarray:
    rows, prepared = at
    weights = np.pad(weights, (0, _padded_size(rows) - rows))
    return np.asarray(weighted_sum(prepared, context, weights))


def _rows(batch: Batch, axes: dict[str, int]) -> int:
    name, values = next(iter(batch.items()))
    return values.shape[axes[name]]


def _pad(batch: Batch, axes: dict[str, int], rows: int) -> Batch:
    size = _padded_size(rows)
    source = np.where(np.arange(size) < rows, np.arange(size), 0)
    return {name: np.take(values, source, axis=axes[name]) for name, values in batch.items()}


def _padded_size(rows: int) -> int:
    """Round up to one of eight sizes between a power of two and the next."""
    step = max(SMALLEST_BATCH, 1 << (rows - 1).bit_length()) // 16
    return max(SMALLEST_BATCH, -(-rows // step) * step)
