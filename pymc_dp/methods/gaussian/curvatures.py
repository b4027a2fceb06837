"""What is known of the curvature of the log likelihood, and from where."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.methods.gaussian.belief import Curvature, weakly_correlated
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.directions import along, known_along, measured_along
from pymc_dp.methods.gaussian.expected_scores import Expected
from pymc_dp.methods.gaussian.factors import (
    Believed,
    Model,
    visible_along_steps,
    weighed,
    with_departures,
    with_factors,
)
from pymc_dp.methods.gaussian.group_curvature import Groups
from pymc_dp.methods.gaussian.path import Path
from pymc_dp.methods.gaussian.state import Known, State
from pymc_dp.methods.gaussian.unseen import without


class Curvatures(NamedTuple):
    """Independent estimates of the curvature of the log likelihood."""

    from_rounds: Curvature
    independent: Curvature  # a guess for independent latents, or what the model expects
    along_shifts: Curvature | None  # from these rounds, and those before that took shifts

    def together(self, known: Known) -> Curvature:
        """Combine all of it; of many latents with groups without what their shifts have in common.

        That is in `of_groups`, and was found before groups were released one by one.
        """
        combined, shared = self.from_rounds.combined(self.independent), self.along_shifts
        many = len(combined.estimate) > MANY_LATENTS
        if shared is None or known.shifts is None or (many and known.groups is not None):
            return combined
        return known_along(combined, known.shifts, shared)

    def of_groups(self, groups: Groups | None) -> Model | None:
        """Return the curvature of groups, which are alike where nothing else shows; or None."""
        if groups is None or self.along_shifts is None:
            return None
        found, d = self.from_rounds, len(self.from_rounds.estimate)
        guess = np.diag(self.independent.estimate)
        share = 2 * groups.numbers_if_alike / (d * (d + 1))
        shared, is_matrix = self.along_shifts.estimate, d <= MANY_LATENTS
        if is_matrix:  # of more latents a diagonal is released, and noise has left that of shifts
            shared = self.along_shifts.spectrum().matrix(DEFAULTS.floor_on_average)
        alike = groups.alike(groups.resized(shared, found, guess), found, guess)
        if not is_matrix:
            return Model(alike, share)
        return with_departures(found, Model(groups.unlike(found, alike), share))


def curvatures(
    state: State, found: Curvature, expected: Expected | None, known: Known
) -> Curvatures:
    """Add a round's curvature to what is known.

    Earlier estimates, made at other points, are brought to the scales that were found at this one.
    """
    learnt, shifts = state.learnt, known.shifts
    # of many latents the diagonal alone was released, which says nothing of shifts and of pairs
    is_matrix = len(found.estimate) <= MANY_LATENTS
    groups = known.groups if is_matrix else None
    weak = weakly_correlated(np.linalg.inv(learnt.covariance))
    shared = learnt.along_shifts
    if shifts is not None and shared is not None and is_matrix:
        shared = shared.combined(along(found, shifts))
    if groups is not None:
        found = groups.without_pairs(found)
    if expected:
        independent = expected.of(state.number, state.number_sd).scaled_like(found, weak)
    else:  # it has no correlations that scales of single latents could break
        independent = learnt.independent.scaled_like(found, np.full(len(weak), True))
    if learnt.curvature is None:
        return Curvatures(found, independent, shared)
    if groups is None:
        earlier = learnt.curvature.scaled_like(found, weak)
    else:
        earlier = groups.scaled_like(learnt.curvature, found, weak)
    return Curvatures(earlier.combined(found), independent, shared)


def believed_curvature(
    found: Curvature,
    path: Path | None,
    state: State,
    slope: np.ndarray,
    prior: np.ndarray,
    is_constant: bool,
    of_groups: Model | None,
) -> Believed:
    """Say what is believed of the curvature at a round's point, and what may be wrong with it."""
    fewest = DEFAULTS.fewest_if_constant if is_constant else DEFAULTS.fewest_with_factors
    # on a long path a curvature that is a little wrong is better than one that noise hides
    is_long = state.reach > 1 or state.held.any()
    if of_groups is None:
        believed = with_factors(found, 0 if is_long and not is_constant else fewest)
    else:
        believed = weighed(found, of_groups)
    curvature, seen = (without(x, state.unseen) for x in (believed.curvature, found))
    error = without(Curvature(believed.error, believed.error), state.unseen).noise
    if is_constant:  # nothing else makes room for what is wrong with the model of it
        error = (error + seen.noise) / 2
    if of_groups is None or len(found.estimate) <= MANY_LATENTS:  # a diagonal says nothing of steps
        curvature = visible_along_steps(curvature, seen, slope, prior)
    believed = believed._replace(curvature=curvature, error=error)
    return measured_along(believed, seen, path) if path else believed
