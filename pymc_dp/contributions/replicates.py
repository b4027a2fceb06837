"""A record's outcome beside outcomes that the model draws for it, sorted into bins."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from pymc_dp.contributions.outcomes import UNDRAWN, compile_draws, drawn_name
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch, RowContribution

# observed and drawn outcomes, (rows, 1 + draws, width) -> their bins, (rows, 1 + replicates, width)
Sort = Callable[[np.ndarray, np.ndarray], np.ndarray]

DRAWN, UNIFORM = "drawn outcomes", "uniform numbers"
# the longest vector of `beside_replicates`
CLIP_NORM = 3**0.5


def sort_by_edges(edges: Sequence[float]) -> Sort:
    """Sort outcomes between edges; the first and the last bin are open.

    >>> sort_by_edges([0.0, 1.0])(np.array([[[-9.0], [0.5], [1.0]]]), np.zeros(0)).ravel()
    array([0, 1, 2])
    """
    return lambda outcomes, uniform: np.searchsorted(edges, outcomes, side="right")


def sort_by_rank(bins: int, replicates: int) -> Sort:
    """Sort outcomes by their rank among the draws that follow the replicates.

    Under the model ranks are uniform, whatever the distribution; ties are broken at random.
    """

    def sort(outcomes: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        own, others = np.split(outcomes, [1 + replicates], axis=1)
        below = (others[:, None] < own[:, :, None]).sum(axis=2)
        equal = (others[:, None] == own[:, :, None]).sum(axis=2)
        share = (below + uniform * (equal + 1)) / (others.shape[1] + 1)
        return np.asarray(np.minimum((bins * share).astype(int), bins - 1))

    return sort


def beside_replicates(
    records: Records, leaf: str, sort: Sort, bins: int, replicates: int, draws: int
) -> RowContribution:
    """Contribute which bins an outcome and its replicates lie in.

    The context is an array of points z, shape (draws, size); outcomes drawn at the first of them
    are the replicates. With t the observed outcome's indicator of bins, t_j those of J replicates
    and m their mean, the vector is t - m, then m, then all (t_j - m) / sqrt(J). A record of several
    outcomes has the means of their indicators as t and t_j.

    **Privacy.** The entries of t and t_j are not negative and sum to 1, and so are those of m. So
    ``|t - m|^2 <= |t|^2 + |m|^2 <= 1 + |m|^2``, and the mean of ``|t_j - m|^2`` is that of
    ``|t_j|^2`` less ``|m|^2``, at most ``1 - |m|^2``. With ``|m|^2 <= 1`` for the middle part, the
    squared norm is at most 3: the replicates' spread costs nothing. Draws of a record depend on the
    record and the generator alone.
    """
    draw_outcomes = compile_draws(records, 1)
    if draw_outcomes is None:
        raise TypeError("The model does not say how outcomes are drawn.")

    def draw(batch: Batch, points: np.ndarray, generator: np.random.Generator) -> Batch:
        each = [draw_outcomes(batch, z, generator) for z in points]
        failed = np.any([one[UNDRAWN] for one in each], axis=0)
        drawn = np.stack([_flat(one[drawn_name(leaf)]) for one in each], axis=1)
        drawn[failed] = np.nan
        uniform = generator.random((len(drawn), 1 + replicates, drawn.shape[2]))
        return {DRAWN: drawn, UNIFORM: uniform}

    def rows(batch: Batch, points: np.ndarray) -> np.ndarray:
        outcomes = np.concatenate([_flat(batch[leaf])[:, None], batch[DRAWN]], axis=1)
        found = sort(outcomes, batch[UNIFORM])[:, : 1 + replicates]
        shares = np.stack([(found == k).mean(axis=2) for k in range(bins)], axis=2)
        shares[np.isnan(outcomes).any(axis=(1, 2))] = np.nan
        own, others = shares[:, 0], shares[:, 1:]
        mean = others.mean(axis=1)
        spread = (others - mean[:, None]) / replicates**0.5
        return np.concatenate([own - mean, mean, spread.reshape(len(own), -1)], axis=1)

    width = outcomes_in(records, leaf)
    held = draws * width * (2 + replicates) + 3 * bins * (2 + replicates)
    return RowContribution(bins * (2 + replicates), held, rows, draw=draw, jumps=True)


def outcomes_in(records: Records, leaf: str) -> int:
    """Return how many outcomes a record has."""
    return math.prod(length for length in records.shapes[leaf] if length is not None)


def _flat(outcomes: np.ndarray) -> np.ndarray:
    return np.asarray(outcomes, "float64").reshape(len(outcomes), -1)
