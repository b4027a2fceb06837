"""Latents that set the shape of outcomes and not their mean: the dispersion of counts, for example.

While the location is far its residuals are long, and every shape that makes outcomes spread wide
explains them. A step there would hide the location: outcomes that spread wide tell little of it.
"""

from collections.abc import Callable, Sequence

import numpy as np
from pymc.distributions.continuous import WaldRV
from pymc.distributions.moments import mean
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import basic as rv

from pymc_dp.contributions.gradients import on_batch
from pymc_dp.methods.gaussian.only_outcome import only_outcome
from pymc_dp.methods.gaussian.unseen import ROWS, computes_with_columns, made_up
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch

WITH_SHAPES = rv.BetaBinomialRV | rv.BetaRV | rv.GammaRV | rv.InvGammaRV | rv.NegBinomialRV
WITH_SHAPES |= rv.StudentTRV | rv.VonMisesRV | WaldRV
ROUNDING = 1e-6

# (batch, z, number of draws) -> means of outcomes
Means = Callable[[Batch, np.ndarray, np.ndarray], np.ndarray]


def shape_latents(records: Records) -> np.ndarray:
    """Return which coordinates, (d,), set the shape of a model's outcomes and not their mean.

    The scale of Student-t outcomes is none of them: it must grow before their location is found.
    There are none, either, where columns are compared or computed with before latents are: what
    leaves the means of made-up records as they are may move those of others.

    **Privacy.** A function of the model's graph, and of the shapes and types of its columns.
    """
    none = np.zeros(records.size, bool)
    outcome = only_outcome(records)
    if outcome is None or records.local_latents or not isinstance(outcome.node.op, WITH_SHAPES):
        return none
    if computes_with_columns(records):
        return none
    node, stage = outcome.node, outcome.stage
    parameters = node.op.dist_params(node)
    read = set(ancestors(parameters))
    if isinstance(node.op, rv.StudentTRV):
        read -= set(ancestors([parameters[2]]))
    means = on_batch(records, [stage.number], mean(outcome.graph), "python", stage.inputs)
    found = _without_effect(records, [z in read for z in records.latents.values()], means)
    return none if found.all() else found


def _without_effect(records: Records, candidates: Sequence[bool], means: Means) -> np.ndarray:
    """Return the coordinates, (d,), of those candidates that change no mean of made-up records."""
    rng = np.random.default_rng(0)
    rows = ROWS + 20 * records.size
    batch = made_up(records, rng, rows)
    # of moderate size, too: of a large mean, or one next to nothing, rounding leaves little
    batches = [batch, {name: _moderate(x) for name, x in batch.items()}]
    found = np.zeros(records.size, bool)
    places = records.split(np.arange(records.size))
    for own, is_candidate in zip(places, candidates, strict=True):
        found[own.ravel()] = is_candidate and all(
            _keeps_means(records, own.ravel(), means, batch, rng) for batch in batches
        )
    return found


def _keeps_means(
    records: Records, own: np.ndarray, means: Means, batch: Batch, rng: np.random.Generator
) -> bool:
    """Whether a move of these coordinates leaves the means of a batch as they are."""
    here = records.start + rng.normal(size=records.size)
    there = here.copy()
    there[own] += rng.normal(size=own.size)
    with np.errstate(all="ignore"):
        first, second = (np.asarray(means(batch, z, np.asarray(1))) for z in (here, there))
    both = np.isfinite(first) & np.isfinite(second)
    return bool(both.any()) and np.allclose(first[both], second[both], rtol=ROUNDING, atol=ROUNDING)


def _moderate(column: np.ndarray) -> np.ndarray:
    """Bring real numbers between -1 and 1; integers may be indices."""
    return np.clip(column, -1, 1) if column.dtype.kind == "f" else column
