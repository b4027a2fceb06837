"""The privacy side of a call: what may be spent, under which terms, and the noise that keeps to it.

First the budget of a fit; then the least noise with which a plan, or a search among settings, keeps
to one. Nothing in that search has to be trusted: a plan's accountant states what a result claims.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from dp_accounting import get_epsilon_gaussian
from scipy.optimize import brentq

from pymc_dp.accounting.accountants import (
    COARSE_GRID,
    MANY_KINDS,
    ORDERS,
    PLD,
    RDP,
    RDP_DP_ACCOUNTING,
    Selection,
    accountant_named,
    best_of_runs,
    by_losses,
    divergences,
    epsilon_of_renyi,
)
from pymc_dp.accounting.plan import (
    ANY_DELTA,
    FULL_FLOOR,
    GAUSSIAN,
    NOISE_FLOOR,
    Accountant,
    Deltas,
    Neighbours,
    Plan,
    Release,
    ReleaseSpec,
    Sampler,
    check_count,
    checked_number,
    sampler_named,
)
from pymc_dp.errors import PrivacyWarning

LOW_NOISE = 0.5  # noise over sensitivity that is warned about
# orders that are quick to compute; all together find no larger epsilon of a search among settings
SEARCH = tuple(order for order in ORDERS if order in range(2, 12) or order % 4 == 0)
# the terms of every setting of such a search, and what its method asks for
Asked = Sequence[tuple[Plan, Sequence[ReleaseSpec]]]


@dataclass(frozen=True)
class FitTerms:
    """What the caller of a fit says of its budget, as it was given; `pymc_dp.fit` explains each."""

    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    neighbours: str = "add_remove"
    sampling: str = "poisson"
    accountant: str = "pld"
    num_records: int | None = None
    unit: str | None = None


@dataclass(frozen=True)
class Budget(FitTerms):
    """What a fit may spend: terms that were checked, whose text becomes values here."""

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError("Give exactly one of epsilon= (the budget) and noise_multiplier=.")
        for name in ("epsilon", "delta", "noise_multiplier"):
            object.__setattr__(self, name, checked_number(name, getattr(self, name)))
        if self.epsilon is not None and not self.epsilon > 0:
            raise ValueError(f"epsilon={self.epsilon!r} must be above 0, or infinite for no noise.")
        if self.noise_multiplier is not None and not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(
                f"noise_multiplier={self.noise_multiplier!r} must be finite and at least 0."
            )
        if self.num_records is not None:  # before a method reads it; a plan checks it, too
            check_count("num_records", self.num_records, most=10**15)
        if self.delta is None and self.noisy:
            raise ValueError(
                "delta= is missing, the probability with which epsilon may fail: give one well "
                "below one over the number of records, such as 1e-5."
            )

    @property
    def noisy(self) -> bool:
        """Whether there is any noise: without it a fit is not private."""
        return self.epsilon != math.inf and self.noise_multiplier != 0

    @property
    def sampler(self) -> type[Sampler]:
        """The kind of sampler, whose rate is the method's to choose."""
        return sampler_named(self.sampling)

    @property
    def terms(self) -> Plan:
        """A plan without releases yet."""
        return Plan(
            (),
            Neighbours(self.neighbours),
            ANY_DELTA if self.delta is None else self.delta,
            accountant_named(self.accountant),
            self.num_records,
            self.unit,
        )

    def settle(self, specs: Sequence[ReleaseSpec]) -> Plan:
        """Turn what a method asks for into the plan of a fit, if a proof covers it."""
        if self.epsilon is not None:
            plan = calibrate_plan(self.terms, specs, self.epsilon)
        else:
            plan = granting(self.terms, specs, self.noise_multiplier or 0.0)
        warn_if_weak(plan)
        return plan


def split_terms(settings: Mapping[str, Any]) -> tuple[FitTerms, dict[str, Any]]:
    """Split keywords that go to a fit as they are into its terms and all others."""
    names = {field.name for field in dataclasses.fields(FitTerms)}
    terms = {name: x for name, x in settings.items() if name in names}
    return FitTerms(**terms), {name: x for name, x in settings.items() if name not in names}


