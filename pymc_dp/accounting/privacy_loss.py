"""Accountants that follow the distribution of the privacy loss itself."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pymc_dp.accounting.accountant import (
    FULL,
    POISSON,
    POISSON_REPLACED,
    Accountant,
    Accounted,
    Deltas,
)
from pymc_dp.accounting.release import Release

# The PLD accountant rounds privacy losses up to a grid; long plans need a finer one, and plans of
# many kinds of releases, each with a distribution of its own, would take minutes on it.
_GRID, _FINE_GRID, _LONG_PLAN = 1e-4, 2e-5, 100_000
COARSE_GRID, MANY_KINDS = 1e-3, 16

# the PLD accountant understated epsilon at delta = 1e-13
SMALLEST_PLD_DELTA = 1e-10


@dataclass(frozen=True)
class Pld(Accountant):
    """Privacy loss distributions, by dp-accounting; ``grid`` is the step of the losses."""

    name = "pld"
    proved = FULL | POISSON | POISSON_REPLACED
    smallest_delta = SMALLEST_PLD_DELTA
    doubles = True

    grid: float | None = None

    def _of_sums(self, sums: Accounted, deltas: Deltas) -> Sequence[float]:
        from dp_accounting import get_epsilon_gaussian, pld

        if sums.all_full:
            noise = sum(r.count / sums.noise(r) ** 2 for r in sums.releases) ** -0.5
            return [get_epsilon_gaussian(noise, delta) for delta in deltas]
        grid = self.grid or _grid(sums.releases)
        accountant = pld.PLDAccountant(sums.neighbours.relation, grid)
        accountant.compose(self.event(sums))
        return [accountant.get_epsilon(delta) for delta in deltas]


def _grid(releases: Sequence[Release]) -> float:
    if sum(release.count for release in releases) >= _LONG_PLAN:
        return _FINE_GRID
    return _GRID if len(releases) <= MANY_KINDS else COARSE_GRID


@dataclass(frozen=True)
class CentralLimit(Accountant):
    """The limit of long compositions (Bu et al. 2020): a first guess, and no upper bound."""

    name = "central limit"

    def _of_sums(self, sums: Accounted, deltas: Deltas) -> Sequence[float]:
        from dp_accounting import get_epsilon_gaussian

        squares = sum(
            r.count * sums.rate(r) ** 2 * math.expm1(min(sums.noise(r) ** -2, 50.0))
            for r in sums.releases
        )
        return [get_epsilon_gaussian(squares**-0.5, delta) for delta in deltas]
