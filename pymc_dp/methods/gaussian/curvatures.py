"""What is known of the curvature of the log likelihood, and from where."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.methods.gaussian.belief import Curvature, weakly_correlated
from pymc_dp.methods.gaussian.expected_scores import Expected
from pymc_dp.methods.gaussian.shifts import along, known_along
from pymc_dp.methods.gaussian.state import State


class Curvatures(NamedTuple):
    """Independent estimates of the curvature of the log likelihood."""

    from_rounds: Curvature
    independent: Curvature  # a guess for independent latents, or what the model expects
    along_shifts: Curvature | None  # from these rounds, and those before that took shifts

    def together(self, shifts: np.ndarray | None) -> Curvature:
        """Combine all of it."""
        combined = self.from_rounds.combined(self.independent)
        if shifts is None or self.along_shifts is None:
            return combined
        return known_along(combined, shifts, self.along_shifts)


def curvatures(
    state: State, found: Curvature, expected: Expected | None, shifts: np.ndarray | None
) -> Curvatures:
    """Add a round's curvature to what is known.

    Earlier estimates, made at other points, are brought to the scales that were found at this one.
    """
    learnt = state.learnt
    weak = weakly_correlated(np.linalg.inv(learnt.covariance))
    of_model = expected.of(state.number, state.number_sd) if expected else learnt.independent
    independent = of_model.scaled_like(found, weak)
    shared = learnt.along_shifts
    # of many latents the diagonal alone was released, which says nothing of shifts
    if shifts is not None and shared is not None and len(shifts) <= MANY_LATENTS:
        shared = shared.combined(along(found, shifts))
    if learnt.curvature is None:
        return Curvatures(found, independent, shared)
    earlier = learnt.curvature.scaled_like(found, weak)
    return Curvatures(earlier.combined(found), independent, shared)
