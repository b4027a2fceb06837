"""The least noise with which a plan, or a search among settings, keeps to a budget.

Nothing here has to be trusted: a plan's accountant is asked again for what a result claims.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy.optimize import brentq

from pymc_dp.accounting.accountants import (
    CENTRAL_LIMIT,
    COARSE_PLD,
    FULL_FLOOR,
    MANY_KINDS,
    NOISE_FLOOR,
    PLD,
    RDP,
    RDP_DP_ACCOUNTING,
    Accountant,
    divergences,
    epsilon_of_renyi,
)
from pymc_dp.accounting.plan import GAUSSIAN, Plan, ReleaseSpec, relative_noise
from pymc_dp.accounting.selection import SEARCH, Asked, Selection, best_of_runs

# Quick accountants are asked first; each gives the next one a bracket, as shares of the noise that
# it found. Only the last one's number counts.
Search = tuple[tuple[Accountant, float, float], ...]
_SEARCH: dict[Accountant, Search] = {
    RDP: ((RDP, 1.0, 2.0),),
    PLD: ((RDP, 1.0, 2.0), (COARSE_PLD, 0.5, 1.0), (PLD, 0.95, 1.0)),
    RDP_DP_ACCOUNTING: ((RDP, 1.0, 2.0), (RDP_DP_ACCOUNTING, 0.9, 1.1)),
}
# Rényi divergences of many kinds of releases take longer than the search that they would shorten.
_SEARCH_MANY: Search = ((CENTRAL_LIMIT, 1.0, 2.0), (PLD, 0.7, 1.4))


def calibrate_plan(terms: Plan, specs: Sequence[ReleaseSpec], epsilon: float) -> Plan:
    """Find the noise with which releases, under the terms of a plan, cost at most ``epsilon``.

    The plan is within two per cent of the target wherever the accountant can get there. If even
    the least noise that the accountants are reliable at (0.3 of the sensitivity where batches are
    sampled, else 0.0001) costs less, it has that noise, and its own smaller epsilon.

    **Privacy.** The accountant is asked again at the noise that was found, which never exceeds the
    target. An infinite target takes all noise off.
    """
    if math.isinf(epsilon):
        return terms.granting(specs, 0.0)
    if not specs:
        return terms
    sums = any(spec.mechanism == GAUSSIAN for spec in specs)
    find = _noise_of_sums if sums else _noise_of_others
    return terms.granting(specs, find(terms, specs, epsilon))


def least_noise(terms: Plan, specs: Sequence[ReleaseSpec]) -> float:
    """Return the noise at which the least noisy release is at the accountants' floor."""
    all_full = all(spec.sampler.effective_rate(terms.num_records) == 1 for spec in specs)
    return _noise_at(FULL_FLOOR if all_full else NOISE_FLOOR, terms, specs)


def _noise_at(floor: float, terms: Plan, specs: Sequence[ReleaseSpec]) -> float:
    return _round_up(floor * terms.neighbours.sensitivity / min(relative_noise(specs)))


def _noise_of_others(terms: Plan, specs: Sequence[ReleaseSpec], target: float) -> float:
    """Epsilon falls with one over the noise, which is at least 1 in the releases' own units."""
    least = max(1 / spec.clip_norm for spec in specs)
    at_one = terms.granting(specs, 1.0).epsilon()
    noise = _round_up(max(at_one / target, least))
    return _affordable(lambda x: terms.granting(specs, x).epsilon(), target, noise)


def _noise_of_sums(terms: Plan, specs: Sequence[ReleaseSpec], target: float) -> float:
    def epsilon_by(accountant: Accountant, noise: float) -> float:
        return float(accountant.estimates(terms.granting(specs, noise), (terms.delta,))[0])

    noise, floor = _noise_at(NOISE_FLOOR, terms, specs), least_noise(terms, specs)
    kinds = len(terms.granting(specs, noise).merged().releases)
    many = terms.accountant == PLD and kinds > MANY_KINDS
    for accountant, low, high in _SEARCH_MANY if many else _SEARCH[terms.accountant]:
        epsilon_at = partial(epsilon_by, accountant)
        found = epsilon_at(noise)
        if found > target or (found < 0.995 * target and noise > floor):
            noise = _round_up(_root(epsilon_at, target, low * noise, high * noise, floor))
    return _affordable(partial(epsilon_by, terms.accountant), target, noise)


def calibrate_selection(asked: Asked, runs: float, epsilon: float) -> Selection:
    """Find each setting's noise, so that the whole selection costs at most ``epsilon``.

    Every setting is brought to the target alone; one more factor for all covers what their
    divergences, each the largest at other orders, cost together.
    """
    alone = [_noise_of_selection([one], [1.0], runs, epsilon) for one in asked]
    factor = max(1.0, _noise_of_selection(asked, alone, runs, epsilon))
    return Selection(_granted(asked, alone, factor), runs)


def _granted(asked: Asked, noise: Sequence[float], factor: float) -> tuple[Plan, ...]:
    each = zip(asked, noise, strict=True)
    return tuple(terms.granting(specs, factor * own) for (terms, specs), own in each)


def _noise_of_selection(asked: Asked, noise: Sequence[float], runs: float, epsilon: float) -> float:
    """Find the factor on the noise of all settings with which their selection is affordable."""
    delta = asked[0][0].delta

    def epsilon_at(factor: float) -> float:
        plans = _granted(asked, noise, factor)
        one_run = np.max([divergences(plan, SEARCH) for plan in plans], axis=0)
        return epsilon_of_renyi(SEARCH, best_of_runs(np.array(SEARCH), one_run, runs), delta)

    each = zip(asked, noise, strict=True)
    return _smallest_noise(epsilon_at, epsilon, max(least_noise(*one) / own for one, own in each))


def _smallest_noise(epsilon_at: Callable[[float], float], target: float, floor: float) -> float:
    """Return the least noise, ``floor`` or above, that costs at most ``target``."""
    noise = floor
    if epsilon_at(floor) > target:
        noise = _round_up(_root(epsilon_at, target, floor, 2 * floor, floor))
    return _affordable(epsilon_at, target, noise)


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
            raise ValueError(
                f"This accountant cannot certify epsilon={target:g} with any noise: give a larger "
                "epsilon or delta, or another accountant."
            )

    def gap(log_noise: float) -> float:
        return math.log(min(max(epsilon_at(math.exp(log_noise)), 1e-12), 1e12) / target)

    return math.exp(brentq(gap, math.log(low), math.log(high), xtol=5e-4))


def _round_up(noise: float) -> float:
    """Round up to four significant digits."""
    digits = 3 - math.floor(math.log10(noise))
    return math.ceil(noise * 10.0**digits) / 10.0**digits