def warn_if_weak(plan: Plan) -> None:
    """Warn where the noise is so low, or delta so large, that the guarantee is weak."""
    if plan.num_records is not None and plan.delta * plan.num_records >= 1:
        text = "not below 1/num_records, which allows publishing a record: give a smaller one."
        warnings.warn(f"delta={plan.delta:g} is {text}", PrivacyWarning, stacklevel=4)
    for release in plan.releases:
        noise = plan.noise(release)
        if release.mechanism == GAUSSIAN and 0 < noise < LOW_NOISE:
            text = (
                f"Release {release.name!r} has noise_multiplier={release.noise_multiplier:.4g}, "
                f"{noise:.4g} of its sensitivity: below {LOW_NOISE} one release says much about "
                "whether a record is in its batch. Give more noise, or make fewer releases."
            )
            warnings.warn(text, PrivacyWarning, stacklevel=4)


def relative_noise(specs: Sequence[ReleaseSpec]) -> list[float]:
    """Return noise multipliers that give each release its share, 1 for those without a share.

    As if batches of a share q of the records cost q squared of what all records cost.

    >>> from pymc_dp.accounting.plan import Full
    >>> one = ReleaseSpec("a", Full(), clip_norm=1.0, count=1)
    >>> four = ReleaseSpec("b", Full(), clip_norm=1.0, count=4, share=0.5)
    >>> relative_noise([one, four])  # each of the four costs a quarter of the one
    [1.0, 2.0]
    """
    rest = sum(spec.count * spec.sampler.rate**2 for spec in specs if spec.share is None)
    left = 1 - sum(spec.share or 0.0 for spec in specs)
    if specs and not (rest and left > 0):
        raise ValueError("The shares of releases leave nothing to those without a share.")
    own = [s.share and s.sampler.rate * (s.count / (s.share * (rest / left))) ** 0.5 for s in specs]
    return [noise or 1.0 for noise in own]


def granting(terms: Plan, specs: Sequence[ReleaseSpec], noise_multiplier: float) -> Plan:
    """Grant releases their noise, given that of those without a share."""
    releases = tuple(
        Release(s.name, s.sampler, s.clip_norm, noise_multiplier * noise, s.count, s.mechanism)
        for s, noise in zip(specs, relative_noise(specs), strict=True)
    )
    return dataclasses.replace(terms, releases=releases)


def by_central_limit(sums: Plan, deltas: Deltas) -> Sequence[float]:
    """Take the limit of long compositions (Bu et al. 2020): a first guess, and no upper bound."""
    squares = sum(
        r.count * r.sampler.rate**2 * math.expm1(min(sums.noise(r) ** -2, 50.0))
        for r in sums.releases
    )
    return [get_epsilon_gaussian(squares**-0.5, delta) for delta in deltas]


COARSE_PLD = PLD._replace(of_sums=partial(by_losses, grid=COARSE_GRID))
CENTRAL_LIMIT = Accountant("central limit", by_central_limit)
# Quick accountants are asked first; each gives the next one a bracket, as shares of the noise that
# it found. Only the last one's number counts.
_SEARCH = {
    RDP: ((RDP, 1.0, 2.0),),
    PLD: ((RDP, 1.0, 2.0), (COARSE_PLD, 0.5, 1.0), (PLD, 0.95, 1.0)),
    RDP_DP_ACCOUNTING: ((RDP, 1.0, 2.0), (RDP_DP_ACCOUNTING, 0.9, 1.1)),
}
# Rényi divergences of many kinds of releases take longer than the search that they would shorten.
_SEARCH_MANY = ((CENTRAL_LIMIT, 1.0, 2.0), (PLD, 0.7, 1.4))


def calibrate_plan(terms: Plan, specs: Sequence[ReleaseSpec], epsilon: float) -> Plan:
    """Find the noise with which releases, under the terms of a plan, cost at most ``epsilon``.

    The plan is within two per cent of the target wherever the accountant can get there, or has the
    least noise that accountants are reliable at.

    **Privacy.** The accountant is asked again at that noise, and never exceeds the target. An
    infinite target takes all noise off.
    """
    if math.isinf(epsilon):
        return granting(terms, specs, 0.0)
    if not specs:
        return terms
    if all(spec.mechanism == GAUSSIAN for spec in specs):
        return granting(terms, specs, _noise_of_sums(terms, specs, epsilon))
    # of other releases epsilon falls with one over the noise, which is at least 1
    noise = granting(terms, specs, 1.0).epsilon() / epsilon
    noise = _round_up(max(noise, *(1 / spec.clip_norm for spec in specs)))
    noise = _affordable(lambda x: granting(terms, specs, x).epsilon(), epsilon, noise)
    return granting(terms, specs, noise)


