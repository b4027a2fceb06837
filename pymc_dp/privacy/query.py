"""Queries to the wall and its answers: public and released values alone."""

from typing import Any, NamedTuple

import numpy as np


class Noisy(NamedTuple):
    """A released sum."""

    value: np.ndarray  # shape (size,): the clipped sum over the batch plus noise
    sd: float  # the noise's standard deviation in every coordinate
    # the rate at which records were drawn: ``value / sample_rate`` estimates the full sum
    sample_rate: float

    @property
    def noise_to_signal(self) -> float:
        """The noise's expected norm over the norm of what was released."""
        return float(self.sd * self.value.size**0.5 / max(np.linalg.norm(self.value), 1e-300))


class Query(NamedTuple):
    """A request for one release; public values alone."""

    name: str  # of a release that the plan still holds
    context: Any  # the contribution's second argument, beside the records
    clip_norm: float | None = None  # in place of the plan's; a function of released values alone
    draw: Any = None  # the public draw behind the context, kept for the update that follows
