"""Checks of a caller's arguments that are the same everywhere."""

import math
from numbers import Real
from typing import Any

import numpy as np

MOST = 10**6  # no method makes more releases, nor takes more draws a release
SMALLEST, LARGEST = 1e-60, 1e60  # powers and reciprocals of such numbers are numbers, too


def check_count(name: str, value: Any, most: int = MOST) -> None:
    """Refuse what is not a whole number of at least 1."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 1 <= value <= most:
        raise ValueError(f"{name}={value!r:.40} must be a whole number, from 1 to {most:,}.")


def checked_number(name: str, value: Any) -> float | None:
    """Return a number as a float, and None as it is; refuse anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        hint = ", without quotes" if isinstance(value, str) else ""
        raise TypeError(f"{name}={value!r:.40} must be a number{hint}.")
    size: Any = abs(value if isinstance(value, int) else float(value))
    if 0 < size < SMALLEST or LARGEST < size < math.inf:
        raise ValueError(f"{name}={value!r:.40} must be of a size from {SMALLEST} to {LARGEST}.")
    return float(value)
