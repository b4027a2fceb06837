"""What a ledger's file says of one fit, and exact sums of what fits owe."""

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from pymc_dp.ledger.filters import Cost


class Exact(NamedTuple):
    """A cost without rounding."""

    amount: Fraction
    delta: Fraction

    def rounded(self) -> Cost:
        """Return the nearest floating-point numbers, for reports."""
        return Cost(float(self.amount), float(self.delta))


class Line(NamedTuple):
    """The releases of one fit that have one price."""

    price: float
    planned: int
    booked: int


class Entry(NamedTuple):
    """One fit as the file has it."""

    fit: int
    method: str
    upfront: Cost  # owed from the moment in which the plan was set aside
    ended: bool  # whether it can book no further release
    lines: tuple[Line, ...]

    @property
    def planned(self) -> int:
        """How many releases its plan holds."""
        return sum(line.planned for line in self.lines)

    @property
    def booked(self) -> int:
        """How many of them are booked."""
        return sum(line.booked for line in self.lines)

    @property
    def price(self) -> tuple[Cost, dict[float, int]]:
        """What it takes at once, and how many releases there are of each further price."""
        return self.upfront, {line.price: line.planned for line in self.lines}

    @property
    def of_plan(self) -> Exact:
        """What its whole plan costs."""
        return self._with((line.price, line.planned) for line in self.lines)

    @property
    def of_booked(self) -> Exact:
        """What its booked releases cost."""
        return self._with((line.price, line.booked) for line in self.lines)

    @property
    def owed(self) -> Exact:
        """What it takes from the limit: the whole plan while a release may still be booked."""
        return self.of_booked if self.ended else self.of_plan

    def _with(self, releases: Iterable[tuple[float, int]]) -> Exact:
        amount, delta = map(exact, self.upfront)
        return Exact(amount + sum(exact(price) * count for price, count in releases), delta)


def exact(number: float) -> Fraction:
    """Return a number as it is written: in binary, ten times 1e-6 is more than 1e-5."""
    return Fraction(repr(float(number)))


def total(costs: Iterable[Exact]) -> Exact:
    """Add up costs.

    >>> ten = [Entry(i, "dp_advi", Cost(0.1, 1e-6), True, ()) for i in range(10)]
    >>> total(entry.owed for entry in ten).rounded()
    Cost(amount=1.0, delta=1e-05)
    """
    amounts, deltas = zip(Exact(Fraction(), Fraction()), *costs, strict=True)
    return Exact(sum(amounts, Fraction()), sum(deltas, Fraction()))


def difference(limit: Cost, taken: Exact) -> Exact:
    """Return what a limit leaves; negative where it is exceeded."""
    return Exact(exact(limit.amount) - taken.amount, exact(limit.delta) - taken.delta)
