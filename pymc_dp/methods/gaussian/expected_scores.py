"""What the model itself expects of scores, where outcomes are all that records are.

Without predictors or groups every record has the same distribution, and curvatures at a public
point follow from outcomes that the model draws there: no record is needed, and no budget. They hold
as far as the model does; those that are released correct them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors
from pytensor.tensor.shape import Shape, Shape_i

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.contributions.drawn_scores import DrawnScores
from pymc_dp.contributions.joint_vector import At, split
from pymc_dp.contributions.outcomes import drawn_name
from pymc_dp.contributions.whitened import whitened_scores
from pymc_dp.methods.gaussian.belief import Curvature, symmetric
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.noise_floor import Spectrum
from pymc_dp.methods.gaussian.unseen import ROWS
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch, with_draws


class Expected(NamedTuple):
    """What one record's clipped score is expected to be at a point."""

    curvature: np.ndarray  # minus the slope of its mean, (d, d)
    variance_share: float  # its variance over that slope

    def of(self, number: float, number_sd: float) -> Curvature:
        """Return the curvature of so many records, and how far the model is believed.

        ``number_sd`` is the standard deviation of their number, as a share of it.
        """
        estimate, doubt = number * self.curvature, DEFAULTS.doubt_of_model + number_sd
        least = DEFAULTS.least_share * np.trace(estimate)
        return Curvature(estimate, doubt * Spectrum.of(estimate).floored(float(least)))


def outcomes_alone(records: Records, of_units: bool) -> bool:
    """Whether records, and not units of several, hold nothing but outcomes that can be drawn.

    Latents of single records, which are integrated out, are drawn from their priors with them.
    """
    held = set(records.batch.inputs) - set(records.local_latents)
    alone = held == set(records.drawn) and not of_units
    return alone and records.size <= MANY_LATENTS and not _draws_read_records(records)


def _draws_read_records(records: Records) -> bool:
    """Whether drawing an outcome reads the observed one, as a multinomial its number of trials."""
    for stage in records.outcomes or ():
        for leaf, graph in stage.drawn.items():
            lengths = [v for v in ancestors([graph]) if isinstance(v.owner_op, Shape | Shape_i)]
            if stage.inputs.get(leaf) in set(ancestors([graph], blockers=lengths)):
                return True
    return False


def made_up_outcomes(records: Records, rows: int) -> Batch:
    """Return outcomes of 0, to draw others in their place."""
    shapes, inputs = records.shapes, records.batch.inputs
    return {
        name: np.zeros([rows if n is None else n for n in shapes[name]], inputs[name].type.dtype)
        for name in records.drawn
    }


def expected_scores(
    records: Records, scores: DrawnScores, of_units: bool
) -> Callable[[At], Expected | None] | None:
    """Return what scores are expected to be, or None where records hold more than outcomes.

    Nothing is expected at points where some of the model's own outcomes have no score.

    **Privacy.** A function of the model's graph and of a public point: records are made up.
    """
    if not outcomes_alone(records, of_units):
        return None
    added, axes = whitened_scores(scores), records.batch.axes

    def expected(at: At) -> Expected | None:
        batch = made_up_outcomes(records, ROWS)
        batch = with_draws(added, batch, at, np.random.default_rng(0))
        for name in records.drawn:  # an outcome of 0 may be none of the model's
            own = batch[drawn_name(name)][:, 0]
            batch[name] = np.moveaxis(own, 0, axes[name])
        with np.errstate(all="ignore"):
            total = added.weighted_sum(added.prepare(batch, at), at, np.ones(ROWS))
        if not np.isfinite(total).all():
            return None
        sums, back = split(total / ROWS, at), np.linalg.inv(at.whitening)
        trace = float(np.diag(sums.curvature) @ at.score_scales**2)
        share = sums.variance / max(trace, np.finfo(float).tiny)
        return Expected(symmetric(back @ sums.curvature @ back.T), share)

    return expected
