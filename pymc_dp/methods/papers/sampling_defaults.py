"""Tuned constants of the methods whose releases are posterior draws."""

from typing import NamedTuple


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    # dp_sgld
    releases: int = 1000
    # number of records where it is not declared: a step too short mixes slowly, one too long
    # diverges
    nominal_records: int = 10_000
    # steps fall like t^(-1/3), the rate of least error (Teh, Thiery and Vollmer 2016), at this pace
    decay_power: float = 1 / 3
    decay_phases: int = 10
    burn_in: float = 0.5
    # dp_ops: log densities of about unit scale; a normal outcome reaches -5 at three standard
    # deviations
    bound_per_outcome: float = 5.0
    transitions: int = 1000
    least_transitions: int = 100


DEFAULTS = Defaults()
