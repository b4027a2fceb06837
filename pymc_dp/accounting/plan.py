"""What a fit may release, fixed before it starts: the plan.

A plan couples how rows are sampled, how a record's contribution is clipped, how much noise is added
and how often. The accountant reads the plan and the wall obeys it, so what is claimed and what is
done cannot differ. First checks, neighbours and releases; then accountants; last the plan itself.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any, ClassVar, NamedTuple, NoReturn

import dp_accounting as dp
import numpy as np
from dp_accounting import DpEvent, NeighboringRelation

MOST = 10**6  # no method makes more releases, nor takes more draws a release
SMALLEST, LARGEST = 1e-60, 1e60  # powers and reciprocals of such numbers are numbers, too


def check_count(name: str, value: Any, most: int = MOST) -> None:
    """Refuse what is not a whole number of at least 1."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 1 <= value <= most:
        raise ValueError(f"{name}={value!r:.40} must be a whole number, from 1 to {most:,}.")


def checked_number(name: str, value: Any) -> float | None:
    """Return a number as a float, and None as it is; refuse anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        hint = ", without quotes" if isinstance(value, str) else ""
        raise TypeError(f"{name}={value!r:.40} must be a number{hint}.")
    size: Any = abs(value if isinstance(value, int) else float(value))
    if 0 < size < SMALLEST or LARGEST < size < math.inf:
        raise ValueError(f"{name}={value!r:.40} must be of a size from {SMALLEST} to {LARGEST}.")
    return float(value)


class Neighbours(Enum):
    """One record more or less, one replaced by nothing, or one replaced by another."""

    ADD_REMOVE = "add_remove"
    ZERO_OUT = "zero_out"
    REPLACE_ONE = "replace_one"

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity of a clipped sum, in units of its clip norm."""
        return 2.0 if self is Neighbours.REPLACE_ONE else 1.0

    @property
    def relation(self) -> NeighboringRelation:
        """What dp-accounting calls them."""
        return {
            Neighbours.ADD_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
            Neighbours.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
            Neighbours.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
        }[self]

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        *names, last = (repr(relation.value) for relation in cls)
        raise ValueError(f"neighbours={value!r} is unknown: use {', '.join(names)} or {last}.")


def unit_label(unit: str | None) -> str:
    """Return the name of the privacy unit, in all of whose records neighbours differ.

    >>> unit_label("subject_id"), unit_label("household"), unit_label(None)
    ('subject', 'household', 'record')
    """
    return "record" if unit is None else re.sub("_(id|idx|index|code)$", "", unit)


