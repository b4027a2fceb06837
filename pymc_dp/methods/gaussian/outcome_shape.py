"""Latents that set the shape of outcomes and not their mean: the dispersion of counts, for example.

While the location is far its residuals are long, and every shape that makes outcomes spread wide
explains them. A step there would hide the location: outcomes that spread wide tell little of it.
"""

import numpy as np
from pymc.distributions.continuous import WaldRV
from pymc.distributions.moments import mean
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import (
    BetaBinomialRV,
    BetaRV,
    GammaRV,
    InvGammaRV,
    NegBinomialRV,
    StudentTRV,
    VonMisesRV,
)

from pymc_dp.contributions.gradients import on_batch
from pymc_dp.methods.gaussian.unseen import made_up
from pymc_dp.model import Records
from pymc_dp.model.outcomes import Outcomes

WITH_SHAPES = (
    *(BetaBinomialRV, BetaRV, GammaRV, InvGammaRV, NegBinomialRV, StudentTRV, VonMisesRV, WaldRV),
)
ROWS = 100  # of made-up records at which means are compared
MOVED = 0.7  # how far a latent is moved for that
ROUNDING = 1e-6


def shape_latents(records: Records) -> np.ndarray:
    """Return which coordinates, (d,), set the shape of a model's outcomes and not their mean.

    A scale is none of them: that of Student-t outcomes must grow before their location is found.

    **Privacy.** A function of the model's graph, and of the shapes and types of its columns.
    """
    none = np.zeros(records.size, bool)
    if records.outcomes is None or len(records.outcomes) > 1 or records.local_latents:
        return none
    [stage] = records.outcomes
    if len(stage.drawn) > 1:
        return none
    [graph] = stage.drawn.values()
    node = graph.owner
    if node is None or not isinstance(node.op, WITH_SHAPES):
        return none
    parameters = node.op.dist_params(node)
    read = set(ancestors(parameters))
    if isinstance(node.op, StudentTRV):
        read -= set(ancestors([parameters[2]]))
    candidates = [name for name, z in records.latents.items() if z in read]
    return _without_effect_on_mean(records, stage, candidates)


def _without_effect_on_mean(records: Records, stage: Outcomes, candidates: list[str]) -> np.ndarray:
    [graph] = stage.drawn.values()
    compute = on_batch(records, [stage.number], [mean(graph)], "python", stage.inputs)
    rng = np.random.default_rng(0)
    start = records.start + rng.normal(size=records.size)
    # of moderate size: of a large mean, or one next to nothing, rounding leaves little
    numbers = made_up(records, rng, ROWS)
    batch = {name: _moderate(numbers[name]) for name in stage.inputs}

    def mean_at(point: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            [found] = compute(batch, point, np.asarray(1))
        return np.asarray(found)

    coordinates = records.split(np.arange(start.size))
    here, found = mean_at(start), np.zeros(start.size, bool)
    for name, own in zip(records.latents, coordinates, strict=True):
        if name in candidates:
            moved = start.copy()
            moved[own.ravel()] += MOVED
            found[own.ravel()] = _are_equal(here, mean_at(moved))
    return found


def _moderate(column: np.ndarray) -> np.ndarray:
    """Bring real numbers between -1 and 1; integers may be indices."""
    return np.clip(column, -1, 1) if column.dtype.kind == "f" else column


def _are_equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two means are equal, but for rounding, where both are finite."""
    both = np.isfinite(first) & np.isfinite(second)
    return bool(both.any()) and np.allclose(first[both], second[both], rtol=ROUNDING, atol=0)
