"""What rounds in whitened coordinates tell of their own posterior: released numbers alone."""

import numpy as np
from pytensor.graph.traversal import ancestors

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
    hidden = _hidden(hidden_directions(records, curvature))
    return (*clipped, *hidden, *_long_steps(records, state.learnt.way))


def _read_by_records(records: Records) -> np.ndarray:
    """Which coordinates a term of the likelihood depends on, (d,): not those of hyper-priors."""
    reached = set(ancestors(records.batch.terms))
    sizes = [start.size for start in records.point.values()]
    return np.repeat([latent in reached for latent in records.latents.values()], sizes)


def hidden_directions(records: Records, curvature: Curvature) -> np.ndarray:
    """Return which directions noise hides, of those of the latents that records read."""
    read = _read_by_records(records)
    part = np.ix_(read, read)
    return Curvature(curvature.estimate[part], curvature.noise[part]).spectrum().hidden


def _hidden(hidden: np.ndarray) -> list[str]:
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
