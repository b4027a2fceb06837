"""Tuned constants of conjugate models."""

from typing import NamedTuple


class Defaults(NamedTuple):
    """Public numbers, which options of the caller replace where there are any."""

    releases: int = 20
    noiseless_releases: int = 100  # without noise, more steps cost nothing
    # a few statistics near 1 each; where all records' have one norm, that norm
    clip_norm: float = 3.0
    # of the sums that find the components which rounds then fit: how many, and their share of the
    # budget
    releases_of_start: int = 10
    share_of_start: float = 0.3
    start_precision: float = 10.0  # of a mixture's components over the prior's, so that they differ


DEFAULTS = Defaults()
