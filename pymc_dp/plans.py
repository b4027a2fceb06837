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
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_dp.accountants import ORDERS, epsilons, merged, renyi, warn_at_end_of_orders
from pymc_dp.errors import PrivacyWarning
from pymc_dp.release import SENSITIVITY, Release, check_noise, compose, scale
from pymc_dp.sampling import check_supported
from pymc_dp.units import spoken

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# The PLD accountant understated epsilon at delta = 1e-13.
SMALLEST_PLD_DELTA = 1e-10


@dataclass(frozen=True)
class Plan:
    """An ordered multiset of releases, with the terms under which they are accounted.

    Parameters
    ----------
    releases : tuple of Release
        In the order in which they are made. A name may occur more than once.
    neighbours : {"add_remove", "zero_out", "replace_one"}
        Which data sets count as neighbours: one record more or less, one record replaced
        by nothing, or one record replaced by another.
    delta : float
        The probability with which epsilon may fail, in (0, 1).
    accountant : {"pld", "rdp", "rdp_dp_accounting"}
        What turns the releases into epsilon.
    num_records : int, optional
        The public number of records; needed by fixed-size sampling, where it must be the
        true one, which replace-one neighbours make public.
    unit : str, optional
        The data that say which records belong to one person, all of whose records neighbours
        differ in; without it the unit is the record.

    Raises
    ------
    ValueError
        No proof covers the sampling, neighbours and accountant together, or a value is out
        of its range, or the noise is below the accountants' grip.

    Warns
    -----
    PrivacyWarning
        The noise is so low, or delta so large, that the guarantee says little.

    Notes
    -----
    **Privacy.** Under add-remove and zero-out neighbours the L2 sensitivity of a release is
    its ``clip_norm``; under replace-one it is twice that. ``noise_multiplier`` stays the
    noise over ``clip_norm`` in every case.

    Examples
    --------
    >>> score = Release("score", "poisson", 0.1, 1.0, noise_multiplier=3.0, count=300)
    >>> plan = Plan((score,), neighbours="add_remove", delta=1e-5, accountant="pld")
    >>> round(plan.epsilon(), 2)
    2.49
    """

    releases: tuple[Release, ...]
    neighbours: str
    delta: float
    accountant: str
    num_records: int | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "releases", tuple(self.releases))
        if self.neighbours not in SENSITIVITY:
            raise ValueError(
                f"neighbours={self.neighbours!r} is unknown: use 'add_remove', 'zero_out' or "
                "'replace_one'."
            )
        for release in self.releases:
            check_supported(release.sampling, self.neighbours, self.accountant)
            check_noise(release, self.neighbours)
        check_delta(self.delta, self.accountant)
        _check_num_records(self)
        _check_unit(self)

    @property
    def total(self) -> int:
        """The number of releases, each counted as often as it is made."""
        return sum(release.count for release in self.releases)

    @property
    def assumes_exact_draws(self) -> bool:
        """Whether epsilon holds only if a sampler is exact, which no one can check."""
        return any(release.mechanism == "exponential" for release in self.releases)

    def event(self) -> DpEvent:
        """Describe the plan as dp-accounting's event, in the units that its accountant reads."""
        return compose(self.releases, self.neighbours, self.accountant, self.num_records)

    def epsilon(self, delta: float | None = None) -> float:
        """Spend of the whole plan at one delta, the plan's own by default.

        Notes
        -----
        **Privacy.** Infinite if any release is made without noise. Stopping early refunds
        nothing: this is what a fit claims, however many of its releases it made.
        """
        return float(self.epsilon_profile([self.delta if delta is None else delta])[0])

    def epsilon_profile(self, deltas: Iterable[float]) -> np.ndarray:
        """Spend of the whole plan at each of several deltas, from one pass of the accountant.

        Parameters
        ----------
        deltas : iterable of float, length k
            Where to read epsilon.

        Returns
        -------
        ndarray of float, shape (k,)

        Warns
        -----
        PrivacyWarning
            The best Rényi order is at an end of the list, so epsilon is looser than it need be.
        """
        deltas = tuple(map(float, deltas))
        for delta in deltas:
            check_delta(delta, self.accountant)
        terms = (merged(self.releases), self.neighbours, self.accountant, self.num_records)
        found = epsilons(*terms, deltas)
        if self.accountant == "rdp_dp_accounting" and np.isfinite(found).all():
            warn_at_end_of_orders(terms[0], self.neighbours, self.num_records, deltas)
        return np.array(found, dtype=float)

    def renyi(self, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
        """Return the Rényi divergence of the whole plan at each order, shape (orders,).

        Raises
        ------
        ValueError
            No proof covers the plan's sampling and neighbours in Rényi divergences.
        """
        for release in self.releases:
            check_supported(release.sampling, self.neighbours, "rdp_dp_accounting")
        return renyi(self.releases, self.neighbours, self.num_records, orders)

    def scaled(self, factor: float) -> Plan:
        """Return the same plan with every noise multiplier times ``factor``."""
        return dataclasses.replace(self, releases=scale(self.releases, factor))

    def prefix(self, k: int) -> Plan:
        """Return the plan of the first ``k`` releases, for the spend along a fit."""
        if not 0 <= k <= self.total:
            raise ValueError(f"k={k} is not in reach: the plan holds {self.total} releases.")
        kept, left = [], k
        for release in self.releases:
            count = min(left, release.count)
            if count > 0:
                kept.append(dataclasses.replace(release, count=count))
            left -= count
        return dataclasses.replace(self, releases=tuple(kept))

    def to_json(self) -> str:
        """Write settings and event as a JSON string; an infinite clip norm becomes ``"inf"``."""
        settings = dataclasses.asdict(self)
        settings["event"] = self.event().to_named_tuple()
        return json.dumps(_plain(settings), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Rebuild a plan from what `to_json` wrote.

        >>> plan = Plan((Release("score", "full", 1.0, 1.0, 3.0, 2),), "zero_out", 1e-5, "pld")
        >>> Plan.from_json(plan.to_json()) == plan
        True
        """
        settings = json.loads(text)
        settings.pop("event")
        releases = [
            Release(**told | {"clip_norm": float(told["clip_norm"])})
            for told in settings.pop("releases")
        ]
        return cls(tuple(releases), **settings)


def check_delta(delta: float, accountant: str) -> None:
    """Refuse a delta at which the accountant's number would not be a guarantee."""
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta!r} must lie strictly between 0 and 1, such as 1e-5.")
    if accountant == "pld" and delta < SMALLEST_PLD_DELTA:
        raise ValueError(
            f"delta={delta!r} is too small for accountant='pld', which understates epsilon below "
            f"{SMALLEST_PLD_DELTA}: give a larger delta, or accountant='rdp'."
        )


def _check_num_records(plan: Plan) -> None:
    num_records = plan.num_records
    if num_records is None:
        if any(release.sampling == "fixed_size" for release in plan.releases):
            raise ValueError(
                "sampling='fixed_size' needs num_records, the public number of records, to know "
                "what share of them a batch holds."
            )
    elif operator.index(num_records) < 1:
        raise ValueError(f"num_records={num_records!r} must be at least 1.")
    elif plan.delta * num_records >= 1:
        warnings.warn(
            f"delta={plan.delta:g} is not below 1/num_records: a method that publishes one whole "
            "record at random would be allowed it. Give a smaller delta.",
            PrivacyWarning,
            stacklevel=4,
        )


def _check_unit(plan: Plan) -> None:
    if plan.unit is None:
        return
    if spoken(plan.unit) == "record":
        raise ValueError(
            f"unit={plan.unit!r} reads like the record, which a fit protects without unit=: leave "
            "it out, or give the data that say which records belong together another name."
        )
    if any(release.sampling == "fixed_size" for release in plan.releases):
        raise ValueError(
            f"sampling='fixed_size' draws a number of records, but unit={plan.unit!r} draws "
            "persons: use sampling='poisson' or 'full'."
        )
    if any(release.mechanism == "exponential" for release in plan.releases):
        raise ValueError(
            "Posterior draws bound what one record says, not a unit of several: leave unit= out, "
            "or use a method that releases noisy sums, such as 'dp_advi'."
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
