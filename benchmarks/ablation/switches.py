"""Stages and releases of the engine that can be switched off, each by one change."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from pymc_dp.contributions.joint_vector import At
from pymc_dp.methods.gaussian import problem, reported, stages, start, state
from pymc_dp.methods.gaussian.local_posterior import LocalPosterior
from pymc_dp.methods.gaussian.mode import Mode
from pymc_dp.methods.gaussian.path import Path
from pymc_dp.methods.gaussian.schedule import RoundTerms
from pymc_dp.methods.gaussian.tails import Left, Tails

Patch = tuple[Any, str, Any]  # an object, the name of one of its attributes, another value


def _nothing_seen(counts: np.ndarray, sd: float) -> np.ndarray:
    return np.zeros(counts.shape, bool)


_of = RoundTerms.of


def _at_points(cls: type[RoundTerms], *terms: Any) -> RoundTerms:
    return _of(*terms)._replace(estimating=None)


# by what a fit is without
PATCHES: dict[str, tuple[Patch, ...]] = {
    "counts of lengths": (
        (Tails, "add", lambda tails, *_: tails),
        (Left, "bias", lambda *_: 0.0),
    ),
    "weights of records": ((At, "longest_unweighted", np.inf),),
    "a norm of their own for scores of the dispersion": (
        (problem, "dispersion_latents", lambda shapes, scale: np.zeros_like(shapes)),
    ),
    "averages over the posterior": ((RoundTerms, "of", classmethod(_at_points)),),
    "curvature along the path": ((state, "whitened_direction", lambda W, path: None),),
    "the mean beyond the mode": ((reported, "mean_beyond_mode", lambda mode, *_: mode),),
    "a wider belief along the path": ((Mode, "widened_along", lambda mode, *_: mode),),
    "damped steps": ((LocalPosterior, "damping", lambda *_: 1.0),),
    "the change of the curvature along the path": ((Path, "rate", lambda *_: 0.0),),
    "the change of a group's own curvature": (
        (LocalPosterior, "changes_of_groups", lambda _, step: np.zeros(len(step))),
    ),
    "rounds of shifts": ((stages, "find_groups", lambda records, scores: None),),
    "scales from the first release": (
        (start, "sums_of_squares", lambda counts, sd: np.zeros(len(counts))),
        (start, "visible_bins", _nothing_seen),
    ),
}


@contextmanager
def without(name: str) -> Iterator[None]:
    """Switch a stage or a release off."""
    with ExitStack() as stack:
        for place, attribute, other in PATCHES[name]:
            stack.enter_context(patch.object(place, attribute, other))
        yield
