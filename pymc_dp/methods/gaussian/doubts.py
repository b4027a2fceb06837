"""What rounds in whitened coordinates tell of their own posterior: released numbers alone."""

import numpy as np

from pymc_dp.methods.doubts import uncentred
from pymc_dp.methods.gaussian.rounds import State
from pymc_dp.model import Records


def doubts_of_rounds(records: Records, state: State) -> tuple[str, ...]:
    """List what is doubtful about the posterior of the last round; nothing without noise."""
    if state.noise_unit == 0 or state.learnt.curvature is None:
        return ()
    found = [uncentred(records.term_names)] if records.outcomes is None else []
    return (*found, *_hidden(state), *_unfinished(records, state))


def _hidden(state: State) -> list[str]:
    curvature = state.learnt.curvature
    hidden = int(curvature.spectrum().hidden.sum()) if curvature else 0
    if not hidden:
        return []
    return [
        f"Noise hides what the records say in {hidden} of {len(state.learnt.mode.mean)} directions "
        "of the latents. There the posterior rests on the prior, and its width on a guess."
    ]


def _unfinished(records: Records, state: State) -> list[str]:
    moving = np.flatnonzero(state.learnt.way.left)
    if not moving.size:
        return []
    names = ", ".join(f"`{records.labels[i]}`" for i in moving)
    return [
        f"The last step of {names} was a long one, so the mode may not have been reached: "
        "more releases (n=) or a larger epsilon would tell."
    ]
