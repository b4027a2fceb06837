"""How a ledger adds up fits whose settings may depend on earlier results.

Composing events is not valid then; a privacy filter is. It fixes one measure of loss and one limit
before the first fit, and lets a fit pass while the sum of costs stays within the limit.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from pymc_dp.accountants import ORDERS, epsilon_of_renyi
from pymc_dp.elsewhere import Elsewhere
from pymc_dp.plans import Plan
from pymc_dp.release import unit_noise
from pymc_dp.sampling import effective_rate
from pymc_dp.selection import Selection

Priced = Plan | Selection
# how far a limit may stay below the largest that a search could find
ROUNDING = 1e-9


class Cost(NamedTuple):
    """What a fit takes from a limit: an amount in the filter's measure, and of delta."""

    amount: float
    delta: float = 0.0


class Filter(Protocol):
    """One measure of loss and its limit, fixed before the first fit."""

    @property
    def measure(self) -> str:
        """What an amount is an amount of."""

    @property
    def limit(self) -> Cost:
        """What all fits together may cost."""

    def cost(self, plan: Priced) -> Cost:
        """Price a whole plan, or refuse one that no proof covers."""

    def price(self, mechanism: Elsewhere) -> Cost:
        """Price a mechanism of another library."""

    def meaning(self, spent: Cost) -> tuple[float, float]:
        """Return epsilon and delta of everything that cost ``spent``."""


class Renyi(NamedTuple):
    """Rényi DP at one order: divergences add up (Feldman and Zrnic 2021, theorem 4.3)."""

    epsilon: float
    delta: float
    order: float

    @property
    def measure(self) -> str:
        """What an amount is an amount of."""
        return f"Rényi divergence of order {self.order:g}"

    @property
    def limit(self) -> Cost:
        """The largest divergence that still means (epsilon, delta)."""
        return Cost(float(_limits(self.epsilon, self.delta, np.array([self.order]))[0]))

    def cost(self, plan: Priced) -> Cost:
        """Price a plan by its divergence at the filter's order."""
        return Cost(float(plan.renyi((self.order,))[0]))

    def price(self, mechanism: Elsewhere) -> Cost:
        """Bound its divergence at the filter's order."""
        return Cost(mechanism.renyi(self.order))

    def meaning(self, spent: Cost) -> tuple[float, float]:
        """Convert at the filter's order."""
        return epsilon_of_renyi([self.order], [spent.amount], self.delta), self.delta


class Concentrated(NamedTuple):
    """Zero-concentrated DP: rho adds up, at all Rényi orders at once."""

    epsilon: float
    delta: float

    @property
    def measure(self) -> str:
        """What an amount is an amount of."""
        return "rho of zero-concentrated DP"

    @property
    def limit(self) -> Cost:
        """The largest rho that still means (epsilon, delta)."""
        low, high = 0.0, 1.0
        while self._within(high):
            high *= 2
        # the meaning jumps up from zero where delta alone covers the loss: it has no root there
        while high - low > ROUNDING * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self._within(middle) else (low, middle)
        return Cost(low)

    def cost(self, plan: Priced) -> Cost:
        """Price a plan of Gaussian releases of all records: 1 / (2 noise^2) each."""
        if not isinstance(plan, Plan) or any(_rate(plan, release) < 1 for release in plan.releases):
            raise ValueError(
                "A ledger with filter='zcdp' takes releases of all records alone: sampled batches "
                "and selections have no useful rho. Give sampling='full', or use a ledger with "
                "filter='rdp'."
            )
        noises = [(r.count, unit_noise(r, plan.neighbours)) for r in plan.releases]
        return Cost(sum(count / (2 * noise**2) for count, noise in noises))

    def price(self, mechanism: Elsewhere) -> Cost:
        """Take its rho."""
        return Cost(mechanism.concentrated)

    def meaning(self, spent: Cost) -> tuple[float, float]:
        """Convert at the best order."""
        divergences = spent.amount * np.array(ORDERS)
        return epsilon_of_renyi(ORDERS, divergences, self.delta), self.delta

    def _within(self, rho: float) -> bool:
        return self.meaning(Cost(rho))[0] <= self.epsilon


class Sums(NamedTuple):
    """Basic composition: epsilons and deltas add up (Rogers et al. 2016, theorem 3.6)."""

    epsilon: float
    delta: float

    @property
    def measure(self) -> str:
        """What an amount is an amount of."""
        return "epsilon"

    @property
    def limit(self) -> Cost:
        """Return epsilon and delta themselves."""
        return Cost(self.epsilon, self.delta)

    def cost(self, plan: Priced) -> Cost:
        """Price a plan by its epsilon at its own delta."""
        return Cost(plan.epsilon(), plan.delta)

    def price(self, mechanism: Elsewhere) -> Cost:
        """Take its epsilon and delta."""
        return Cost(*mechanism.pair)

    def meaning(self, spent: Cost) -> tuple[float, float]:
        """Return the sums themselves."""
        return spent


def best_order(epsilon: float, delta: float) -> float:
    """Return the Rényi order at which Gaussian releases get the most out of a budget.

    A Gaussian's divergence is proportional to the order, so it is the limit over the order that
    counts.

    >>> float(best_order(1.0, 1e-5))
    18.0
    """
    orders = np.array(ORDERS)
    limits = _limits(epsilon, delta, orders)
    if not (limits > 0).any():
        raise ValueError(
            f"No Rényi order means epsilon={epsilon:g} at delta={delta:g}: give a larger epsilon "
            "or delta, or filter='sum'."
        )
    return float(orders[np.argmax(limits / orders)])


def _limits(epsilon: float, delta: float, orders: np.ndarray) -> np.ndarray:
    """Invert dp-accounting's conversion (Canonne et al. 2020, proposition 12) at each order."""
    found = epsilon - np.log1p(-1 / orders) + np.log(delta * orders) / (orders - 1)
    return (1 - ROUNDING) * found


def _rate(plan: Plan, release) -> float:
    return effective_rate(release.sampling, release.sample_rate, plan.num_records)


# name -> (epsilon, delta, order of the file) -> filter
FILTERS: dict[str, Callable[[float, float, float], Filter]] = {
    "rdp": Renyi,
    "zcdp": lambda epsilon, delta, order: Concentrated(epsilon, delta),
    "sum": lambda epsilon, delta, order: Sums(epsilon, delta),
}
