"""Tuned constants of stochastic expectation propagation for linear predictors."""

from typing import NamedTuple


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    step: float = 0.7  # h in lambda <- (1 - h) lambda + h (sum of sites)
    # Gauss-Hermite nodes, Newton steps towards the mode of a tilted density, and how far in psi
    # one of them may go
    nodes: int = 20
    newton_steps: int = 10
    longest_newton_step: float = 3.0
    # standard deviations of a cavity below which derivatives of the likelihood are averaged
    narrow: float = 0.1
    least_tilted: float = 1e-6  # a tilted variance is at least this share of the cavity's


DEFAULTS = Defaults()
