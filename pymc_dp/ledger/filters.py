"""How a ledger adds up fits whose settings may depend on earlier results.

Composing events is not valid then; a privacy filter is. It fixes one measure of loss and one limit
before the first fit, and lets a fit pass while the sum of costs stays within the limit. Of
mechanisms of other libraries a ledger knows the privacy loss alone.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from dp_accounting import get_epsilon_gaussian

from pymc_dp.accounting.accountants import ORDERS, Selection, divergences, epsilon_of_renyi
from pymc_dp.accounting.plan import Plan, Release, checked_number


class ExternalMechanism(NamedTuple):
    """What a mechanism costs, as its maker proved: rho of zero-concentrated DP, or epsilon."""

    proved_rho: float | None
    proved_epsilon: float | None
    delta: float = 0.0

    @property
    def rho(self) -> float:
        """Its rho; for pure epsilon by proposition 1.4 of Bun and Steinke (2016)."""
        if self.proved_rho is not None:
            return self.proved_rho
        if self.proved_epsilon is None or self.delta:
            raise ValueError(
                "A mechanism that needs delta has no rho: give rho= where its maker proves one, or "
                "use a ledger with filter='sum'."
            )
        return self.proved_epsilon * self.proved_epsilon / 2

    def renyi(self, orders: Sequence[float]) -> np.ndarray:
        """Bound its Rényi divergence at each order; epsilon bounds that of any order."""
        bounds = np.multiply(orders, self.rho)
        return bounds if self.proved_epsilon is None else np.fmin(bounds, self.proved_epsilon)

    def epsilon(self) -> float:
        """Return its epsilon at its delta."""
        if self.proved_epsilon is None:
            raise ValueError("With filter='sum' give epsilon= and delta= in place of rho=.")
        return self.proved_epsilon


def external_mechanism(rho: float | None, epsilon: float | None, delta: float) -> ExternalMechanism:
    """Check a privacy loss; a negative one would be a refund."""
    if (rho is None) == (epsilon is None):
        raise ValueError("Give rho= or epsilon= of the mechanism, and not both.")
    rho, epsilon = checked_number("rho", rho), checked_number("epsilon", epsilon)
    delta = checked_number("delta", delta) or 0.0
    for name, value in {"rho": rho, "epsilon": epsilon}.items():
        if value is not None and not 0 <= value < np.inf:
            raise ValueError(f"{name}={value!r} must be at least 0 and finite.")
    if not 0 <= delta < 1 or (rho is not None and delta):
        raise ValueError(f"delta={delta!r} must be at least 0, below 1, and 0 where rho= is given.")
    return ExternalMechanism(rho, epsilon, delta)


Spending = Plan | Selection | ExternalMechanism
ROUNDING = 1e-9  # how far a limit may stay below the largest that a search could find
# how far the epsilon of what is left stays below what numbers of limited precision give
MARGIN = 1e-6


class Cost(NamedTuple):
    """What a fit takes from a limit: an amount in the filter's measure, and of delta."""

    amount: float
    delta: float = 0.0


class Price(NamedTuple):
    """What a plan takes from a limit: at once, and with each release that is booked."""

    upfront: Cost
    amounts: Mapping[Release, float]  # of each release of the plan
    counts: Mapping[float, int]  # how many releases there are of each amount


class Filter(NamedTuple):
    """One measure of loss and its limit, fixed before the first fit.

    Those that add up releases are fully adaptive: a fit may end after any of them, and the choice
    may depend on what was released, so that the releases after it cost nothing.
    """

    measure: str  # what an amount is an amount of
    delta: float  # of all fits together
    limit: Cost  # the largest cost of all fits together that still means (epsilon, delta)
    # the cost of a whole plan or mechanism; one that no proof covers is refused
    cost: Callable[[Spending], Cost]
    # what was spent -> epsilon and delta of everything that cost as much
    meaning: Callable[[Cost], tuple[float, float]]
    # what is left -> an epsilon that a further fit may have; `Ledger.left` says which fits
    affordable: Callable[[Cost], float]
    adds_up_releases: bool = True  # and not whole plans alone

    def price(self, spending: Spending) -> Price:
        """Return what a plan or mechanism takes, or refuse one that no proof covers."""
        if not (self.adds_up_releases and isinstance(spending, Plan) and spending.releases):
            # the number of runs of a selection is secret, so that all are one release
            bookings = spending.total if isinstance(spending, Plan) else 1
            return Price(self.cost(spending), {}, {0.0: int(bookings)})
        amounts: dict[Release, float] = {}
        counts: Counter[float] = Counter()
        for release in spending.releases:
            once = dataclasses.replace(release, count=1)
            amounts[release] = self.cost(dataclasses.replace(spending, releases=(once,))).amount
            counts[amounts[release]] += int(release.count)
        return Price(Cost(0.0), amounts, counts)

    def words(self, cost: Cost) -> str:
        """Write a cost, and beside it the epsilon of a fit of all records that costs as much."""
        if not self.adds_up_releases:
            return f"epsilon {cost.amount:.4g} and delta {cost.delta:g}"
        return f"{cost.amount:.4g} (epsilon {self.affordable(cost):.4g} at delta={self.delta:g})"


