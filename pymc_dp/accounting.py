"""From noise to epsilon and back.

Three accountants, by name:

``"pld"``
    Privacy loss distributions (dp-accounting): the tightest; nothing for fixed-size batches.
``"rdp"``
    Rényi divergences (autodp). Its routes through characteristic functions ("phi", AFA) are
    never taken: with today's SciPy they return a negative epsilon and no error.
``"rdp_dp_accounting"``
    Rényi divergences (dp-accounting), as a second opinion.

Every number here is an upper bound: it errs towards a larger epsilon.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from scipy.optimize import brentq

from pymc_dp.accountants import MANY_KINDS, epsilons, merged
from pymc_dp.plans import Plan
from pymc_dp.release import NOISE_FLOOR, Release, scale, unit_noise

# Calibration asks quick accountants first; each shows the next one where to look, as shares
# of the factor it found. Only the last one's word counts.
_SEARCH = {
    "rdp": (("rdp", 1.0, 2.0),),
    "pld": (("rdp", 1.0, 2.0), ("coarse_pld", 0.5, 1.0), ("pld", 0.95, 1.0)),
    "rdp_dp_accounting": (("rdp", 1.0, 2.0), ("rdp_dp_accounting", 0.9, 1.1)),
}
# Rényi divergences of many kinds of releases take longer than what they show the way to.
_SEARCH_MANY = (("limit", 1.0, 2.0), ("pld", 0.7, 1.4))


def epsilon(
    *,
    noise_multiplier: float,
    sample_rate: float,
    n: int,
    delta: float,
    sampling: str = "poisson",
    neighbours: str = "add_remove",
    accountant: str = "pld",
    num_records: int | None = None,
) -> float:
    """Epsilon of ``n`` equal releases.

    Parameters
    ----------
    noise_multiplier : float
        The noise's standard deviation over ``clip_norm``, whatever the neighbours.
    sample_rate : float
        The probability of a record to be in a batch; 1 for ``sampling="full"``.
    n : int
        The number of releases.
    delta, sampling, neighbours, accountant, num_records
        As in :class:`~pymc_dp.plans.Plan`.

    Returns
    -------
    float
        Infinite without noise.

    Raises
    ------
    ValueError
        No proof covers the combination, or a value is out of its range.

    Notes
    -----
    **Privacy.** Each release is a Gaussian one of sensitivity ``clip_norm`` (twice that under
    replace-one neighbours) on a fresh batch; sampling amplifies it and the releases compose.

    Examples
    --------
    >>> round(epsilon(noise_multiplier=4.0, sample_rate=0.01, n=10_000, delta=1e-5), 3)
    0.947
    """
    release = Release("release", sampling, sample_rate, 1.0, noise_multiplier, n)
    return Plan((release,), neighbours, delta, accountant, num_records).epsilon()


def calibrate(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float,
    n: int,
    sampling: str = "poisson",
    neighbours: str = "add_remove",
    accountant: str = "pld",
    num_records: int | None = None,
) -> float:
    """Noise multiplier with which ``n`` equal releases cost at most ``epsilon``.

    Parameters
    ----------
    epsilon : float
        The target, above 0; infinite for no noise.
    delta, sample_rate, n, sampling, neighbours, accountant, num_records
        As in :func:`epsilon`.

    Returns
    -------
    float
        The noise's standard deviation over ``clip_norm``, rounded up to four digits. If even
        the least noise that the accountants can grip (0.3 of the sensitivity) costs less than
        ``epsilon``, it is that least noise.

    Raises
    ------
    ValueError
        The accountant cannot certify so small an epsilon, or as in :func:`epsilon`.

    Notes
    -----
    **Privacy.** The accountant is asked again at the returned noise: it never exceeds the
    target.

    Examples
    --------
    >>> round(calibrate(epsilon=1.0, delta=1e-5, sample_rate=0.1, n=200), 2)
    5.43
    """
    release = Release("release", sampling, sample_rate, 1.0, 1.0, n)
    plan = Plan((release,), neighbours, delta, accountant, num_records)
    return calibrate_plan(plan, epsilon).releases[0].noise_multiplier


def calibrate_plan(plan: Plan, epsilon: float) -> Plan:
    """Scale a plan's noise multipliers by one factor, so that it costs at most ``epsilon``.

    Parameters
    ----------
    plan : Plan
        Its noise multipliers matter only relative to each other.
    epsilon : float
        The target, above 0; infinite takes all noise off.

    Returns
    -------
    Plan
        Within two per cent of the target wherever the accountant can get there. If even the
        plan whose smallest noise is at the accountants' floor (0.3 of the sensitivity) costs
        less, it is that plan, and its smaller epsilon is the one to report.

    Raises
    ------
    ValueError
        The target is not above 0, a release has no noise to scale, or the accountant cannot
        certify so small an epsilon.

    Notes
    -----
    **Privacy.** The accountant is asked again at the returned noise: it never exceeds the
    target.

    Examples
    --------
    >>> score = Release("score", "poisson", 0.1, 1.0, noise_multiplier=1.0, count=100)
    >>> moments = Release("moments", "full", 1.0, 2.0, noise_multiplier=4.0, count=1)
    >>> plan = Plan((score, moments), "add_remove", 1e-5, "pld")
    >>> calibrated = calibrate_plan(plan, 1.0)
    >>> calibrated.epsilon() <= 1.0
    True
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon={epsilon!r} must be above 0, or infinite for no noise.")
    if math.isinf(epsilon):
        return plan.scaled(0.0)
    if not plan.releases:
        return plan
    for release in plan.releases:
        if release.noise_multiplier == 0:
            raise ValueError(
                f"Release {release.name!r} has noise_multiplier=0, which no factor makes "
                "private: give it the noise it shall have relative to the others."
            )
    if all(release.mechanism == "exponential" for release in plan.releases):
        return plan.scaled(_factor_of_draws(plan, epsilon))
    return plan.scaled(_smallest_factor(plan, epsilon))


