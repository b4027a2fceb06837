"""What single releases count in records: outcomes, and how well a posterior predicts them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from pymc_dp.contributions.gradients import checked, on_batch
from pymc_dp.contributions.scores import UNDRAWN, compile_draws, drawn_name
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch, RowContribution

HISTOGRAM_NORM = 1.0


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


class Range(NamedTuple):
    """Where what a record adds is clipped to."""

    low: float
    high: float

    @property
    def centre(self) -> float:
        """The middle of the range."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> float:
        """The largest distance from the centre."""
        return (self.high - self.low) / 2


def check_range(name: str, given: tuple[float, float]) -> Range:
    """Read a caller's range."""
    low, high = given
    if not -math.inf < low < high < math.inf:
        raise ValueError(
            f"{name}={given!r} must be two finite numbers, the smaller one first: it bounds what "
            "one record can add."
        )
    return Range(float(low), float(high))


def predictive_density(
    records: Records, limits: Range, backend: str
) -> Callable[[Batch, np.ndarray], np.ndarray]:
    """Compile log mean p(record | z) over points z, (draws, size), clipped, nan to the lowest."""
    log_density = on_batch(records, [], checked(records, records.batch.log_likelihood()), backend)

    def densities(batch: Batch, points: np.ndarray) -> np.ndarray:
        each = np.stack([log_density(batch, z) for z in points])
        found = logsumexp(each, axis=0) - math.log(len(points))
        return np.clip(np.where(np.isnan(found), limits.low, found), *limits)

    return densities


# observed and drawn outcomes, (rows, 1 + draws, width) -> their bins, (rows, 1 + replicates, width)
Sort = Callable[[np.ndarray, np.ndarray], np.ndarray]

REPLICATES, UNIFORM = "drawn outcomes", "uniform numbers"
# the longest vector of `beside_replicates`
REPLICATES_NORM = 3**0.5


def sort_by_edges(edges: Sequence[float]) -> Sort:
    """Sort outcomes between edges; the first and the last bin are open."""
    return lambda outcomes, uniform: np.searchsorted(edges, outcomes, side="right")


def sort_by_rank(bins: int, replicates: int) -> Sort:
    """Sort outcomes by rank among the draws after the replicates, ties at random: uniform ones."""

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
    draw_outcomes: Any = compile_draws(records, 1)  # `drawn_leaf` refuses models without

    def draw(batch: Batch, points: np.ndarray, generator: np.random.Generator) -> Batch:
        each = [draw_outcomes(batch, z, generator) for z in points]
        failed = np.any([one[UNDRAWN] for one in each], axis=0)
        drawn = np.stack([_flat(one[drawn_name(leaf)]) for one in each], axis=1)
        drawn[failed] = np.nan
        uniform = generator.random((len(drawn), 1 + replicates, drawn.shape[2]))
        return {REPLICATES: drawn, UNIFORM: uniform}

    def rows(batch: Batch, points: np.ndarray) -> np.ndarray:
        outcomes = np.concatenate([_flat(batch[leaf])[:, None], batch[REPLICATES]], axis=1)
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


# a predictor, or one of its columns, and its value
Place = str | tuple[str, int]
Values = Mapping[Place, Any]

WITH_SET = "outcomes with predictors set"


class Nodes(NamedTuple):
    """Points of the posterior, and functions of the latents at them; public."""

    points: np.ndarray  # (S, size)
    # (S, 1 + r): the first column is 1, and basis' basis / S is the identity
    basis: np.ndarray


def on_nodes(
    records: Records,
    leaf: str,
    settings: Sequence[Values],
    limits: Range,
    size: int,
    points: int,
    of_count: float,
) -> RowContribution:
    """Contribute, for each setting, what outcomes drawn at nodes project to on their basis.

    The context is `Nodes` with ``size`` columns of the basis. With y_s the outcome drawn at point s
    under setting k, clipped, less the centre of its range and over its radius, part k of the vector
    is ``basis' y / S``: the mean of y, then its slopes along the posterior. The last entry is
    ``of_count``. A record of several outcomes has the means of their parts.

    **Privacy.** All entries of y lie between -1 and 1. As ``basis basis' / S`` is a projection, the
    squared norm of a part is at most ``|y|^2 / S <= 1``: slopes cost nothing beside the mean. For K
    settings the squared norm is at most ``K + of_count^2``. Draws of a record depend on the record
    and the generator alone.
    """
    draw_outcomes: Any = compile_draws(records, 1)  # `drawn_leaf` refuses models without
    axes = dict(records.batch.axes)

    def draw(batch: Batch, nodes: Nodes, generator: np.random.Generator) -> Batch:
        # no two settings share random numbers: how many a record takes depends on its parameters,
        # and those of all records after it would move against each other
        changed = [with_values(batch, axes, values) for values in settings]
        each = [draw_outcomes(one, z, generator) for one in changed for z in nodes.points]
        drawn = np.stack([one[drawn_name(leaf)] for one in each], axis=1).astype("float64")
        drawn[np.any([one[UNDRAWN] for one in each], axis=0)] = np.nan
        return {WITH_SET: drawn.reshape(len(drawn), len(settings), len(nodes.points), -1)}

    def rows(batch: Batch, nodes: Nodes) -> np.ndarray:
        y = (np.clip(batch[WITH_SET], *limits) - limits.centre) / limits.radius
        parts = y.mean(axis=3) @ nodes.basis / len(nodes.points)
        vectors = parts.reshape(len(parts), -1)
        return np.column_stack([vectors, np.full(len(vectors), of_count)])

    held = 2 * points * len(settings) * outcomes_in(records, leaf)
    return RowContribution(len(settings) * size + 1, held, rows, draw=draw, jumps=True)


def with_values(batch: Batch, axes: Mapping[str, int], values: Values) -> Batch:
    """Copy a batch with predictors set: a whole array, or a column of a matrix."""
    changed = dict(batch)
    for place, value in values.items():
        name, column = (place, ...) if isinstance(place, str) else place
        array = np.array(changed[name])
        np.moveaxis(array, axes[name], 0)[:, column] = value
        changed[name] = array
    return changed
