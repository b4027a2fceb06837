"""Which latents set the scale or the shape of outcomes, and models that hold nothing but outcomes.

Location and scale of normal outcomes are found together: while the location is far, residuals are
long and the scale is large, and it falls as the location is found. How the likelihood changes with
the scale is known without any release: scores and curvatures of the location go with one over the
square of the scale.
"""

from typing import NamedTuple

import numpy as np
from pymc.distributions.continuous import WaldRV
from pymc.distributions.moments import mean
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import basic as rv
from pytensor.tensor.random.basic import LogNormalRV, NormalRV
from pytensor.tensor.shape import Shape, Shape_i

from pymc_dp.contributions.channels import MANY_LATENTS, coordinates_of
from pymc_dp.contributions.gradients import on_batch
from pymc_dp.engine.constants import CONSTANTS
from pymc_dp.engine.made_up import ROWS, computes_with_columns, made_up
from pymc_dp.model import Records
from pymc_dp.model.batch import Outcomes
from pymc_dp.model.compilation import function
from pymc_dp.model.graphs import AnyVariable, pt
from pymc_dp.privacy.contribution import Batch


def only_outcome(records: Records) -> tuple[AnyVariable, Outcomes] | None:
    """Return what draws the outcome, or None where there are several, or it is not drawn itself."""
    if records.outcomes is None or len(records.outcomes) > 1:
        return None
    [stage] = records.outcomes
    [graph, *others] = stage.drawn.values()
    return (graph, stage) if graph.owner and not others else None


# in others the scale goes with the shape of the tails, and residuals are not squared
NORMAL = (NormalRV, LogNormalRV)
STEP = 1e-4  # of differences of the logarithm of the scale
# so far from the start the logarithm of the scale must be linear in the latent
LINEAR_WITHIN = 20.0
# the binary logarithm of a mean of squared normal numbers, less the mean of their logarithms
BITS_OF_NORMAL = 1.83


class OutcomeScale(NamedTuple):
    """A latent that sets the scale of the outcomes, and those that set their location."""

    latent: int  # its coordinate
    location: np.ndarray  # which coordinates the location reads, (d,)
    slope: float  # b: the logarithm of the scale is b times the latent, and a constant

    def units(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return by how much one scale is shorter than another, in the location alone, (d,)."""
        shorter = np.exp(self.slope * (before - after)[self.latent])
        return np.where(self.location, shorter, 1.0)

    def step(self, of_newton: float) -> float:
        """Return the exact step for Newton's (R - 1) / (2 b), with R the mean squared residual."""
        ratio = max(1 + 2 * self.slope * of_newton, CONSTANTS.least_fall)
        return float(np.log(ratio) / (2 * self.slope))

    def excess_bits(self, bits: float) -> float:
        """Return log2 R from the mean bits of scores of the latent, b (R - 1)."""
        return float(bits + BITS_OF_NORMAL - np.log2(abs(self.slope)))


def outcome_scale(records: Records) -> OutcomeScale | None:
    """Find the latent that alone sets the scale of a model's outcomes, for all records alike."""
    outcome = only_outcome(records)
    if outcome is None or not isinstance(outcome[0].owner.op, NORMAL):
        return None
    graph, stage = outcome
    location, scale = graph.owner.op.dist_params(graph.owner)
    read = set(ancestors([scale]))
    latents = [z for z in records.latents.values() if z in read]
    if len(latents) != 1 or read & set(stage.inputs.values()):
        return None
    by_location = set(ancestors([location]))
    [latent] = latents
    if latent in by_location or records.point[str(latent.name)].size > 1:
        return None
    slope = _slope_if_linear(latent, scale, float(records.point[str(latent.name)].item()))
    if slope is None:
        return None
    own = int(coordinates_of(records, [latent]).argmax())
    return OutcomeScale(own, coordinates_of(records, by_location), slope)


def _slope_if_linear(latent: AnyVariable, scale: AnyVariable, at: float) -> float | None:
    """Return b if the scale is an exponential of b times its latent; one with a bound is not."""
    compiled = function([latent], pt.log(scale).ravel()[0], "python")

    def log_scale(z: float) -> float:
        return float(compiled(np.full((1,) * latent.type.ndim, z, latent.type.dtype)))

    places = [at + far for far in (-LINEAR_WITHIN, -1.0, 0.0, 1.0, LINEAR_WITHIN)]
    slopes = [(log_scale(z + STEP) - log_scale(z - STEP)) / (2 * STEP) for z in places]
    return slopes[2] if np.ptp(slopes) < 1e-3 * abs(slopes[2]) else None


WITH_SHAPES = rv.BetaBinomialRV | rv.BetaRV | rv.GammaRV | rv.InvGammaRV | rv.NegBinomialRV
WITH_SHAPES |= rv.StudentTRV | rv.VonMisesRV | WaldRV
UNCHANGED = 1e-6


def shape_latents(records: Records) -> np.ndarray:
    """Return which coordinates, (d,), set the shape of a model's outcomes and not their mean.

    The scale of Student-t outcomes is none of them: it must grow before their location is found.
    There are none, either, where columns are compared or computed with before latents are: what
    leaves the means of made-up records as they are may move those of others.

    **Privacy.** A function of the model's graph, and of the shapes and types of its columns.
    """
    outcome = only_outcome(records)
    if outcome is None or not isinstance(outcome[0].owner.op, WITH_SHAPES):
        return np.zeros(records.size, bool)
    if records.local_latents or computes_with_columns(records):
        return np.zeros(records.size, bool)
    graph, stage = outcome
    node = graph.owner
    parameters = node.op.dist_params(node)
    read = set(ancestors(parameters))
    if isinstance(node.op, rv.StudentTRV):
        read -= set(ancestors([parameters[2]]))
    means = on_batch(records, [stage.number], mean(graph), "python", stage.inputs)
    rng = np.random.default_rng(0)
    batch = made_up(records, rng, ROWS + 20 * records.size)
    # of moderate size, too: of a large mean, or one next to nothing, rounding leaves little
    moderate = {n: np.clip(x, -1, 1) if x.dtype.kind == "f" else x for n, x in batch.items()}

    def keeps_means(latent: AnyVariable, rows: Batch) -> bool:
        here = records.start + rng.normal(size=records.size)
        there, own = here.copy(), coordinates_of(records, [latent])
        there[own] += rng.normal(size=own.sum())
        with np.errstate(all="ignore"):
            first, second = (np.asarray(means(rows, z, np.asarray(1))) for z in (here, there))
        both = np.isfinite(first) & np.isfinite(second)
        same = np.isclose(first[both], second[both], rtol=UNCHANGED, atol=UNCHANGED)
        return bool(both.any() and same.all())

    of_shape = [z for z in records.latents.values() if z in read]
    tables = batch, moderate
    still = [z for z in of_shape if all(keeps_means(z, rows) for rows in tables)]
    return coordinates_of(records, still)


def outcomes_alone(records: Records, of_units: bool) -> bool:
    """Whether records, and not units of several, hold nothing but outcomes that can be drawn."""
    alone = set(records.batch.inputs) == set(records.drawn) and not of_units
    return alone and records.size <= MANY_LATENTS and not _draws_read_records(records)


def _draws_read_records(records: Records) -> bool:
    """Whether drawing an outcome reads the observed one, as a multinomial its number of trials."""
    for stage in records.outcomes or ():
        for leaf, graph in stage.drawn.items():
            lengths = [v for v in ancestors([graph]) if isinstance(v.owner_op, Shape | Shape_i)]
            if stage.inputs.get(leaf) in set(ancestors([graph], blockers=lengths)):
                return True
    return False
