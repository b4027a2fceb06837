"""Tuned constants of stochastic expectation propagation for mixtures."""

from typing import NamedTuple


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    releases: int = 20
    annealed_releases: int = 30  # where only annealing sets components apart
    noiseless_releases: int = 100
    step: float = 0.5  # h in lambda <- (1 - h) lambda + h (sum of sites)
    # clip norm over the typical norm of a record that certainly belongs to one component
    clip_norm: float = 1.0
    # factors of the precisions, of the weights' sites and of the count in a record's vector
    precision_scale: float = 0.5
    weights_scale: float = 1.0
    number_scale: float = 0.3
    # components that start alike are set this far apart, in standard deviations of one record
    separation: float = 0.1
    start_precision: float = 2.5  # precision of the components' means at the start, in records
    # the likelihood's first power, and its increase over a fit, up to 1
    first_temperature: float = 0.1
    warming: float = 1.5
    least_share: float = 0.03  # a component has at least this share of the records
    # the last share of the releases is averaged
    averaged: float = 2 / 3
    averaged_of_annealed: float = 1 / 3
    least_concentration: float = 0.1  # the least concentration of a weight


DEFAULTS = Defaults()
