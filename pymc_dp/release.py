"""One kind of release, and what it is to an accountant."""

from __future__ import annotations

import dataclasses
import math
import operator
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_dp.errors import PrivacyWarning
from pymc_dp.sampling import SUPPORTED, sampled, unknown_sampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# How far two neighbouring data sets can move a clipped sum, in units of clip_norm.
SENSITIVITY = {"add_remove": 1.0, "zero_out": 1.0, "replace_one": 2.0}

# A noisy sum, or one draw from a tempered posterior.
MECHANISMS = ("gaussian", "exponential")

# Noise over sensitivity: refused below the first, warned about below the second.
NOISE_FLOOR = 0.3
LOW_NOISE = 0.5


@dataclass(frozen=True)
class Release:
    """One kind of noisy sum, and how often it is made.

    Parameters
    ----------
    name : str
        What is released, such as ``"score"``.
    sampling : {"poisson", "fixed_size", "full"}
        How the rows of a batch are drawn.
    sample_rate : float
        The probability of a record to be in a batch, in (0, 1]; 1 for ``"full"``.
    clip_norm : float
        The largest L2 norm of one record's contribution. Infinite only without noise.
    noise_multiplier : float
        The noise's standard deviation over ``clip_norm``; 0 for no noise and no privacy.
    count : int
        How many times it is released, at least 1.
    mechanism : {"gaussian", "exponential"}
        What is released: a noisy sum, or one draw from the posterior whose log likelihoods,
        clipped to ``clip_norm`` each, are divided by ``temperature``.

    Raises
    ------
    ValueError
        A value is out of its range.

    Notes
    -----
    **Privacy.** Each of the ``count`` releases is the sum of the clipped contributions of a
    fresh batch plus Gaussian noise of standard deviation ``noise_multiplier * clip_norm``. An
    exponential one (McSherry and Talwar 2007) is private without delta, as far as its draws are
    exact: a record moves density and normaliser by ``clip_norm / temperature`` each in log (twice
    that under replace-one).

    Examples
    --------
    >>> Release("score", "poisson", 0.1, clip_norm=1.0, noise_multiplier=3.0, count=300).count
    300
    """

    name: str
    sampling: str
    sample_rate: float
    clip_norm: float
    noise_multiplier: float
    count: int
    mechanism: str = "gaussian"

    def __post_init__(self) -> None:
        if self.sampling not in SUPPORTED:
            raise ValueError(unknown_sampling(self.sampling))
        if not 0 < self.sample_rate <= 1:
            raise ValueError(f"{self._says('sample_rate')}: it must be above 0 and at most 1.")
        if self.sampling == "full" and self.sample_rate != 1:
            raise ValueError(
                f"{self._says('sample_rate')}, but sampling='full' takes every row: "
                "give sample_rate=1, or sampling='poisson'."
            )
        if not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(f"{self._says('noise_multiplier')}: it must be finite and at least 0.")
        if not self.clip_norm > 0:
            raise ValueError(f"{self._says('clip_norm')}: it must be above 0.")
        if math.isinf(self.clip_norm) and self.noise_multiplier > 0:
            raise ValueError(
                f"{self._says('clip_norm')}: noise can only hide a contribution of bounded norm, "
                "so give a finite clip_norm, or noise_multiplier=0 for a fit without privacy."
            )
        if operator.index(self.count) < 1:
            raise ValueError(f"{self._says('count')}: it must be at least 1.")
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"{self._says('mechanism')}: use one of {list(MECHANISMS)}.")
        if self.mechanism == "exponential" and self.sampling != "full":
            raise ValueError(f"{self._says('sampling')}, but a posterior draw reads every row.")

    @property
    def temperature(self) -> float:
        """What an exponential release divides log likelihoods by; below 1 it would sharpen."""
        return max(1.0, self.noise_multiplier * self.clip_norm) if self.noise_multiplier else 1.0

    def _says(self, field: str) -> str:
        return f"Release {self.name!r} has {field}={getattr(self, field)!r}"


