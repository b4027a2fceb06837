"""Mechanisms of other libraries, for which a ledger has the privacy loss alone."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_dp.accounting.plan import checked_number


class ExternalMechanism(NamedTuple):
    """What a mechanism costs, as its maker proved: rho of zero-concentrated DP, or epsilon."""

    proved_rho: float | None
    proved_epsilon: float | None
    delta: float = 0.0  # zero for a mechanism that is private without it

    @property
    def rho(self) -> float:
        """Its rho; for pure epsilon by proposition 1.4 of Bun and Steinke (2016)."""
        if self.proved_rho is not None:
            return self.proved_rho
        if self.proved_epsilon is None or self.delta:
            raise ValueError(
                "A mechanism that needs delta has no rho, and this ledger adds up divergences: "
                "give rho= where its maker proves one, or use a ledger with filter='sum'."
            )
        return self.proved_epsilon * self.proved_epsilon / 2

    def renyi(self, orders: Sequence[float]) -> np.ndarray:
        """Bound its Rényi divergence at each order; epsilon bounds that of any order."""
        bounds = np.multiply(orders, self.rho)
        return bounds if self.proved_epsilon is None else np.fmin(bounds, self.proved_epsilon)

    def epsilon(self) -> float:
        """Return its epsilon at its delta."""
        if self.proved_epsilon is None:
            raise ValueError(
                "A ledger with filter='sum' adds up epsilons and deltas: give epsilon= and delta= "
                "of the mechanism in place of rho=."
            )
        return self.proved_epsilon


def external_mechanism(rho: float | None, epsilon: float | None, delta: float) -> ExternalMechanism:
    """Check a privacy loss; a negative one would be a refund.

    >>> external_mechanism(None, 0.5, 0.0).renyi([2.0])
    array([0.25])
    """
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