def _factor_of_draws(plan: Plan, target: float) -> float:
    """Epsilon falls with one over the noise; a posterior is never sharper than untempered."""
    untempered = max(1 / (r.noise_multiplier * r.clip_norm) for r in plan.releases)
    factor = _round_up(max(plan.epsilon() / target, untempered))
    return _affordable(lambda x: plan.scaled(x).epsilon(), target, factor)


def _smallest_factor(plan: Plan, target: float) -> float:
    floor = _round_up(NOISE_FLOOR / min(unit_noise(r, plan.neighbours) for r in plan.releases))
    factor = floor
    many = plan.accountant == "pld" and len(merged(plan.releases)) > MANY_KINDS
    for accountant, low, high in _SEARCH_MANY if many else _SEARCH[plan.accountant]:
        epsilon_at = functools.partial(_epsilon_at, plan, accountant)
        found = epsilon_at(factor)
        if found > target or (found < 0.995 * target and factor > floor):
            root = _root(epsilon_at, target, low * factor, high * factor, floor)
            factor = _round_up(root)
    return _affordable(functools.partial(_epsilon_at, plan, plan.accountant), target, factor)


def smallest_factor(epsilon_at: Callable[[float], float], target: float, floor: float) -> float:
    """Return the least factor on the noise, ``floor`` or above, that costs at most ``target``."""
    factor = floor = _round_up(floor)
    if epsilon_at(floor) > target:
        factor = _round_up(_root(epsilon_at, target, floor, 2 * floor, floor))
    return _affordable(epsilon_at, target, factor)


def _affordable(epsilon_at: Callable[[float], float], target: float, factor: float) -> float:
    """Ask once more, and raise a factor until it keeps to the target."""
    while epsilon_at(factor) > target:
        factor = _round_up(factor * 1.0005)
    return factor


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
        if high > 1e5 * floor:
            raise ValueError(
                f"This accountant cannot certify epsilon={target:g} with any noise: give a larger "
                "epsilon or delta, or another accountant."
            )

    def gap(log_factor: float) -> float:
        return math.log(min(max(epsilon_at(math.exp(log_factor)), 1e-12), 1e12) / target)

    return math.exp(brentq(gap, math.log(low), math.log(high), xtol=5e-4))


def _round_up(factor: float) -> float:
    """Round up to four significant digits."""
    digits = 3 - math.floor(math.log10(factor))
    return math.ceil(factor * 10.0**digits) / 10.0**digits


def _epsilon_at(plan: Plan, accountant: str, factor: float) -> float:
    releases = merged(scale(plan.releases, factor))
    return epsilons(releases, plan.neighbours, accountant, plan.num_records, (plan.delta,))[0]
