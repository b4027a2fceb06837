"""Plans that are set aside in a ledger's file, gone on with, and ended."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from pymc_dp.accounting.plan import Plan
from pymc_dp.errors import ReleaseError
from pymc_dp.ledger import file as ledger_file
from pymc_dp.ledger.booking import Booking
from pymc_dp.ledger.entry import Entry
from pymc_dp.ledger.filters import FILTERS, Cost, Filter, Spending
from pymc_dp.ledger.report import balances
from pymc_dp.ledger.terms import Terms, new_terms, refuse_other_terms


class Account(NamedTuple):
    """A ledger's file, with what the ledger fixes; `Ledger` says what each method does."""

    path: Path
    terms: Terms

    @classmethod
    def opened(cls, path: str | os.PathLike[str], given: dict[str, Any]) -> Self:
        """Open the file at a path, or create it; its terms must be those given."""
        # a link may later point to another file, with other terms
        path = Path(path).resolve()
        if not path.exists():
            ledger_file.create(path, new_terms(given, path))
        terms = ledger_file.terms_of(path)
        refuse_other_terms(terms, given, path)
        return cls(path, terms)

    @property
    def filter(self) -> Filter:
        """How costs add up."""
        return FILTERS[self.terms.filter](self.terms.epsilon, self.terms.delta, self.terms.order)

    @property
    def fits(self) -> list[Entry]:
        """All fits as the file has them now."""
        return ledger_file.fits_of(self.path)

    def reserve(self, what: str, spending: Spending) -> Booking:
        """Set a price aside, or refuse it and spend nothing."""
        price = self.filter.price(spending)
        with self._writing(f"{what!r} could not be set aside", "; nothing is released"):
            fit = ledger_file.reserve(self.path, self.terms, what, price, self.filter.limit)
        if fit is None:
            cost = self.filter.words(self.filter.cost(spending))
            raise ValueError(
                f"{what!r} costs {cost} in {self.filter.measure}, and {self._left()}. Nothing was "
                "spent; add more noise, or release less (pymc_dp.plan says what a fit costs)."
            )
        return Booking(self.path, fit, price.amounts)

    def resume(self, fit: int, method: str, plan: Plan, made: int) -> Booking:
        """Go on with a plan that is set aside, of which ``made`` releases are kept."""
        price, entry = self.filter.price(plan), self._entry(fit)
        if entry is None or (entry.method, entry.price) != (method, (price.upfront, price.counts)):
            raise ValueError(
                f"{self.path} has set no such plan aside for fit {fit}. Nothing was released."
            )
        if entry.booked != made:
            raise ValueError(
                f"{self.path} has booked {entry.booked} releases of this fit, and the checkpoint "
                f"holds {made}: it is an old copy, another process has gone on, or the fit ended "
                "in the moment in which it wrote a release. A release has one value alone, so that "
                "this fit cannot go on. Nothing was released."
            )
        self._reopen(entry)
        return Booking(self.path, fit, price.amounts, made)

    def _reopen(self, entry: Entry) -> None:
        fit, words = entry.fit, self.filter.words
        with self._writing(f"Fit {fit} could not go on", "; nothing is released"):
            reopened = ledger_file.reopen(self.path, self.terms, fit, self.filter.limit)
        if not reopened:
            raise ValueError(
                f"Fit {fit} was interrupted, which freed what it had not booked, and other fits "
                f"have taken it: the whole plan costs {words(entry.of_plan.rounded())} in "
                f"{self.filter.measure}, {words(entry.of_booked.rounded())} of it are booked, and "
                f"{self._left()}. Nothing more was spent; the fit cannot go on unless one that "
                "still holds its plan ends early."
            )

    def settle(self, fit: int) -> None:
        """End a fit: what it has booked stays owed, the rest is free."""
        with self._writing(f"Fit {fit} could not be settled"):
            ended = ledger_file.settle(self.path, fit)
        if not ended:
            state = "holds no such fit" if self._entry(fit) is None else "has settled it already"
            raise ValueError(f"Fit {fit!r} cannot be settled: {self.path} {state}.")

    @contextmanager
    def _writing(self, failed: str, so: str = "") -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ReleaseError(f"{failed} in {self.path} ({error}){so}.") from error

    def _left(self) -> str:
        amount, delta, _ = balances(self.filter, self.fits)[1]
        left = self.filter.words(Cost(amount, delta))
        return f"the ledger of {self.terms.dataset!r} has {left} left"

    def _entry(self, fit: int) -> Entry | None:
        return next((entry for entry in self.fits if entry.fit == fit), None)
