"""What a fit may release, fixed before it starts: the plan.

A plan couples how rows are sampled, how a record's contribution is clipped, how much noise
is added and how often. The accountant reads the plan and the wall obeys it, so what is
claimed and what is done cannot drift apart.

In the order of this file: checks of a caller's numbers; which data sets count as neighbours, and
how far they can move a clipped sum; releases (what a method asks for, what a plan grants, and the
mechanism that makes them); the plan itself.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from pymc_dp.sampling.samplers import Full, Sampler, sampler_named

if TYPE_CHECKING:
    from dp_accounting import DpEvent, NeighboringRelation

    from pymc_dp.accounting.accountants import Accountant

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


CODE_SUFFIX = re.compile(r"_(id|idx|index|code)$")


class Neighbours(Enum):
    """One record more or less, one replaced by nothing, or one replaced by another.

    >>> Neighbours("replace_one").sensitivity
    2.0
    """

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
        from dp_accounting import NeighboringRelation as Relation

        return {
            Neighbours.ADD_REMOVE: Relation.ADD_OR_REMOVE_ONE,
            Neighbours.ZERO_OUT: Relation.REPLACE_SPECIAL,
            Neighbours.REPLACE_ONE: Relation.REPLACE_ONE,
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
    return "record" if unit is None else CODE_SUFFIX.sub("", unit)


SMALLEST_CLIP_NORM = 1e-12  # Below, clipped vectors are so short that their entries round.


class Mechanism(NamedTuple):
    """One mechanism; its noise is over the sensitivity of what it releases."""

    name: str
    event: Callable[[float], DpEvent]  # noise -> one release, as dp-accounting describes it
    # noise -> epsilon of one release without a delta; infinite where there is none
    pure_epsilon: Callable[[float], float]
    # release -> what a result says of it in place of sums and noise
    about: Callable[[Release], dict[str, Any]]


def _gaussian_event(noise: float) -> DpEvent:
    import dp_accounting as dp

    return dp.GaussianDpEvent(noise)


# a sum of clipped contributions plus Gaussian noise: the one mechanism with a proof. A plan that
# holds another claims no epsilon
GAUSSIAN = Mechanism("gaussian", _gaussian_event, lambda noise: math.inf, lambda release: {})


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
            raise ValueError(f"{_field(self, 'share')}: it must lie between 0 and 1.")


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
            raise ValueError(
                f"{_field(self, 'noise_multiplier')}: it must be finite and at least 0."
            )
        _check(self)
        if math.isinf(self.clip_norm) and self.noise_multiplier > 0:
            raise ValueError(
                f"{_field(self, 'clip_norm')}: noise can only hide a contribution of bounded norm, "
                "so give a finite clip_norm, or noise_multiplier=0 for a fit without privacy."
            )

    def unit_noise(self, neighbours: Neighbours) -> float:
        """Noise over sensitivity."""
        return self.noise_multiplier / neighbours.sensitivity

    def pure_epsilon(self, neighbours: Neighbours) -> float:
        """Epsilon of one release without a delta; infinite where there is none."""
        return self.mechanism.pure_epsilon(self.unit_noise(neighbours))

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


def relative_noise(specs: Sequence[ReleaseSpec]) -> list[float]:
    """Return noise multipliers that give each release its share, 1 for those without a share.

    As if batches of a share q of the records cost q squared of what all records cost.

    >>> one = ReleaseSpec("a", Full(), clip_norm=1.0, count=1)
    >>> four = ReleaseSpec("b", Full(), clip_norm=1.0, count=4, share=0.5)
    >>> relative_noise([one, four])  # each of the four costs a quarter of the one
    [1.0, 2.0]
    """
    rest = sum(spec.count * spec.sampler.rate**2 for spec in specs if spec.share is None)
    left = 1 - sum(spec.share or 0.0 for spec in specs)
    if specs and not (rest and left > 0):
        raise ValueError("The shares of releases leave nothing to those without a share.")
    return [
        1.0
        if spec.share is None
        else spec.sampler.rate * (spec.count / (spec.share * (rest / left))) ** 0.5
        for spec in specs
    ]


def with_noise(specs: Sequence[ReleaseSpec], noise_multiplier: float) -> tuple[Release, ...]:
    """Grant releases their noise, given that of those without a share."""
    return tuple(
        Release(s.name, s.sampler, s.clip_norm, noise_multiplier * noise, s.count, s.mechanism)
        for s, noise in zip(specs, relative_noise(specs), strict=True)
    )


def _check(release: ReleaseSpec | Release) -> None:
    if not release.clip_norm >= SMALLEST_CLIP_NORM:
        raise ValueError(
            f"{_field(release, 'clip_norm')}: it must be at least {SMALLEST_CLIP_NORM}, so that "
            "rounding cannot carry a record above it. Give data in other units."
        )
    if not 1 <= operator.index(release.count) <= MOST:
        raise ValueError(f"{_field(release, 'count')}: it must be at least 1, and at most {MOST}.")
    if release.mechanism != GAUSSIAN and not isinstance(release.sampler, Full):
        raise ValueError(f"{_field(release, 'sampler')}, but only sums are made of some rows.")


def _field(release: ReleaseSpec | Release, field: str) -> str:
    return f"Release {release.name!r} has {field}={getattr(release, field)!r}"


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
    >>> from pymc_dp.sampling.samplers import Poisson
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
        if self.num_records is not None and operator.index(self.num_records) < 1:
            raise ValueError(f"num_records={self.num_records!r} must be at least 1.")
        _check_unit(self)

    @property
    def total(self) -> int:
        """The number of releases, each counted as often as it is made."""
        return sum(release.count for release in self.releases)

    @property
    def all_full(self) -> bool:
        """Whether every batch holds every record."""
        return all(release.sampler.rate == 1 for release in self.releases)

    @property
    def rho(self) -> float | None:
        """What it costs in zero-concentrated DP; None where batches are sampled."""
        if not self.all_full:
            return None
        return sum(release.count / (2 * self.noise(release) ** 2) for release in self.releases)

    @property
    def all_sums(self) -> bool:
        """Whether every release is a noisy sum: of nothing else an epsilon is claimed."""
        return all(release.mechanism == GAUSSIAN for release in self.releases)

    def noise(self, release: Release) -> float:
        """Noise of a release over its sensitivity."""
        return release.unit_noise(self.neighbours)

    def epsilon(self, delta: float | None = None) -> float:
        """Return what the whole plan costs at one delta, the plan's own by default.

        **Privacy.** Infinite if any release is made without noise. Stopping early refunds
        nothing: this is what a fit claims, however many of its releases it made.
        """
        return float(self.epsilon_profile([self.delta if delta is None else delta])[0])

    def epsilon_profile(self, deltas: Iterable[float]) -> np.ndarray:
        """Return what the whole plan costs at each of several deltas, shape (deltas,)."""
        return self.accountant.epsilons(self, tuple(map(float, deltas)))

    def renyi(self, orders: tuple[float, ...] | None = None) -> np.ndarray:
        """Return the Rényi divergence of the whole plan at each order, whatever its accountant."""
        return self.accountant.renyi(self, orders)

    def granting(self, specs: Sequence[ReleaseSpec], noise_multiplier: float) -> Plan:
        """Return a plan of these terms for the releases that a method asks for."""
        return dataclasses.replace(self, releases=with_noise(specs, noise_multiplier))

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
            "event": self.accountant.event(self).to_named_tuple(),
        }
        return json.dumps(_plain(settings), allow_nan=False)


def _check_unit(plan: Plan) -> None:
    if plan.unit is None:
        return
    if unit_label(plan.unit) == "record":
        raise ValueError(
            f"unit={plan.unit!r} reads like the record, which a fit protects without unit=: leave "
            "it out, or give the data that say which records belong together another name."
        )
    if not plan.all_sums:
        raise ValueError(
            "Releases other than noisy sums bound what one record says, not a unit of several: "
            "leave unit= out, or use a method that releases noisy sums, such as 'dp_advi'."
        )


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
