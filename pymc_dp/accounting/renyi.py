"""Rényi divergences of releases, which add up, and the epsilon that they mean."""

import contextlib
import functools
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pymc_dp.accounting.accountant import Deltas, event_of, gaussian_part
from pymc_dp.accounting.plan import Plan
from pymc_dp.accounting.release import Release
from pymc_dp.errors import PrivacyWarning
from pymc_dp.sampling.samplers import FixedSize

ORDERS = (
    *(order / 10 for order in range(11, 110)),
    *range(11, 64),
    *np.unique(np.geomspace(64, 2048, 31).round()),
)


def by_autodp(sums: Plan, deltas: Deltas) -> Sequence[float]:
    """Add up Rényi divergences by autodp."""
    _, transformers = _autodp()
    composer = transformers.ComposeGaussian if sums.all_full else transformers.Composition
    # autodp searches over orders from an infinite value on, and raises floating-point noise.
    with np.errstate(all="ignore"):
        mechanisms = [_autodp_mechanism(sums, release) for release in sums.releases]
        whole = composer()(mechanisms, [release.count for release in sums.releases])
        return [whole.get_approxDP(delta) for delta in deltas]


def _autodp_mechanism(sums: Plan, release: Release) -> Any:
    mechanisms, transformers = _autodp()
    gaussian = mechanisms.GaussianMechanism(sums.noise(release))
    rate = sums.rate(release)
    if rate == 1:
        return gaussian
    without_replacement = isinstance(release.sampler, FixedSize)
    if without_replacement:
        gaussian.neighboring = "replace_one"
    amplify = transformers.AmplificationBySampling(PoissonSampling=not without_replacement)
    return amplify(gaussian, rate, improved_bound_flag=True)


@functools.cache
def _autodp() -> tuple[Any, Any]:
    path = sys.path.copy()
    from autodp import mechanism_zoo, transformer_zoo

    sys.path[:] = path  # autodp puts ".." on it
    return mechanism_zoo, transformer_zoo


def divergences(plan: Plan, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    """Return the Rényi divergence at each order, shape (orders,); infinite without noise."""
    if any(release.noise_multiplier == 0 for release in plan.releases):
        return np.full(len(orders), np.inf)
    found: np.ndarray = _rdp_accountant(plan.merged(), orders).rdp
    if not (found >= 0).all():
        raise ArithmeticError(
            f"dp-accounting returned Rényi divergences {found}, which cannot be: report this plan."
        )
    return found


def by_dp_accounting(sums: Plan, deltas: Deltas) -> Sequence[float]:
    """Add up Rényi divergences by dp-accounting."""
    accountant = _rdp_accountant(sums)
    return [accountant.get_epsilon(delta) for delta in deltas]


def warn_of_orders(plan: Plan, deltas: Deltas) -> None:
    """Warn where the best Rényi order is the first or the last of those tried."""
    sums = gaussian_part(plan)
    if not sums.releases:
        return
    accountant = _rdp_accountant(sums)
    for delta in deltas:
        eps, order = accountant.get_epsilon_and_optimal_order(delta)
        if eps > 0 and order in (ORDERS[0], ORDERS[-1]):
            warnings.warn(
                f"epsilon={eps:.4g} at delta={delta:g} is looser than it need be: the best "
                f"Rényi order is at an end ({order:g}) of those tried. Use accountant='pld' or "
                "'rdp'.",
                PrivacyWarning,
                stacklevel=5,
            )


@functools.lru_cache(maxsize=128)
def _rdp_accountant(plan: Plan, orders: tuple[float, ...] = ORDERS) -> Any:
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant(orders, plan.neighbours.relation)
    with _without_log():
        return accountant.compose(event_of(plan, doubles=False))


def epsilon_of_renyi(
    orders: Sequence[float], divergences: Sequence[float] | np.ndarray, delta: float
) -> float:
    """Convert Rényi divergences to epsilon at one delta, by the best of the orders."""
    from dp_accounting import rdp

    return float(rdp.compute_epsilon(orders, divergences, delta)[0])


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
