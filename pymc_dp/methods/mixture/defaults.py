"""Tuned constants of the sketch that mixtures start from."""

from typing import NamedTuple


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    # of the budget, for the sketch
    share: float = 0.2
    # the number of records in a record's vector, whose norm is 1
    number_scale: float = 0.3
    # frequencies for each unknown number, and at least
    frequencies: int = 4
    least_frequencies: int = 64
    # the longest frequency, in units of a record's standard deviation
    longest: float = 1.5
    # places that are tried at once for a component, for each of its latents and one more
    places: int = 100
    # how often each component is tried elsewhere
    sweeps: int = 3


DEFAULTS = Defaults()
