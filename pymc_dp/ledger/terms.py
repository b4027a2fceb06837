"""What a ledger fixes when it is created."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pymc_dp.accounting.plan import Neighbours, Plan
from pymc_dp.ledger.filters import FILTERS, best_order
from pymc_dp.privacy.noise import TEST_SEED

DEFAULTS = {"neighbours": "add_remove", "unit": "record", "filter": "rdp"}


class Terms(NamedTuple):
    """The terms of a ledger."""

    dataset: str
    epsilon: float
    delta: float
    neighbours: str
    unit: str
    filter: str
    order: float  # of the filter of Rényi divergences


def new_terms(given: dict[str, Any], path: Path) -> Terms:
    """Check the terms of a ledger that is to be made at a path; none may be missing."""
    given = DEFAULTS | given
    for name in ("epsilon", "delta", "dataset"):
        if name not in given:
            raise ValueError(f"{path} does not exist, and to create it {name}= is missing.")
    for name in ("dataset", "unit"):
        if not isinstance(given[name], str) or not (given[name] and given[name].isprintable()):
            raise TypeError(f"{name}={given[name]!r} must be text.")
    if not 0 < given["epsilon"] < math.inf:
        raise ValueError(f"epsilon={given['epsilon']!r} must be above 0 and finite.")
    if not 0 < given["delta"] < 1:
        raise ValueError(f"delta={given['delta']!r} must lie strictly between 0 and 1.")
    choices: dict[str, Iterable[str]] = {
        "neighbours": [relation.value for relation in Neighbours],
        "filter": FILTERS,
    }
    for name, known in choices.items():
        if given[name] not in set(known):
            raise ValueError(f"{name}={given[name]!r} is unknown: use one of {sorted(known)}.")
    order = best_order(given["epsilon"], given["delta"]) if given["filter"] == "rdp" else 0.0
    return Terms(**given, order=order)


def refuse_other_terms(stored: Terms, given: dict[str, Any], path: Path) -> None:
    """Refuse terms that differ from those which a ledger was created with."""
    for name, value in given.items():
        kept = getattr(stored, name)
        if value != kept:
            raise ValueError(
                f"{name}={value!r} is not the ledger's: {path} was created with {name}={kept!r}, "
                f"and keeps its terms. Leave {name}= out."
            )


def refuse_other_fits(stored: Terms, plan: Plan) -> None:
    """Refuse a fit whose guarantee differs from a ledger's, or is none."""
    terms = {"neighbours": plan.neighbours.value, "unit": plan.unit or DEFAULTS["unit"]}
    for name, value in terms.items():
        kept = getattr(stored, name)
        if value != kept:
            raise ValueError(
                f"The fit's {name}={value!r} is not that of the ledger, {kept!r}: costs of "
                "different guarantees do not add up."
            )
    if any(release.noise_multiplier == 0 for release in plan.releases):
        raise ValueError("A fit without noise is not private: no budget is large enough.")
    if not plan.all_sums:
        raise ValueError("A ledger takes noisy sums alone: no proof covers this fit's epsilon.")
    if TEST_SEED.get() is not None:
        raise ValueError("Test mode gives no privacy: a ledger takes no fits that were made in it.")
