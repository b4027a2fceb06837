"""Three accountants behind one function.

Each is told what its own conventions need: what stands for the sensitivity under replace-one
neighbours, and which batches are not amplified at all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from pymc_dp.errors import PrivacyWarning
from pymc_dp.release import Release, compose, pure_epsilon, unit_noise
from pymc_dp.sampling import effective_rate

Releases = tuple[Release, ...]
Deltas = tuple[float, ...]

# The PLD accountant rounds privacy losses up to a grid; long plans need a finer one, and plans of
# many kinds of releases, each with a distribution of its own, would take minutes on it.
_GRID, _FINE_GRID, _LONG_PLAN = 1e-4, 2e-5, 100_000
_COARSE_GRID, MANY_KINDS = 1e-3, 16

ORDERS = (
    *(order / 10 for order in range(11, 110)),
    *range(11, 64),
    *np.unique(np.geomspace(64, 2048, 31).round()),
)


def merged(releases: Releases) -> Releases:
    """Merge releases that differ in name and clip norm alone: the accountants see neither."""
    counts: Counter[Release] = Counter()
    for r in releases:
        key = dataclasses.replace(r, name="", clip_norm=1.0, count=1)
        counts[key] += r.count
    return tuple(dataclasses.replace(key, count=count) for key, count in counts.items())


@functools.lru_cache(maxsize=1024)
def epsilons(
    releases: Releases, neighbours: str, accountant: str, num_records: int | None, deltas: Deltas
) -> Deltas:
    """Ask one accountant for epsilon at each delta; without noise it is infinite."""
    if not releases:
        return (0.0,) * len(deltas)
    if any(r.noise_multiplier == 0 for r in releases):
        return (math.inf,) * len(deltas)
    draws = [r for r in releases if r.mechanism == "exponential"]
    pure = sum(r.count * pure_epsilon(r, neighbours) for r in draws)
    sums = tuple(r for r in releases if r.mechanism == "gaussian")
    found: Sequence[float] = [0.0] * len(deltas)
    if sums:
        found = _ACCOUNTANTS[accountant](sums, neighbours, num_records, deltas)
    # Accountants have failed without an exception before: fail closed.
    if any(not value >= 0 for value in found):
        raise ArithmeticError(
            f"accountant={accountant!r} returned epsilon={found}, which cannot be: give another "
            "accountant, and report this plan."
        )
    return tuple(float(pure + value) for value in found)


def _pld(
    releases: Releases,
    neighbours: str,
    num_records: int | None,
    deltas: Deltas,
    grid: float | None = None,
) -> Sequence[float]:
    from dp_accounting import pld

    if _all_full(releases, num_records):
        mu = math.sqrt(sum(r.count / unit_noise(r, neighbours) ** 2 for r in releases))
        return [_gaussian_epsilon(mu, delta) for delta in deltas]
    accountant = pld.PLDAccountant(_relation(neighbours), grid or _grid(releases))
    accountant.compose(compose(releases, neighbours, "pld", num_records))
    return [accountant.get_epsilon(delta) for delta in deltas]


def _grid(releases: Releases) -> float:
    if sum(r.count for r in releases) >= _LONG_PLAN:
        return _FINE_GRID
    return _GRID if len(releases) <= MANY_KINDS else _COARSE_GRID


def _limit(
    releases: Releases, neighbours: str, num_records: int | None, deltas: Deltas
) -> Sequence[float]:
    """Central limit of the composition (Bu et al. 2020): a first guess, and no upper bound."""
    squares = 0.0
    for r in releases:
        rate = effective_rate(r.sampling, r.sample_rate, num_records)
        squares += r.count * rate**2 * math.expm1(min(unit_noise(r, neighbours) ** -2, 50.0))
    return [_gaussian_epsilon(math.sqrt(squares), delta) for delta in deltas]


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of mu-Gaussian differential privacy (Dong et al. 2022, corollary 2.13)."""

    def excess(eps: float) -> float:
        return ndtr(mu / 2 - eps / mu) - math.exp(eps + log_ndtr(-mu / 2 - eps / mu)) - delta

    if excess(0.0) <= 0:
        return 0.0
    return brentq(excess, 0.0, mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)), xtol=1e-12)


