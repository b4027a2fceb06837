"""What a fit may release, fixed before it starts: the plan.

A plan couples how rows are sampled, how a record's contribution is clipped, how much noise
is added and how often. The accountant reads the plan and the wall obeys it, so what is
claimed and what is done cannot drift apart.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_dp.accounting.neighbours import Neighbours, unit_label
from pymc_dp.accounting.release import GAUSSIAN, Release, ReleaseSpec, with_noise
from pymc_dp.sampling.samplers import FixedSize

if TYPE_CHECKING:
    from pymc_dp.accounting.accountant import Accountant

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
    # public; needed by fixed-size sampling, where it must be the true number of records, which
    # replace-one neighbours make public
    num_records: int | None = None
    # the data that say which records belong to one person, in all of whose records neighbours
    # differ; without it the unit is the record
    unit: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "releases", tuple(self.releases))
        self.accountant.check(self)
        _check_num_records(self)
        _check_unit(self)

    @property
    def total(self) -> int:
        """The number of releases, each counted as often as it is made."""
        return sum(release.count for release in self.releases)

    @property
    def all_full(self) -> bool:
        """Whether every batch holds every record."""
        return all(self.rate(release) == 1 for release in self.releases)

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

    @property
    def needs_exact_number(self) -> bool:
        """Whether ``num_records`` must be the true number of records."""
        return any(isinstance(release.sampler, FixedSize) for release in self.releases)

    def rate(self, release: Release) -> float:
        """Rate at which a record is really drawn for a release."""
        return release.sampler.effective_rate(self.num_records)

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
        from pymc_dp.accounting.accountants import RDP_DP_ACCOUNTING  # which read plans
        from pymc_dp.accounting.renyi import ORDERS, divergences

        RDP_DP_ACCOUNTING.check(self)
        return divergences(self, ORDERS if orders is None else orders)

    def granting(self, specs: Sequence[ReleaseSpec], noise_multiplier: float) -> Plan:
        """Return a plan of these terms for the releases that a method asks for.

        ``noise_multiplier`` is that of the releases without a share of their own.
        """
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


def _check_num_records(plan: Plan) -> None:
    if plan.num_records is None:
        if plan.needs_exact_number:
            raise ValueError(
                "sampling='fixed_size' needs num_records, the public number of records, to know "
                "what share of them a batch holds."
            )
    elif operator.index(plan.num_records) < 1:
        raise ValueError(f"num_records={plan.num_records!r} must be at least 1.")


def _check_unit(plan: Plan) -> None:
    if plan.unit is None:
        return
    if unit_label(plan.unit) == "record":
        raise ValueError(
            f"unit={plan.unit!r} reads like the record, which a fit protects without unit=: leave "
            "it out, or give the data that say which records belong together another name."
        )
    if plan.needs_exact_number:
        raise ValueError(
            f"sampling='fixed_size' draws a number of records, but unit={plan.unit!r} draws "
            "persons: use sampling='poisson' or 'full'."
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
