"""The tuned constants of the engine of rounds, and their other values."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

from pymc_dp.engine.constants import Constants

# shares of which the complement is multiplied: they are near 1, and no more than it
NEAR_ONE = {"accepted", "share_after_steps"}


class Constant(NamedTuple):
    """One field of the table of constants."""

    name: str
    value: float

    def times(self, factor: float) -> float:
        """Return the value times a factor; whole numbers stay whole."""
        if self.name in NEAR_ONE:
            return 1 - (1 - self.value) / factor
        other = self.value * factor
        return max(1, round(other)) if isinstance(self.value, int) else other


def constants() -> list[Constant]:
    """Return all constants of the engine."""
    return [Constant(*field) for field in Constants._field_defaults.items()]


@contextmanager
def changed(constant: Constant, value: float) -> Iterator[None]:
    """Give a constant another value."""
    with patch.object(Constants, constant.name, value):
        yield
