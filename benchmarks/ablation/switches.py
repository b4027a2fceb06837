"""Stages and releases of the engine that can be switched off, each by one change."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from pymc_dp.contributions import whitened
from pymc_dp.engine import method, rounds, start
from pymc_dp.engine.clip_norm_and_bias import LeftOut
from pymc_dp.engine.method import Rounds, RoundTerms

Patch = tuple[Any, str, Any]  # an object, the name of one of its attributes, another value

_of = RoundTerms.of


def _at_points(cls: type[RoundTerms], *terms: Any) -> RoundTerms:
    return _of(*terms)._replace(estimating=None)


# by what a fit is without
PATCHES: dict[str, tuple[Patch, ...]] = {
    "counts of lengths": (
        (LeftOut, "at", lambda _, norm: 0.0),
        (LeftOut, "best", lambda left, noise: float(left.norms[0])),
    ),
    "weights of records": (
        (whitened, "record_weights", lambda variance, bound: np.ones_like(variance)),
    ),
    "a norm of their own for scores of the dispersion": (
        (Rounds, "dispersion", property(lambda own: np.zeros(own.records.size, bool))),
    ),
    "averages over the posterior": ((RoundTerms, "of", classmethod(_at_points)),),
    "curvature along the path": ((rounds, "with_path", lambda H, *_: H),),
    "the step between two scores": ((rounds, "with_secant", lambda H, *_: H),),
    "the step of the scale of outcomes": ((method, "outcome_scale", lambda records: None),),
    "the null space of the likelihood": (
        (method, "null_space_of", lambda records, scores: np.zeros((records.size, 0))),
    ),
    "scales from the first release": (
        (start, "_shrunk_to_centre", lambda bits, noise: np.zeros_like(bits)),
    ),
}


@contextmanager
def without(name: str) -> Iterator[None]:
    """Switch a stage or a release off."""
    with ExitStack() as stack:
        for place, attribute, other in PATCHES[name]:
            stack.enter_context(patch.object(place, attribute, other))
        yield
