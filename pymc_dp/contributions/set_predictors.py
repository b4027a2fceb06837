"""Outcomes that a model draws for a record with predictors set to given values."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions.outcomes import UNDRAWN, compile_draws, drawn_name
from pymc_dp.contributions.predictive_density import Range
from pymc_dp.contributions.replicates import outcomes_in
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch, RowContribution

# a predictor, or one of its columns, and its value
Place = str | tuple[str, int]
Values = Mapping[Place, Any]

DRAWN = "outcomes with predictors set"


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
    draw_outcomes = compile_draws(records, 1)
    if draw_outcomes is None:
        raise TypeError("The model does not say how outcomes are drawn.")
    axes = dict(records.batch.axes)

    def draw(batch: Batch, nodes: Nodes, generator: np.random.Generator) -> Batch:
        # no two settings share random numbers: how many a record takes depends on its parameters,
        # and those of all records after it would move against each other
        changed = [with_values(batch, axes, values) for values in settings]
        each = [draw_outcomes(one, z, generator) for one in changed for z in nodes.points]
        drawn = np.stack([one[drawn_name(leaf)] for one in each], axis=1).astype("float64")
        drawn[np.any([one[UNDRAWN] for one in each], axis=0)] = np.nan
        return {DRAWN: drawn.reshape(len(drawn), len(settings), len(nodes.points), -1)}

    def rows(batch: Batch, nodes: Nodes) -> np.ndarray:
        y = (np.clip(batch[DRAWN], *limits) - limits.centre) / limits.radius
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
