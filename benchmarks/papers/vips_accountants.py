"""One noise, three epsilons: strong composition, the moments accountant, and today's accountant.

The first two are those of the paper on VIPS. They are here for its figures, and for nothing else.
"""

import math
from typing import NamedTuple

from scipy.optimize import brentq

import pymc_dp
from benchmarks.papers.paper_accounting import advanced_composition, moments_accountant

DELTA = 1e-4
STRONG, MOMENTS, TODAY = "strong", "moments", "today"
# of noise multipliers, between which the one of an epsilon is looked for
RANGE = 0.5, 1e3
LABELS = {
    STRONG: "strong composition",
    MOMENTS: "moments accountant",
    TODAY: "today's accountant",
}


class Schedule(NamedTuple):
    """How often sums over random batches are released, and the expected share of a batch."""

    sample_rate: float
    n: int


def column(accountant: str) -> str:
    """Name the column of what an accountant says."""
    return f"epsilon_{accountant}"


def epsilons(noise: float, schedule: Schedule) -> dict[str, float]:
    """Read one noise multiplier with every accountant.

    Returns
    -------
    dict
        By `column`.
    """
    if noise == 0:
        return {column(accountant): math.inf for accountant in LABELS}
    by_accountant = {
        STRONG: strong_composition(noise, schedule),
        MOMENTS: moments(noise, schedule),
        TODAY: pymc_dp.epsilon(noise_multiplier=noise, delta=DELTA, **schedule._asdict()),
    }
    return {column(accountant): value for accountant, value in by_accountant.items()}


def noises(epsilon: float, schedule: Schedule) -> dict[str, float]:
    """Noise multipliers that strong composition and today's accountant ask for."""

    def excess(noise: float) -> float:
        return strong_composition(noise, schedule) - epsilon

    return {
        STRONG: round(brentq(excess, *RANGE), 4),
        TODAY: pymc_dp.calibrate(epsilon=epsilon, delta=DELTA, **schedule._asdict()),
    }


def strong_composition(noise: float, schedule: Schedule) -> float:
    """Epsilon of theorem 3.20 of Dwork and Roth (2014), each release amplified by its sampling."""
    return advanced_composition(sigma=noise, delta=DELTA, **schedule._asdict())


def moments(noise: float, schedule: Schedule) -> float:
    """Epsilon of the moments accountant at integer orders."""
    if noise == 0:
        return math.inf
    return moments_accountant(sigma=noise, delta=DELTA, **schedule._asdict())
