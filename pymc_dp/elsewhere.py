"""Mechanisms of other libraries, as far as a ledger knows them: their price alone."""

from numbers import Real
from typing import NamedTuple

# of a price; a larger one is no price
MOST = 1e100


class Elsewhere(NamedTuple):
    """What a mechanism of another library costs, as its maker proved.

    Attributes
    ----------
    rho : float, optional
        Of zero-concentrated DP.
    epsilon : float, optional
    delta : float
        Zero for a mechanism that is private without it.
    """

    rho: float | None = None
    epsilon: float | None = None
    delta: float = 0.0

    @property
    def concentrated(self) -> float:
        """The rho that it is known to have.

        Source: proposition 1.4 of Bun and Steinke (2016) for pure epsilon.
        """
        if self.rho is not None:
            return self.rho
        if self.epsilon is None or self.delta:
            raise ValueError(
                "A mechanism that needs delta has no rho, and this ledger adds up divergences: "
                "give rho= where its maker proves one, or use a ledger with filter='sum'."
            )
        return self.epsilon * self.epsilon / 2

    def renyi(self, order: float) -> float:
        """Return a bound on its Rényi divergence; epsilon bounds the divergence of any order."""
        bound = order * self.concentrated
        return bound if self.epsilon is None or self.delta else min(bound, self.epsilon)

    @property
    def pair(self) -> tuple[float, float]:
        """Its epsilon and delta."""
        if self.epsilon is None:
            raise ValueError(
                "A ledger with filter='sum' adds up epsilons and deltas: give epsilon= and delta= "
                "of the mechanism in place of rho=."
            )
        return self.epsilon, self.delta


def elsewhere(rho: float | None, epsilon: float | None, delta: float) -> Elsewhere:
    """Check a price; a negative one would be a refund.

    >>> elsewhere(None, 0.5, 0.0).renyi(order=2.0)
    0.25
    """
    if (rho is None) == (epsilon is None):
        raise ValueError("Give rho= or epsilon= of the mechanism, and not both.")
    for name, value in {"rho": rho, "epsilon": epsilon, "delta": delta}.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise TypeError(f"{name}={value!r} must be a number.")
    for name, value in {"rho": rho, "epsilon": epsilon}.items():
        if value is not None and not 0 <= value < MOST:
            raise ValueError(f"{name}={value!r} must be at least 0 and finite.")
    if not 0 <= delta < 1 or (rho is not None and delta):
        raise ValueError(f"delta={delta!r} must be at least 0, below 1, and 0 where rho= is given.")
    return Elsewhere(_plain(rho), _plain(epsilon), float(delta))


def _plain(value: float | None) -> float | None:
    return None if value is None else float(value)
