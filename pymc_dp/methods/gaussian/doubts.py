"""What rounds in whitened coordinates tell of their own posterior: released numbers alone."""

import numpy as np

from pymc_dp.methods.doubts import uncentred
from pymc_dp.methods.gaussian.belief import Curvature
from pymc_dp.methods.gaussian.long_steps import Way
from pymc_dp.methods.gaussian.rounds import State
from pymc_dp.model import Records


def doubts_of_rounds(records: Records, state: State) -> tuple[str, ...]:
    """List what is doubtful about the posterior of the last round; nothing without noise."""
    curvature = state.learnt.curvature
    if state.noise_unit == 0 or curvature is None:
        return ()
    clipped = [uncentred(records.term_names)] if records.outcomes is None else []
    return (*clipped, *_hidden_directions(curvature), *_long_steps(records, state.learnt.way))


def _hidden_directions(curvature: Curvature) -> list[str]:
    hidden = curvature.spectrum().hidden
    if not hidden.any():
        return []
    return [
        f"Noise hides what the records say in {hidden.sum()} of {hidden.size} directions "
        "of the latents. There the posterior rests on the prior, and its width on a guess."
    ]


def _long_steps(records: Records, way: Way) -> list[str]:
    moving = np.flatnonzero(way.unfinished)
    if not moving.size:
        return []
    names = ", ".join(f"`{records.labels[i]}`" for i in moving)
    return [
        f"The last step of {names} was a long one, so the mode may not have been reached: "
        "more releases (n=) or a larger epsilon would tell."
    ]