@dataclass(frozen=True)
class Poisson:
    """Each row independently.

    **Privacy.** Exact: a Binomial(number, rate) size, then a uniform subset of that size, is the
    same as one independent coin per row. The batch is never cut to a maximum size, which would void
    the amplification. For a guarantee the generator must be cryptographic: the accountants assume
    that its state and the drawn rows, their number included, stay secret.
    """

    name: ClassVar[str] = "poisson"
    rate: float  # the probability of a record to be in a batch, in (0, 1]

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ValueError(f"sample_rate={self.rate!r}: it must be above 0 and at most 1.")

    def sizes(self, rng: np.random.Generator, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """Draw how many rows of one batch lie in each of several partitions."""
        return np.array([int(rng.binomial(int(number), self.rate)) for number in numbers])


@dataclass(frozen=True)
class Full:
    """Every row."""

    name: ClassVar[str] = "full"
    rate: float = 1.0

    def __post_init__(self) -> None:
        if self.rate != 1:
            text = f"sample_rate={self.rate!r}, but sampling='full' takes every row"
            raise ValueError(f"{text}: give sample_rate=1, or sampling='poisson'.")

    def sizes(self, rng: np.random.Generator, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return all rows of each of several partitions."""
        return np.array([int(number) for number in numbers])


Sampler = Poisson | Full
SAMPLERS: dict[str, type[Sampler]] = {kind.name: kind for kind in (Poisson, Full)}


def sampler_named(name: str) -> type[Sampler]:
    """Return the kind of sampler that a caller's ``sampling=`` names."""
    if name not in SAMPLERS:
        text = "Shuffled epochs are not offered: they do not amplify privacy as sampling does."
        raise ValueError(f"sampling={name!r} is unknown: use 'poisson' or 'full'. {text}")
    return SAMPLERS[name]


SMALLEST_CLIP_NORM = 1e-12  # Below, clipped vectors are so short that their entries round.


class Mechanism(NamedTuple):
    """One mechanism; its noise is over the sensitivity of what it releases."""

    name: str
    event: Callable[[float], DpEvent]  # noise -> one release
    # noise -> epsilon of one release without a delta; infinite where there is none
    pure_epsilon: Callable[[float], float]
    # release -> what a result says of it in place of sums and noise
    about: Callable[[Release], dict[str, Any]]


# a sum of clipped contributions plus Gaussian noise: the one mechanism with a proof. A plan that
# holds another claims no epsilon
GAUSSIAN = Mechanism("gaussian", dp.GaussianDpEvent, lambda noise: math.inf, lambda release: {})


@dataclass(frozen=True)
class ReleaseSpec:
    """One kind of release that a method asks for; how noisy it is follows from the budget."""

    name: str
    sampler: Sampler
    clip_norm: float
    count: int
    # of the budget, between 0 and 1; those without one leave what the others take, and have one
    # noise multiplier
    share: float | None = None
    mechanism: Mechanism = GAUSSIAN

    def __post_init__(self) -> None:
        _check(self)
        if self.share is not None and not 0 < self.share < 1:
            _refuse(self, "share", "it must lie between 0 and 1.")


@dataclass(frozen=True)
class Release:
    """One kind of release, and how often it is made.

    **Privacy.** Each of the ``count`` releases is the sum of the clipped contributions of a fresh
    batch plus Gaussian noise of standard deviation ``noise_multiplier * clip_norm``.
    """

    name: str  # what is released, such as "score"
    sampler: Sampler  # how the rows of a batch are drawn
    clip_norm: float  # largest L2 norm of a record's contribution; infinite only without noise
    noise_multiplier: float  # the noise's standard deviation over clip_norm; 0 is not private
    count: int
    mechanism: Mechanism = GAUSSIAN

    def __post_init__(self) -> None:
        if not 0 <= self.noise_multiplier < math.inf:
            _refuse(self, "noise_multiplier", "it must be finite and at least 0.")
        _check(self)
        if math.isinf(self.clip_norm) and self.noise_multiplier > 0:
            why = "give a finite clip_norm, or noise_multiplier=0 for a fit without privacy."
            _refuse(self, "clip_norm", f"noise hides contributions of bounded norm alone: {why}")

    def to_dict(self) -> dict[str, Any]:
        """Return its fields as a result keeps them."""
        return {
            "name": self.name,
            "sampling": self.sampler.name,
            "sample_rate": self.sampler.rate,
            "clip_norm": self.clip_norm,
            "noise_multiplier": self.noise_multiplier,
            "count": self.count,
            "mechanism": self.mechanism.name,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Release:
        """Rebuild a noisy sum from what `to_dict` wrote."""
        if fields["mechanism"] != GAUSSIAN.name:
            raise ValueError(f"mechanism={fields['mechanism']!r} is not that of noisy sums.")
        return cls(
            fields["name"],
            sampler_named(fields["sampling"])(fields["sample_rate"]),
            float(fields["clip_norm"]),
            fields["noise_multiplier"],
            fields["count"],
        )


def _check(release: ReleaseSpec | Release) -> None:
    if not release.clip_norm >= SMALLEST_CLIP_NORM:
        why = "rounding could carry a record above a smaller one. Give data in other units."
        _refuse(release, "clip_norm", f"it must be at least {SMALLEST_CLIP_NORM}: {why}")
    if not 1 <= operator.index(release.count) <= MOST:
        _refuse(release, "count", f"it must be at least 1, and at most {MOST}.")
    if release.mechanism != GAUSSIAN and not isinstance(release.sampler, Full):
        _refuse(release, "sampler", "only sums are made of some rows.")


def _refuse(release: ReleaseSpec | Release, field: str, why: str) -> NoReturn:
    value = getattr(release, field)
    raise ValueError(f"Release {release.name!r} has {field}={value!r}: {why}")


# noise over sensitivity below which no accountant was checked: where batches are sampled, and where
# all of them hold all records, so that releases cost what one Gaussian mechanism does (closed form)
NOISE_FLOOR, FULL_FLOOR = 0.3, 1e-4

Deltas = tuple[float, ...]


class Accountant(NamedTuple):
    """What turns a plan into epsilon."""

    name: str
    of_sums: Callable[[Plan, Deltas], Sequence[float]]  # of Gaussian releases, at each delta
    # what there is a proof for
    proved: frozenset[tuple[type[Sampler], Neighbours]] = frozenset()
    package: str = "dp-accounting"
    smallest_delta: float = 0.0
    # whether the library itself doubles the sensitivity under replace-one neighbours
    doubles: bool = False

    def __repr__(self) -> str:
        return f"Accountant({self.name!r})"

    def check(self, plan: Plan) -> None:
        """Refuse a plan that no proof covers, and say what one does."""
        floor = FULL_FLOOR if plan.all_full else NOISE_FLOOR
        for release in plan.releases:
            if (type(release.sampler), plan.neighbours) not in self.proved:
                raise ValueError(
                    f"No proof covers sampling={release.sampler.name!r} under neighbours="
                    f"{plan.neighbours.value!r} with accountant={self.name!r}: use "
                    "accountant='pld', or sampling='full'."
                )
            noise = plan.noise(release)
            if release.mechanism == GAUSSIAN and 0 < noise < floor * (1 - 1e-9):
                why = (
                    f"it is {noise:.4g} of the sensitivity, and accountants are not reliable below "
                    f"{NOISE_FLOOR} if batches are sampled, {FULL_FLOOR} if full. Give more noise "
                    "(a smaller epsilon), or noise_multiplier=0 for a fit without privacy."
                )
                _refuse(release, "noise_multiplier", why)
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

    def estimates(self, plan: Plan, deltas: Deltas) -> np.ndarray:
        """Return epsilon at each delta, a bound only for plans that `check` accepts."""
        return np.array(_cached(self, plan.merged(), deltas))


@functools.lru_cache(maxsize=1024)
def _cached(accountant: Accountant, plan: Plan, deltas: Deltas) -> Sequence[float]:
    if any(release.noise_multiplier == 0 for release in plan.releases):
        return (math.inf,) * len(deltas)
    if not plan.all_sums:
        pure = [r.count * r.mechanism.pure_epsilon(plan.noise(r)) for r in plan.releases]
        return (sum(pure),) * len(deltas)
    found = accountant.of_sums(plan, deltas) if plan.releases else [0.0] * len(deltas)
    # accountants have returned such numbers without an exception: fail closed
    if any(not value >= 0 for value in found):
        name = f"accountant={accountant.name!r}"
        raise ArithmeticError(f"{name} returned epsilon={found}, which cannot be: give another.")
    return tuple(map(float, found))


def event_of(plan: Plan, doubles: bool) -> DpEvent:
    """Compose the releases of a plan into one event of dp-accounting."""
    events = []
    for release in plan.releases:
        of_library = doubles and release.mechanism == GAUSSIAN
        noise = release.noise_multiplier if of_library else plan.noise(release)
        event = event_of_batch(release.sampler, release.mechanism.event(noise))
        events.append(dp.SelfComposedDpEvent(event, int(release.count)))
    return dp.ComposedDpEvent(events)


def event_of_batch(sampler: Sampler, release: DpEvent) -> DpEvent:
    """Describe a release of one batch; a batch of every row is not amplified."""
    if sampler.rate == 1:
        return release
    if isinstance(sampler, Poisson):
        return dp.PoissonSampledDpEvent(sampler.rate, release)
    raise ValueError(f"No event is known for batches drawn by {type(sampler).__name__}.")


ANY_DELTA = 1e-5  # delta of a plan where its value says nothing


@dataclass(frozen=True)
class Plan:
    """An ordered multiset of releases, with the terms under which they are accounted.

    Making one raises a ValueError if no proof covers the sampling, neighbours and accountant
    together, a value is out of its range, or the noise is too low for the accountants.

    **Privacy.** Under add-remove and zero-out neighbours the L2 sensitivity of a release is its
    ``clip_norm``; under replace-one it is twice that. ``noise_multiplier`` stays the noise over
    ``clip_norm`` in every case.

    >>> from pymc_dp.accounting.accountants import PLD
    >>> score = Release("score", Poisson(0.1), 1.0, noise_multiplier=3.0, count=300)
    >>> plan = Plan((score,), Neighbours.ADD_REMOVE, 1e-5, PLD)
    >>> round(plan.epsilon(), 2)
    2.49
    """

    releases: tuple[Release, ...]  # in the order in which they are made; names may recur
    neighbours: Neighbours
    delta: float  # the probability with which epsilon may fail, in (0, 1)
    accountant: Accountant
    num_records: int | None = None  # public and nominal: never compared with the data
    # the data that say which records belong to one person, in all of whose records neighbours
    # differ; without it the unit is the record
    unit: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "releases", tuple(self.releases))
        self.accountant.check(self)
        if self.num_records is not None:
            check_count("num_records", self.num_records, most=10**15)
        if self.unit is None:
            return
        if unit_label(self.unit) == "record":
            raise ValueError(
                f"unit={self.unit!r} reads like the record, which a fit protects without unit=: "
                "leave it out, or rename the data that say which records belong together."
            )
        if not self.all_sums:
            raise ValueError(
                "Releases other than noisy sums bound what one record says, not a unit of several: "
                "leave unit= out, or use a method that releases noisy sums, such as 'dp_advi'."
            )

    @property
    def total(self) -> int:
        """The number of releases, each counted as often as it is made."""
        return sum(release.count for release in self.releases)

    @property
    def all_full(self) -> bool:
        """Whether every batch holds every record."""
        return all(release.sampler.rate == 1 for release in self.releases)

    @property
    def all_sums(self) -> bool:
        """Whether every release is a noisy sum: of nothing else an epsilon is claimed."""
        return all(release.mechanism == GAUSSIAN for release in self.releases)

    @property
    def event(self) -> DpEvent:
        """All releases as dp-accounting describes them."""
        return event_of(self, self.accountant.doubles)

    def noise(self, release: Release) -> float:
        """Noise of a release over its sensitivity."""
        return release.noise_multiplier / self.neighbours.sensitivity

    def epsilon(self, delta: float | None = None) -> float:
        """Return what the whole plan costs at one delta, the plan's own by default.

        **Privacy.** Infinite if any release is made without noise. Stopping early refunds
        nothing: this is what a fit claims, however many of its releases it made.
        """
        return float(self.epsilon_profile([self.delta if delta is None else delta])[0])

    def epsilon_profile(self, deltas: Iterable[float]) -> np.ndarray:
        """Return what the whole plan costs at each of several deltas."""
        deltas = tuple(map(float, deltas))
        for delta in deltas:
            self.accountant.check_delta(delta)
        return self.accountant.estimates(self, deltas)

    def merged(self) -> Plan:
        """Return what accountants read of the plan: releases that cost the same count as one."""
        counts: Counter[Release] = Counter()
        for release in self.releases:
            counts[dataclasses.replace(release, name="", clip_norm=1.0, count=1)] += release.count
        kinds = (dataclasses.replace(kind, count=count) for kind, count in counts.items())
        return dataclasses.replace(self, releases=tuple(kinds), delta=ANY_DELTA, unit=None)

    def prefix(self, k: int) -> Plan:
        """Return the plan of the first ``k`` releases, for the spend along a fit."""
        if not 0 <= k <= self.total:
            raise ValueError(f"k={k} is out of range: the plan holds {self.total} releases.")
        kept, left = [], k
        for release in self.releases:
            count = min(left, release.count)
            if count > 0:
                kept.append(dataclasses.replace(release, count=count))
            left -= count
        return dataclasses.replace(self, releases=tuple(kept))

    def to_json(self) -> str:
        """Write settings and event as a JSON string; an infinite clip norm becomes ``"inf"``."""
        settings = {
            "releases": [release.to_dict() for release in self.releases],
            "neighbours": self.neighbours.value,
            "delta": self.delta,
            "accountant": self.accountant.name,
            "num_records": self.num_records,
            "unit": self.unit,
            "event": self.event.to_named_tuple(),
        }
        return json.dumps(_plain(settings), allow_nan=False)


def _plain(value: Any) -> Any:
    """Turn named tuples into dicts and numpy's numbers into Python's."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return "inf" if value == math.inf else value
