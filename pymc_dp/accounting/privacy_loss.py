"""Epsilon of Gaussian releases from the distribution of the privacy loss itself."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pymc_dp.accounting.accountant import Deltas
from pymc_dp.accounting.neighbours import Neighbours
from pymc_dp.accounting.plan import Plan
from pymc_dp.accounting.release import Release

# The PLD accountant rounds privacy losses up to a grid; long plans need a finer one, and plans of
# many kinds of releases, each with a distribution of its own, would take minutes on it.
_GRID, _FINE_GRID, _LONG_PLAN = 1e-4, 2e-5, 100_000
COARSE_GRID, MANY_KINDS = 1e-3, 16

SMALLEST_PLD_DELTA = 1e-10  # the PLD accountant understated epsilon at delta = 1e-13


def by_losses(sums: Plan, deltas: Deltas, grid: float | None = None) -> Sequence[float]:
    """Compose privacy loss distributions by dp-accounting; ``grid`` is the step of the losses."""
    from dp_accounting import get_epsilon_gaussian

    if sums.all_full:
        noise = sum(r.count / sums.noise(r) ** 2 for r in sums.releases) ** -0.5
        return [get_epsilon_gaussian(noise, delta) for delta in deltas]
    loss = _loss(sums, grid or _grid(sums.releases))
    return [loss.get_epsilon_for_delta(delta) for delta in deltas]


# A result asks for it at its own delta and at others, and for that of the first releases.
@lru_cache(maxsize=MANY_KINDS)
def _loss(sums: Plan, grid: float) -> Any:
    """Compose the privacy loss of all releases, as dp-accounting's own accountant does."""
    from dp_accounting.pld.privacy_loss_distribution import identity

    kinds = len(sums.releases)
    before = sums.releases[:-1] if kinds <= MANY_KINDS else ()
    total = _loss(replace(sums, releases=before), grid) if before else identity(grid)
    of_one = _of_few_kinds if kinds <= MANY_KINDS else _of_many_kinds
    for release in sums.releases[len(before) :]:
        noise, rate, times = release.noise_multiplier, sums.rate(release), release.count
        if rate == 1:  # the sum of Gaussian releases is one of them
            one = of_one(noise / math.sqrt(times), rate, sums.neighbours, grid)
        else:
            one = of_one(noise, rate, sums.neighbours, grid).self_compose(times)
        total = total.compose(one)
    return total


def _loss_of_one(noise: float, rate: float, neighbours: Neighbours, grid: float) -> Any:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(
        noise,
        value_discretization_interval=grid,
        sampling_prob=rate,
        neighboring_relation=neighbours.relation,
    )


# Of many kinds, for which the grid is coarse, a distribution is small.
_of_few_kinds = lru_cache(maxsize=MANY_KINDS)(_loss_of_one)
_of_many_kinds = lru_cache(maxsize=256)(_loss_of_one)


def _grid(releases: Sequence[Release]) -> float:
    if sum(release.count for release in releases) >= _LONG_PLAN:
        return _FINE_GRID
    return _GRID if len(releases) <= MANY_KINDS else COARSE_GRID


def by_central_limit(sums: Plan, deltas: Deltas) -> Sequence[float]:
    """Take the limit of long compositions (Bu et al. 2020): a first guess, and no upper bound."""
    from dp_accounting import get_epsilon_gaussian

    squares = sum(
        r.count * sums.rate(r) ** 2 * math.expm1(min(sums.noise(r) ** -2, 50.0))
        for r in sums.releases
    )
    return [get_epsilon_gaussian(squares**-0.5, delta) for delta in deltas]
