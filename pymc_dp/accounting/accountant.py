"""What an accountant is: a proof for some plans, and what these cost.

Every number is an upper bound: it errs towards a larger epsilon.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pymc_dp.accounting.neighbours import Neighbours
from pymc_dp.accounting.plan import Plan
from pymc_dp.accounting.release import GAUSSIAN, Release
from pymc_dp.sampling.samplers import FixedSize, Full, Poisson, Sampler

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Deltas = tuple[float, ...]
Pairs = frozenset[tuple[type[Sampler], Neighbours]]

# noise over sensitivity below which no accountant was checked: where batches are sampled, and where
# all of them hold all records, so that releases cost what one Gaussian mechanism does (closed form)
NOISE_FLOOR, FULL_FLOOR = 0.3, 1e-4

FULL: Pairs = frozenset((Full, neighbours) for neighbours in Neighbours)
POISSON: Pairs = frozenset({(Poisson, Neighbours.ADD_REMOVE), (Poisson, Neighbours.ZERO_OUT)})
POISSON_REPLACED: Pairs = frozenset({(Poisson, Neighbours.REPLACE_ONE)})
FIXED_SIZE: Pairs = frozenset({(FixedSize, Neighbours.REPLACE_ONE)})


def no_warning(plan: Plan, deltas: Deltas) -> None:
    """Warn of nothing."""


class Accountant(NamedTuple):
    """What turns a plan into epsilon."""

    name: str
    of_sums: Callable[[Plan, Deltas], Sequence[float]]  # of Gaussian releases, at each delta
    proved: Pairs = frozenset()  # what there is a proof for
    package: str = "dp-accounting"
    smallest_delta: float = 0.0
    # whether the library itself doubles the sensitivity under replace-one neighbours
    doubles: bool = False
    # warns where a better choice of settings would find a smaller number
    warn_if_loose: Callable[[Plan, Deltas], None] = no_warning

    def __repr__(self) -> str:
        return f"Accountant({self.name!r})"

    def check(self, plan: Plan) -> None:
        """Refuse a plan that no proof covers, and say what one does."""
        floor = FULL_FLOOR if plan.all_full else NOISE_FLOOR
        for release in plan.releases:
            if (type(release.sampler), plan.neighbours) not in self.proved:
                raise ValueError(_no_proof(self, release.sampler, plan.neighbours))
            _check_noise(release, plan.neighbours, floor)
        self.check_delta(plan.delta)

    def check_delta(self, delta: float) -> None:
        """Refuse a delta at which the accountant's number would not be a guarantee."""
        if not 0 < delta < 1:
            raise ValueError(f"delta={delta!r} must lie strictly between 0 and 1, such as 1e-5.")
        if delta < self.smallest_delta:
            raise ValueError(
                f"delta={delta!r} is too small for accountant={self.name!r}, which understates "
                f"epsilon below {self.smallest_delta}: give a larger delta, or accountant='rdp'."
            )

    def epsilons(self, plan: Plan, deltas: Deltas) -> np.ndarray:
        """Return the epsilon of a plan at each of several deltas; warn where it is loose."""
        self.check(plan)
        for delta in deltas:
            self.check_delta(delta)
        found = self.estimates(plan, deltas)
        if np.isfinite(found).all():
            self.warn_if_loose(plan.merged(), deltas)
        return found

    def estimates(self, plan: Plan, deltas: Deltas) -> np.ndarray:
        """Return the same without a check: it is a bound for plans that `check` lets pass alone."""
        return np.array(_cached(self, plan.merged(), deltas))

    def event(self, plan: Plan) -> DpEvent:
        """Compose the releases of a plan into one event of dp-accounting."""
        return event_of(plan, self.doubles)


