"""The precision of a method's own posterior q, where it is not the slope of what records add.

The bound of Pólya-Gamma variables lies below the log likelihood and has more curvature than it: the
solution of vips depends on the precision of its q, and honest widths on the slope of its scores. A
few rounds release the one in the place of the other.
"""

import numpy as np

from pymc_dp.methods.gaussian.belief import CurvatureSpectrum
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


def added_to_q(state: State, slope: CurvatureSpectrum, known: Known) -> np.ndarray:
    """Return what records add to the precision of q, (d, d), as unclipped scores would show it."""
    spectrum = slope if state.precision is None else state.precision.spectrum()
    records = spectrum.matrix_at_least(DEFAULTS.floor)
    share = known.estimating.share(state.number) if known.estimating else 1.0
    return np.asarray(share / state.learnt.variance_share.curvature_share * records)
