"""The precision of a method's own posterior q, where it is not the slope of what records add.

The bound of Pólya-Gamma variables lies below the log likelihood and has more curvature than it: the
solution of vips depends on the precision of its q, and honest widths on the slope of its scores. A
few rounds release the one in the place of the other.
"""

import numpy as np

from pymc_dp.methods.gaussian.belief import CurvatureSpectrum
from pymc_dp.methods.gaussian.coordinates import unclipped_curvature
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.release import Release
from pymc_dp.methods.gaussian.state import Known, State


def with_precision(state: State, release: Release) -> tuple[State, Release]:
    """Learn the precision from a round that releases it; of slopes it shows one alone."""
    known = state.learnt.curvature
    if not state.at.of_precision or known is None:
        return state, release
    found = release.curvature
    if state.precision is not None:
        earlier = state.precision.moved(DEFAULTS.nonlinearity, DEFAULTS.floor_on_average)
        found = earlier.combined(found)
    nothing = known._replace(noise=DEFAULTS.fixed_precision**0.5 * known.noise)
    return state._replace(precision=found), release._replace(curvature=nothing)


def asking_for_precision(state: State, known: Known) -> State:
    """Say whether the next round releases the precision."""
    if not (known.estimating and known.estimating.has_precision) or state.at.is_diagonal:
        return state
    due = state.t % DEFAULTS.rounds_of_precision == 0 and state.learnt.curvature is not None
    return state._replace(at=state.at._replace(of_precision=due))


def added_to_q(state: State, slope: CurvatureSpectrum, share: float) -> np.ndarray:
    """Return what a share of the records adds to the precision of q, (d, d)."""
    spectrum = slope if state.precision is None else state.precision.spectrum()
    return share * unclipped_curvature(spectrum, state.learnt.variance_share)
