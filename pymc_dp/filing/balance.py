"""What a result's ledger says in a record: its terms, and a balance that reads no data."""

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from pymc_dp.ledger.file import Entry
from pymc_dp.ledger.ledger import Account, Ledger, balances, open_ledger


class LedgerState(NamedTuple):
    """Terms and balance of a ledger."""

    dataset: str
    epsilon: float  # of all fits together
    delta: float
    neighbours: str
    unit: str
    filter: str
    fits: int
    # epsilons at the ledger's delta, as if all fits had made all planned releases: how far a fit
    # that ended early went may depend on the data, and is not for publication
    spent: float
    left: float

    def __str__(self) -> str:
        return (
            f"Ledger of {self.dataset!r}: ({self.epsilon:g}, {self.delta:g})-differential privacy "
            f"per {self.unit} ({self.neighbours}) for all fits together. Its {self.fits} fits, "
            f"this one among them, are counted as planned: together they spend an epsilon of at "
            f"most {self.spent:.4g} if no setting depended on an earlier result, and leave at "
            f"least {self.left:.4g} for a fit of all records."
        )


def ledger_state(
    ledger: Ledger | str | os.PathLike[str] | None, attrs: Mapping[str, Any]
) -> LedgerState | None:
    """Return the state of the ledger of a result, or refuse one that does not hold its fit."""
    opened = open_ledger(ledger)
    if opened is None:
        return None
    account = Account.opened(opened.path, {})
    terms, fits = account.terms, account.fits
    _refuse_others(account, attrs)
    # whole plans may exceed a limit that fits kept by ending early: then nothing is left
    spent, left = balances(account.filter, [fit._replace(ended=False) for fit in fits])
    return LedgerState(*terms[:6], len(fits), spent.epsilon, left.epsilon)


def _refuse_others(account: Account, attrs: Mapping[str, Any]) -> None:
    terms = account.terms
    unit = attrs.get("unit", "record")
    if (terms.neighbours, terms.unit) != (attrs["neighbours"], unit):
        raise ValueError(
            f"The ledger counts {terms.neighbours} neighbours and the unit {terms.unit!r}, the "
            f"result {attrs['neighbours']} and {unit!r}: it is not the result's ledger."
        )
    if not any(_is_of(fit, attrs) for fit in account.fits):
        raise ValueError(
            f"The ledger of {terms.dataset!r} holds no fit of method={attrs['method']!r} with "
            f"{attrs['releases']} releases: give the ledger that the fit was booked in."
        )


def _is_of(fit: Entry, attrs: Mapping[str, Any]) -> bool:
    """Whether an entry can be a result's: a result does not say under which number it is booked."""
    if "selected" in attrs:
        return fit.method == f"tune of {len(json.loads(attrs['selected_from']))} settings"
    return (fit.method, fit.planned) == (attrs["method"], attrs["releases"])
