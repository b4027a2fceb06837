"""What is asked of the wall, and what it hands out: public and released values alone."""

from typing import Any, NamedTuple

import numpy as np


class Noisy(NamedTuple):
    """A released sum.

    Attributes
    ----------
    value : ndarray, shape (size,)
        The clipped sum over the batch plus noise.
    sd : float
        The noise's standard deviation in every coordinate.
    sample_rate : float
        The rate at which records were drawn: ``value / sample_rate`` estimates the full sum.
    many_clipped : bool or None
        Whether more than the asked share of records seems to have been clipped.
    """

    value: np.ndarray
    sd: float
    sample_rate: float
    many_clipped: bool | None = None

    @property
    def noise_to_signal(self) -> float:
        """The noise's expected norm over the norm of what was released."""
        return float(self.sd * self.value.size**0.5 / max(np.linalg.norm(self.value), 1e-300))


class Query(NamedTuple):
    """What is asked of the wall; public values alone.

    Attributes
    ----------
    name : str
        The plan must still hold a release of this name.
    context : any
        What the contribution depends on beside the record.
    clip_norm : float, optional
        In place of the plan's; a function of released values alone.
    quantile : float in (0, 1), optional
        Also ask whether more than a share ``1 - quantile`` of the records was clipped.
    draw : any
        What the asker remembers of the public draw behind the context.
    """

    name: str
    context: Any
    clip_norm: float | None = None
    quantile: float | None = None
    draw: Any = None
