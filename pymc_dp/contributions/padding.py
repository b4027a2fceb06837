"""Few batch sizes instead of many, for a backend that compiles anew for every shape."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dp.privacy.contribution import OWNER, Batch, Contribution, RowContribution, rows_along

SMALLEST_BATCH = 64
# what `prepare` returns: the number of records, and the contribution's own result on padded rows
Padded = tuple[int, Any]
Rows = Callable[[Any, Any], np.ndarray]
WeightedSum = Callable[[Any, Any, np.ndarray], np.ndarray]


def padded(contribution: Contribution, axes: dict[str, int]) -> Contribution:
    """Round batches up to one of few sizes with copies of the first row, of weight 0."""

    def prepare(batch: Batch, context: Any) -> Padded:
        name, values = next(iter(batch.items()))
        count = values.shape[axes[name]]
        places = np.arange(_padded_size(count))
        source = np.where(places < count, places, 0)
        rows = rows_along(axes, batch, source)
        if OWNER in rows:  # copies are a unit of their own
            rows[OWNER] = np.where(places < count, rows[OWNER], rows[OWNER][count - 1] + 1)
        return count, contribution.prepare(rows, context)

    unit = contribution.unit
    if unit is not None:
        unit = unit._replace(
            weighted_sum=unit.weighted_sum and _unweighted_copies(unit.weighted_sum),
            rows=unit.rows and _without_copies(unit.rows),
        )
    if isinstance(contribution, RowContribution):
        rows = _without_copies(contribution.rows)
        return contribution._replace(prepare=prepare, rows=rows, unit=unit)
    return contribution._replace(
        prepare=prepare,
        norms=_without_copies(contribution.norms),
        weighted_sum=_unweighted_copies(contribution.weighted_sum),
        rows=contribution.rows and _without_copies(contribution.rows),
        unit=unit,
    )


def _without_copies(rows: Rows) -> Rows:
    def first(at: Padded, context: Any) -> np.ndarray:
        count, prepared = at
        return np.asarray(rows(prepared, context))[:count]

    return first


def _unweighted_copies(weighted_sum: WeightedSum) -> WeightedSum:
    def sum_of_first(at: Padded, context: Any, weights: np.ndarray) -> np.ndarray:
        count, prepared = at
        weights = np.pad(weights, (0, _padded_size(count) - count))
        return np.asarray(weighted_sum(prepared, context, weights))

    return sum_of_first


def _padded_size(rows: int) -> int:
    """Round up to one of eight sizes between a power of two and the next."""
    step: int = max(SMALLEST_BATCH, 1 << (rows - 1).bit_length()) // 16
    return max(SMALLEST_BATCH, -(-rows // step) * step)
