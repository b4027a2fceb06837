"""Checks of a caller's arguments that are the same everywhere."""

from numbers import Real
from typing import Any

import numpy as np


def check_count(name: str, value: Any) -> None:
    """Refuse what is not a whole number of at least 1."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}={value!r} must be a whole number, at least 1.")


def refuse_text(name: str, value: Any) -> None:
    """Refuse a string where a number is asked for."""
    if isinstance(value, str):
        raise TypeError(f"{name}={value!r} is text: give a number, without quotes.")


def checked_number(name: str, value: Any) -> float | None:
    """Return a number as a float, and None as it is; refuse anything else."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
        raise TypeError(f"{name}={value!r} must be a number.")
    return None if value is None else float(value)
