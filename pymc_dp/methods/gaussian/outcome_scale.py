"""The scale of an outcome that a model does not know: the sd of a normal outcome, for example.

Location and scale are found together, and neither step is a small one: while the location is far,
residuals are long and the scale is large, and it falls as the location is found. How the likelihood
changes with the scale is known without any release: scores and curvatures of the location go with
one over the scale and its square, and the square of the scale is a mean of squared residuals.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import LogNormalRV, NormalRV
from scipy.optimize import brentq

from pymc_dp.compiling.compile import function
from pymc_dp.contributions.score_scales import LEAST
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.latent_scales import sums_of_three, visible_sum
from pymc_dp.methods.gaussian.only_outcome import only_outcome
from pymc_dp.model import Records
from pymc_dp.model.graphs import AnyVariable, pt

# in others the scale goes with the shape of the tails, and residuals are not squared
NORMAL = (NormalRV, LogNormalRV)
STEP = 1e-4  # of differences of the logarithm of the scale
LONGEST_STEP = 20.0  # of the logarithm of the squared scale
# so far from the start the logarithm of the scale must be linear in the latent
LINEAR_WITHIN = LONGEST_STEP


class OutcomeScale(NamedTuple):
    """A latent that sets the scale of the outcomes, and those that set their location."""

    latent: int  # its coordinate
    location: np.ndarray  # which coordinates the location reads, (d,)
    slope: float  # b: the logarithm of the scale is b times the latent, and a constant
    outcomes: int  # of one record

    def is_seen(self, seen: np.ndarray) -> bool:
        """Whether magnitudes of scores, (d,), are seen of the scale, and of the location."""
        return bool(seen[self.latent] and seen[self.location].any())

    def units(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return by how much one scale is shorter than another, in the location alone, (d,)."""
        shorter = np.exp(self.slope * (before - after)[self.latent])
        return np.where(self.location, shorter, 1.0)

    def number(self, curvature: float, records: float, excess: float) -> float:
        """Estimate the number of outcomes M from the curvature in the latent, 2 M b^2.

        Clipping makes it smaller, and does not where residuals are short: there, where the
        ``excess`` M (R - 1) is far below 0, no outcome is left out.
        """
        all_of_them = records * self.outcomes
        found = max(curvature / (2 * self.slope**2), DEFAULTS.least_scale_curvature * all_of_them)
        short = excess < -DEFAULTS.short_residuals * found
        return max(found, all_of_them) if short else found

    def with_prior(
        self, mean: np.ndarray, variance: float, prior_gradient: Callable[[np.ndarray], np.ndarray]
    ) -> float:
        """Return the latent at the mode of the prior and a normal estimate of this variance.

        The prior must be log-concave in the latent; the mode is at most so far from the estimate
        as a step may be long.

        >>> scale = OutcomeScale(0, np.array([False]), slope=1.0, outcomes=1)
        >>> round(scale.with_prior(np.array([4.0]), 1.0, lambda z: 2.0 - z), 6)
        3.0
        """
        at, estimate = self.latent, float(mean[self.latent])

        def excess(z: float) -> float:
            point = mean.copy()
            point[at] = z
            return (z - estimate) / variance - float(prior_gradient(point)[at])

        longest, here = LONGEST_STEP / (2 * abs(self.slope)), excess(estimate)
        end = estimate + float(np.clip(-variance * here, -longest, longest))
        there = excess(end)
        if not np.isfinite(there):
            return estimate
        return float(brentq(excess, estimate, end)) if here * there < 0 else end

    def started(
        self, point: np.ndarray, counts: np.ndarray, sd: float, expected: float
    ) -> np.ndarray:
        """Raise the scale at the start to that of the residuals, if they are longer.

        ``counts``, (BINS,), are those of scores of the latent at the observed outcomes, b (R - 1)
        where R is a squared residual in units of the scale, with noise of this ``sd``. Where noise
        hides them, ``expected`` is taken for the mean of R.
        """
        together = sums_of_three(counts)
        most = int(together.argmax())
        # as many normal residuals are twice as far from 0 as R is, or half as far
        seen = 2.0 ** (most + 2.5 + LEAST) / abs(self.slope)
        squared = seen if together[most] > visible_sum(sd) else expected
        if not squared > 1:
            return point
        raised = point.copy()
        raised[self.latent] += np.log(squared) / (2 * self.slope)
        return raised


def outcome_scale(records: Records) -> OutcomeScale | None:
    """Find the latent that alone sets the scale of a model's outcomes, for all records alike."""
    outcome = only_outcome(records)
    if outcome is None or not isinstance(outcome.node.op, NORMAL):
        return None
    location, scale = outcome.node.op.dist_params(outcome.node)
    read = set(ancestors([scale]))
    latents = [z for z in records.latents.values() if z in read]
    if len(latents) != 1 or read & set(outcome.stage.inputs.values()):
        return None
    by_location = set(ancestors([location]))
    [latent] = latents
    if latent in by_location or records.point[str(latent.name)].size > 1:
        return None
    reads = [
        np.full(records.point[key].size, z in by_location) for key, z in records.latents.items()
    ]
    if not np.concatenate(reads).any():
        return None
    before = list(records.latents).index(str(latent.name))
    slope = _slope_if_linear(latent, scale, float(records.point[str(latent.name)].item()))
    if slope is None:
        return None
    return OutcomeScale(
        latent=sum(flags.size for flags in reads[:before]),
        location=np.concatenate(reads),
        slope=slope,
        outcomes=int(np.prod([size or 1 for size in records.shapes[outcome.name]])),
    )


def _slope_if_linear(latent: AnyVariable, scale: AnyVariable, at: float) -> float | None:
    """Return b if the scale is an exponential of b times its latent; one with a bound is not."""
    log_scale = function([latent], pt.log(scale).ravel()[0], "python")
    one = (1,) * latent.type.ndim

    def slope(z: float) -> float:
        high, low = (
            float(log_scale(np.full(one, x, latent.type.dtype))) for x in (z + STEP, z - STEP)
        )
        return (high - low) / (2 * STEP)

    slopes = [slope(at + far) for far in (-LINEAR_WITHIN, -1.0, 0.0, 1.0, LINEAR_WITHIN)]
    return slopes[2] if np.ptp(slopes) < 1e-3 * abs(slopes[2]) else None