def renyi(epsilon: float, delta: float, order: float) -> Filter:
    """Add up Rényi divergences at one order (Feldman and Zrnic 2021, theorem 4.3)."""
    return Filter(
        measure=f"Rényi divergences of order {order:g}",
        delta=delta,
        limit=Cost(float(_limits(epsilon, delta, np.array([order]))[0])),
        cost=lambda spending: Cost(_divergence(spending, order)),
        meaning=lambda spent: (epsilon_of_renyi([order], [spent.amount], delta), delta),
        # that of Gaussian releases, whose divergence is order times rho
        affordable=lambda left: _gaussian_epsilon(left.amount / order, delta),
    )


def _divergence(spending: Spending, order: float) -> float:
    if isinstance(spending, Plan):
        return float(divergences(spending, (order,))[0])
    return float(spending.renyi((order,))[0])


def concentrated(epsilon: float, delta: float, order: float) -> Filter:
    """Add up rho of zero-concentrated DP, which bounds all Rényi orders at once."""
    low, high = 0.0, 1.0
    while _epsilon_of_rho(high, delta) <= epsilon:
        high *= 2
    # the meaning jumps up from zero where delta alone covers the loss: it has no root there
    while high - low > ROUNDING * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _epsilon_of_rho(middle, delta) <= epsilon else (low, middle)
    return Filter(
        measure="rho of zero-concentrated DP",
        delta=delta,
        limit=Cost(low),
        cost=_rho,
        meaning=lambda spent: (_epsilon_of_rho(spent.amount, delta), delta),
        affordable=lambda left: _gaussian_epsilon(left.amount, delta),
    )


def sums(epsilon: float, delta: float, order: float) -> Filter:
    """Add up epsilons and deltas of whole plans (Rogers et al. 2016, theorem 3.6)."""
    return Filter(
        measure="sums of epsilon and delta",
        delta=delta,
        limit=Cost(epsilon, delta),
        cost=lambda spending: Cost(spending.epsilon(), spending.delta),
        meaning=lambda spent: (spent.amount, spent.delta),
        affordable=lambda left: max(left.amount, 0.0) if left.delta > 0 else 0.0,
        adds_up_releases=False,
    )


def _rho(spending: Spending) -> Cost:
    if isinstance(spending, ExternalMechanism):
        return Cost(spending.rho)
    if isinstance(spending, Selection) or not spending.all_full:
        raise ValueError(
            "A ledger with filter='zcdp' takes releases of all records alone: batches and "
            "selections have no useful rho. Give sampling='full', or use one with filter='rdp'."
        )
    return Cost(sum(r.count / (2 * spending.noise(r) ** 2) for r in spending.releases))


def _epsilon_of_rho(rho: float, delta: float) -> float:
    return epsilon_of_renyi(ORDERS, rho * np.array(ORDERS), delta)


def best_order(epsilon: float, delta: float) -> float:
    """Return the order with the largest limit over the order: Gaussian releases get the most."""
    orders = np.array(ORDERS)
    limits = _limits(epsilon, delta, orders)
    if not (limits > 0).any():
        text = f"No Rényi order means epsilon={epsilon:g} at delta={delta:g}"
        raise ValueError(f"{text}: give a larger epsilon or delta, or filter='sum'.")
    return float(orders[np.argmax(limits / orders)])


def _gaussian_epsilon(rho: float, delta: float) -> float:
    """Return epsilon of Gaussian releases of some rho in total, rounded down."""
    if not rho > 0:
        return 0.0
    found = get_epsilon_gaussian(1 / (2 * rho) ** 0.5, delta)
    return max(0.0, float(found) * (1 - MARGIN) - MARGIN)


def _limits(epsilon: float, delta: float, orders: np.ndarray) -> np.ndarray:
    """Invert dp-accounting's conversion (Canonne et al. 2020, proposition 12) at each order."""
    found: np.ndarray = epsilon - np.log1p(-1 / orders) + np.log(delta * orders) / (orders - 1)
    return (1 - ROUNDING) * found


# (epsilon, delta, order) -> filter; the order is for Rényi divergences, and the others ignore it
FILTERS = {"rdp": cache(renyi), "zcdp": cache(concentrated), "sum": cache(sums)}