def least_noise(terms: Plan, specs: Sequence[ReleaseSpec]) -> float:
    """Return the noise at which the least noisy release is at the accountants' floor."""
    all_full = all(spec.sampler.rate == 1 for spec in specs)
    return _noise_at(FULL_FLOOR if all_full else NOISE_FLOOR, terms, specs)


def _noise_at(floor: float, terms: Plan, specs: Sequence[ReleaseSpec]) -> float:
    return _round_up(floor * terms.neighbours.sensitivity / min(relative_noise(specs)))


def _noise_of_sums(terms: Plan, specs: Sequence[ReleaseSpec], target: float) -> float:
    def epsilon_by(accountant: Accountant, noise: float) -> float:
        return float(accountant.estimates(granting(terms, specs, noise), (terms.delta,))[0])

    noise, floor = _noise_at(NOISE_FLOOR, terms, specs), least_noise(terms, specs)
    kinds = len(granting(terms, specs, noise).merged().releases)
    many = terms.accountant == PLD and kinds > MANY_KINDS
    for accountant, low, high in _SEARCH_MANY if many else _SEARCH[terms.accountant]:
        epsilon_at = partial(epsilon_by, accountant)
        found = epsilon_at(noise)
        if found > target or (found < 0.995 * target and noise > floor):
            noise = _round_up(_root(epsilon_at, target, low * noise, high * noise, floor))
    return _affordable(partial(epsilon_by, terms.accountant), target, noise)


def calibrate_selection(asked: Asked, runs: float, epsilon: float) -> Selection:
    """Find each setting's noise, so that the whole selection costs at most ``epsilon``."""
    alone = [_noise_of_selection([one], [1.0], runs, epsilon) for one in asked]
    factor = max(1.0, _noise_of_selection(asked, alone, runs, epsilon))
    return Selection(_granted(asked, alone, factor), runs)


def _granted(asked: Asked, noise: Sequence[float], factor: float) -> tuple[Plan, ...]:
    each = zip(asked, noise, strict=True)
    return tuple(granting(terms, specs, factor * own) for (terms, specs), own in each)


def _noise_of_selection(asked: Asked, noise: Sequence[float], runs: float, epsilon: float) -> float:
    """Find the factor on the noise of all settings with which their selection is affordable."""

    def epsilon_at(factor: float) -> float:
        plans = _granted(asked, noise, factor)
        one_run = np.max([divergences(plan, SEARCH) for plan in plans], axis=0)
        found = best_of_runs(np.array(SEARCH), one_run, runs)
        return epsilon_of_renyi(SEARCH, found, plans[0].delta)

    factor = floor = max(least_noise(*one) / own for one, own in zip(asked, noise, strict=True))
    if epsilon_at(floor) > epsilon:
        factor = _round_up(_root(epsilon_at, epsilon, floor, 2 * floor, floor))
    return _affordable(epsilon_at, epsilon, factor)


def _affordable(epsilon_at: Callable[[float], float], target: float, noise: float) -> float:
    """Ask once more, and raise the noise until it keeps to the target."""
    while epsilon_at(noise) > target:
        noise = _round_up(noise * 1.0005)
    return noise


def _root(
    epsilon_at: Callable[[float], float], target: float, low: float, high: float, floor: float
) -> float:
    """Find where a falling epsilon crosses the target, from a bracket that may be wrong."""
    low = max(low, floor)
    while epsilon_at(low) <= target:
        if low == floor:
            return floor
        low, high = max(low / 2, floor), low
    high = max(low, high)
    while epsilon_at(high) > target:
        low, high = high, 2 * high
        if high > 1e5 * max(floor, NOISE_FLOOR):
            text = f"This accountant cannot certify epsilon={target:g} with any noise"
            raise ValueError(f"{text}: give a larger epsilon or delta, or another accountant.")

    def gap(log_noise: float) -> float:
        return math.log(min(max(epsilon_at(math.exp(log_noise)), 1e-12), 1e12) / target)

    return math.exp(brentq(gap, math.log(low), math.log(high), xtol=5e-4))


def _round_up(noise: float) -> float:
    """Round up to four significant digits."""
    digits = 3 - math.floor(math.log10(noise))
    return math.ceil(noise * 10.0**digits) / 10.0**digits