@functools.lru_cache(maxsize=1024)
def _cached(accountant: Accountant, plan: Plan, deltas: Deltas) -> Sequence[float]:
    if any(release.noise_multiplier == 0 for release in plan.releases):
        return (math.inf,) * len(deltas)
    others = [release for release in plan.releases if release.mechanism != GAUSSIAN]
    pure = sum(release.count * release.pure_epsilon(plan.neighbours) for release in others)
    sums = gaussian_part(plan)
    found: Sequence[float] = [0.0] * len(deltas)
    if sums.releases:
        found = accountant.of_sums(sums, deltas)
    # accountants have returned such numbers without an exception: fail closed
    if any(not value >= 0 for value in found):
        raise ArithmeticError(
            f"accountant={accountant.name!r} returned epsilon={found}, which cannot be: give "
            "another accountant, and report this plan."
        )
    return tuple(float(pure + value) for value in found)


def event_of(plan: Plan, doubles: bool) -> DpEvent:
    """Compose the releases of a plan into one event of dp-accounting.

    Its noise is over the clip norm where the library doubles the sensitivity under replace-one
    neighbours by itself, and over the sensitivity where it does not.
    """
    import dp_accounting as dp

    events = []
    for release in plan.releases:
        of_library = doubles and release.mechanism == GAUSSIAN
        noise = release.noise_multiplier if of_library else plan.noise(release)
        of_all = release.mechanism.event(noise)
        event = event_of_batch(release.sampler, of_all, plan.num_records)
        events.append(dp.SelfComposedDpEvent(event, int(release.count)))
    return dp.ComposedDpEvent(events)


def event_of_batch(sampler: Sampler, release: DpEvent, num_records: int | None) -> DpEvent:
    """Describe a release of one batch; a batch of every row is not amplified."""
    import dp_accounting as dp

    if isinstance(sampler, Full) or sampler.effective_rate(num_records) == 1:
        return release
    if isinstance(sampler, Poisson):
        return dp.PoissonSampledDpEvent(sampler.rate, release)
    if isinstance(sampler, FixedSize) and num_records is not None:
        size = sampler.batch_size(num_records)
        return dp.SampledWithoutReplacementDpEvent(num_records, size, release)
    if isinstance(sampler, FixedSize):
        raise ValueError("Batches of fixed size are amplified only over a known num_records.")
    raise ValueError(f"No event is known for batches drawn by {type(sampler).__name__}.")


def gaussian_part(plan: Plan) -> Plan:
    """Leave out what is no noisy sum."""
    sums = (release for release in plan.releases if release.mechanism == GAUSSIAN)
    return dataclasses.replace(plan, releases=tuple(sums))


def _check_noise(release: Release, neighbours: Neighbours, floor: float) -> None:
    """Refuse noise that is lower than any for which the accountants were checked."""
    noise = release.unit_noise(neighbours)
    if release.mechanism == GAUSSIAN and 0 < noise < floor * (1 - 1e-9):
        raise ValueError(
            f"Release {release.name!r} has noise_multiplier={release.noise_multiplier:.4g}, which "
            f"is {noise:.4g} of its sensitivity under neighbours={neighbours.value!r}: accountants "
            f"are not reliable below {NOISE_FLOOR} if batches are sampled, {FULL_FLOOR} if full: "
            "give more noise (a smaller epsilon), or noise_multiplier=0 for a fit without privacy."
        )


def _no_proof(accountant: Accountant, sampler: Sampler, neighbours: Neighbours) -> str:
    from pymc_dp.accounting.accountants import ACCOUNTANTS  # accountants.py imports this file

    kind = type(sampler)
    proofs = {
        pair: [name for name in sorted(ACCOUNTANTS) if (kind, pair) in ACCOUNTANTS[name].proved]
        for pair in Neighbours
    }
    supported = "; ".join(
        f"neighbours={pair.value!r} with accountant={' or '.join(map(repr, names))}"
        for pair, names in proofs.items()
        if names
    )
    return (
        f"No proof covers sampling={sampler.name!r} under neighbours={neighbours.value!r} with "
        f"accountant={accountant.name!r}. For sampling={sampler.name!r} use {supported}."
    )