def check_count(name: str, value: Any) -> None:
    """Refuse what is not a whole number of at least 1."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}={value!r} must be a whole number, at least 1.")


def scale(releases: tuple[Release, ...], factor: float) -> tuple[Release, ...]:
    """Multiply every noise multiplier by ``factor``."""
    return tuple(
        dataclasses.replace(r, noise_multiplier=r.noise_multiplier * factor) for r in releases
    )


def with_shares(
    before: tuple[Release, ...], shares: Mapping[Release, float]
) -> tuple[Release, ...]:
    """Append releases, with the noise that gives each its share of the whole budget.

    As if batches of a share q of the records cost q squared of what all records cost.

    >>> first = Release("a", "full", 1.0, 1.0, noise_multiplier=1.0, count=1)
    >>> second = Release("b", "full", 1.0, 1.0, noise_multiplier=1.0, count=4)
    >>> with_shares((first,), {second: 0.5})[1].noise_multiplier  # each costs a quarter of a's
    2.0
    """
    spent = sum(r.count * (r.sample_rate / r.noise_multiplier) ** 2 for r in before)
    whole = spent / (1 - sum(shares.values()))
    added = [
        dataclasses.replace(r, noise_multiplier=(r.count / (share * whole)) ** 0.5)
        for r, share in shares.items()
    ]
    return (*before, *added)


def unit_noise(release: Release, neighbours: str) -> float:
    """Noise over the sensitivity that the neighbours give to a clipped sum."""
    return release.noise_multiplier / SENSITIVITY[neighbours]


def pure_epsilon(release: Release, neighbours: str) -> float:
    """Epsilon of one exponential release whose draw is exact; infinite without noise.

    >>> one = Release("draw", "full", 1.0, 5.0, 2.0, 1, "exponential")  # temperature 10
    >>> pure_epsilon(one, "add_remove"), pure_epsilon(one, "replace_one")
    (1.0, 2.0)
    """
    noise = unit_noise(release, neighbours)
    return 2 / noise if noise else math.inf


def compose(
    releases: tuple[Release, ...], neighbours: str, accountant: str, num_records: int | None
) -> DpEvent:
    """Compose releases into one dp-accounting event.

    The PLD accountant doubles the sensitivity under replace-one by itself, so it is given
    noise over ``clip_norm``; the RDP accountants do not, and are given noise over sensitivity.
    """
    import dp_accounting as dp

    events = []
    for r in releases:
        if r.mechanism == "exponential":
            # no pure mechanism says more than randomised response of its epsilon
            share = 2 / (1 + math.exp(min(pure_epsilon(r, neighbours), 700.0)))
            event: DpEvent = dp.RandomizedResponseDpEvent(share, 2)
        else:
            noise = r.noise_multiplier if accountant == "pld" else unit_noise(r, neighbours)
            event = sampled(r.sampling, r.sample_rate, dp.GaussianDpEvent(noise), num_records)
        events.append(dp.SelfComposedDpEvent(event, int(r.count)))
    return dp.ComposedDpEvent(events)


def check_noise(release: Release, neighbours: str) -> None:
    """Refuse noise that the accountants cannot grip; warn where it protects little."""
    if release.mechanism == "exponential":
        return
    noise = unit_noise(release, neighbours)
    says = (
        f"Release {release.name!r} has noise_multiplier={release.noise_multiplier:.4g}, which is "
        f"{noise:.4g} of its sensitivity under neighbours={neighbours!r}"
    )
    if 0 < noise < NOISE_FLOOR * (1 - 1e-9):
        raise ValueError(
            f"{says}: the accountants lose their grip below {NOISE_FLOOR}. Give more noise (a "
            "smaller epsilon), or noise_multiplier=0 for a fit without privacy."
        )
    if 0 < noise < LOW_NOISE:
        warnings.warn(
            f"{says}: below {LOW_NOISE} one release says much about whether a record is in its "
            "batch. Give more noise (a smaller epsilon, or fewer releases).",
            PrivacyWarning,
            stacklevel=4,
        )
