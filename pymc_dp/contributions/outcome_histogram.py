"""Counts of outcomes in bins that are public."""

import numpy as np

from pymc_dp.privacy.contribution import Batch, RowContribution

CLIP_NORM = 1.0


def outcome_histogram(leaf: str, bins: int) -> RowContribution:
    """Count the outcomes of ``leaf``, which are numbers, in so many bins.

    The context are the edges between bins, (bins - 1,): the first and the last bin have no end.

    **Privacy.** A record adds 1 to one bin, wherever its outcome lies: its vector has norm 1. An
    outcome that is no number adds nothing. A unit of several records has the sum of their vectors,
    clipped to norm 1.
    """

    def rows(batch: Batch, edges: np.ndarray) -> np.ndarray:
        outcomes = np.asarray(batch[leaf], "float64")
        counted = np.eye(bins)[np.searchsorted(edges, outcomes)]
        return np.where(np.isfinite(outcomes)[:, None], counted, np.nan)

    return RowContribution(size=bins, width=2 * bins, rows=rows, jumps=True)
