"""What a ledger fixes when it is created."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pymc_dp.filters import FILTERS, best_order
from pymc_dp.release import SENSITIVITY

DEFAULTS = {"neighbours": "add_remove", "unit": "record", "filter": "rdp"}


class Terms(NamedTuple):
    """The terms of a ledger; ``order`` is that of the filter of Rényi divergences."""

    dataset: str
    epsilon: float
    delta: float
    neighbours: str
    unit: str
    filter: str
    order: float


def new_terms(given: dict[str, Any], path: Path) -> Terms:
    """Check the terms of a ledger that is to be made at a path.

    Raises
    ------
    ValueError
        One is missing, or out of its range.
    """
    given = DEFAULTS | given
    for name in ("epsilon", "delta", "dataset"):
        if name not in given:
            raise ValueError(f"{path} does not exist, and to create it {name}= is missing.")
    if not 0 < given["epsilon"] < math.inf:
        raise ValueError(f"epsilon={given['epsilon']!r} must be above 0 and finite.")
    if not 0 < given["delta"] < 1:
        raise ValueError(f"delta={given['delta']!r} must lie strictly between 0 and 1.")
    choices: dict[str, Iterable[str]] = {"neighbours": SENSITIVITY, "filter": FILTERS}
    for name, known in choices.items():
        if given[name] not in set(known):
            raise ValueError(f"{name}={given[name]!r} is unknown: use one of {sorted(known)}.")
    order = best_order(given["epsilon"], given["delta"]) if given["filter"] == "rdp" else 0.0
    return Terms(**given, order=order)
