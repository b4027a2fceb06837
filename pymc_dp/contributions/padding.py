"""Few batch sizes instead of many, for a backend that compiles anew for every shape."""

import numpy as np

from pymc_dp.contributions.contribution import Batch, Contribution

SMALLEST_BATCH = 64


def padded(contribution: Contribution, axes: dict[str, int]) -> Contribution:
    """Round batches up to a power of two with copies of a row, which weigh nothing."""

    def norms(batch: Batch, context) -> np.ndarray:
        rows = _rows(batch, axes)
        return np.asarray(contribution.norms(_pad(batch, axes, rows), context))[:rows]

    def weighted_sum(batch: Batch, context, weights: np.ndarray) -> np.ndarray:
        batch = _pad(batch, axes, len(weights))
        extra = _rows(batch, axes) - len(weights)
        return np.asarray(contribution.weighted_sum(batch, context, np.pad(weights, (0, extra))))

    return contribution._replace(norms=norms, weighted_sum=weighted_sum)


def _rows(batch: Batch, axes: dict[str, int]) -> int:
    name, values = next(iter(batch.items()))
    return values.shape[axes[name]]


def _pad(batch: Batch, axes: dict[str, int], rows: int) -> Batch:
    size = max(SMALLEST_BATCH, 1 << (rows - 1).bit_length())
    source = np.where(np.arange(size) < rows, np.arange(size), 0)
    return {name: np.take(values, source, axis=axes[name]) for name, values in batch.items()}
