"""Releases: what a method asks for, what a plan grants, and the mechanism that makes them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pymc_dp.accounting.arguments import MOST
from pymc_dp.accounting.neighbours import Neighbours
from pymc_dp.sampling.samplers import Full, Sampler, sampler_named

if TYPE_CHECKING:
    from dp_accounting import DpEvent

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
