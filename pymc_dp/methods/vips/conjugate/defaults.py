"""Tuned constants of conjugate models."""

from typing import NamedTuple


class Defaults(NamedTuple):
    """Public numbers, which options of the caller replace where there are any."""

    releases: int = 20
    noiseless_releases: int = 100  # without noise, more steps cost nothing
    clip_norm: float = 3.0  # a few statistics near 1 each
    clip_norm_of_probabilities: float = 1.0  # one success, or one category
    start_precision: float = 10.0  # of a mixture's components over the prior's, so that they differ


DEFAULTS = Defaults()