def _rdp(
    releases: Releases, neighbours: str, num_records: int | None, deltas: Deltas
) -> Sequence[float]:
    _, transformers = _autodp()
    counts = [r.count for r in releases]
    exact = _all_full(releases, num_records)
    composition = transformers.ComposeGaussian() if exact else transformers.Composition()
    # autodp searches over orders from an infinite value on, and raises floating-point noise.
    with np.errstate(all="ignore"):
        mechanisms = [_autodp_mechanism(r, neighbours, num_records) for r in releases]
        whole = composition(mechanisms, counts)
        return [whole.get_approxDP(delta) for delta in deltas]


def _autodp_mechanism(release: Release, neighbours: str, num_records: int | None) -> Any:
    mechanisms, transformers = _autodp()
    gaussian = mechanisms.GaussianMechanism(unit_noise(release, neighbours))
    rate = effective_rate(release.sampling, release.sample_rate, num_records)
    if rate == 1:
        return gaussian
    poisson = release.sampling == "poisson"
    if not poisson:
        gaussian.neighboring = "replace_one"
    amplify = transformers.AmplificationBySampling(PoissonSampling=poisson)
    return amplify(gaussian, rate, improved_bound_flag=True)


@functools.cache
def _autodp() -> tuple[Any, Any]:
    path = sys.path.copy()
    from autodp import mechanism_zoo, transformer_zoo

    sys.path[:] = path  # autodp puts ".." on it
    return mechanism_zoo, transformer_zoo


def _rdp_dp_accounting(
    releases: Releases, neighbours: str, num_records: int | None, deltas: Deltas
) -> Sequence[float]:
    accountant = _rdp_accountant(releases, neighbours, num_records)
    return [accountant.get_epsilon(delta) for delta in deltas]


def renyi(
    releases: Releases,
    neighbours: str,
    num_records: int | None,
    orders: tuple[float, ...] = ORDERS,
) -> np.ndarray:
    """Ask dp-accounting for the Rényi divergence of releases at each order; inf without noise."""
    if any(r.noise_multiplier == 0 for r in releases):
        return np.full(len(orders), np.inf)
    found = _rdp_accountant(merged(releases), neighbours, num_records, orders).rdp
    if not (found >= 0).all():
        raise ArithmeticError(
            f"dp-accounting returned Rényi divergences {found}, which cannot be: report this plan."
        )
    return found


def epsilon_of_renyi(
    orders: Sequence[float], divergences: Sequence[float] | np.ndarray, delta: float
) -> float:
    """Convert Rényi divergences to epsilon at one delta, by the best of the orders."""
    from dp_accounting import rdp

    return float(rdp.compute_epsilon(orders, divergences, delta)[0])


@functools.lru_cache(maxsize=128)
def _rdp_accountant(
    releases: Releases,
    neighbours: str,
    num_records: int | None,
    orders: tuple[float, ...] = ORDERS,
) -> Any:
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant(orders, _relation(neighbours))
    with _without_log():
        event = compose(releases, neighbours, "rdp_dp_accounting", num_records)
        return accountant.compose(event)


def warn_at_end_of_orders(
    releases: Releases, neighbours: str, num_records: int | None, deltas: Deltas
) -> None:
    """Warn where the best Rényi order is the first or the last of those tried."""
    sums = tuple(r for r in releases if r.mechanism == "gaussian")
    if not sums:
        return
    accountant = _rdp_accountant(sums, neighbours, num_records)
    for delta in deltas:
        eps, order = accountant.get_epsilon_and_optimal_order(delta)
        if eps > 0 and order in (ORDERS[0], ORDERS[-1]):
            warnings.warn(
                f"epsilon={eps:.4g} at delta={delta:g} is looser than it need be: the best Rényi "
                f"order is at an end ({order:g}) of those tried. Use accountant='pld' or 'rdp'.",
                PrivacyWarning,
                stacklevel=4,
            )


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Keep dp-accounting from logging every order that it leaves out, which is harmless."""
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _all_full(releases: Releases, num_records: int | None) -> bool:
    return all(effective_rate(r.sampling, r.sample_rate, num_records) == 1 for r in releases)


def _relation(neighbours: str) -> Any:
    from dp_accounting import NeighboringRelation as Relation

    return {
        "add_remove": Relation.ADD_OR_REMOVE_ONE,
        "zero_out": Relation.REPLACE_SPECIAL,
        "replace_one": Relation.REPLACE_ONE,
    }[neighbours]


_ACCOUNTANTS: dict[str, Callable[..., Sequence[float]]] = {
    "pld": _pld,
    "coarse_pld": functools.partial(_pld, grid=_COARSE_GRID),
    "limit": _limit,
    "rdp": _rdp,
    "rdp_dp_accounting": _rdp_dp_accounting,
}
