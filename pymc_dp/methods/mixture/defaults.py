"""Tuned constants of the histograms and the sketch that mixtures start from."""

from typing import NamedTuple


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    # of two histograms: their share of the budget, bins and outcomes tried in each, and counts so
    # many standard deviations of the noise above 0 that are of records
    histogram_share: float = 0.1
    bins: int = 64
    points: int = 4
    visible_bin: float = 2.0
    # draws of the prior, outcomes of each, and those of which latents are improved
    prior_draws: int = 300
    outcomes: int = 20
    descents: int = 6
    as_low: float = 1.0  # log posterior densities that differ by so much are as likely
    share: float = 0.2  # of the budget, for the sketch
    number_scale: float = 0.3  # the number of records in a record's vector, whose norm is 1
    # frequencies for each unknown number, and at least
    frequencies: int = 4
    least_frequencies: int = 64
    longest: float = 1.5  # the longest frequency, in units of a record's standard deviation
    # places that are tried at once for a component, for each of its latents and one more
    places: int = 100
    sweeps: int = 3  # how often each component is tried elsewhere


DEFAULTS = Defaults()
