"""The account of one fit: its releases are booked one by one, and it is settled at its end."""

import os
import sqlite3
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from pymc_dp.accounting.plan import Release
from pymc_dp.errors import PrivacyWarning, ReleaseError, UnbookedError, UnreadableError
from pymc_dp.ledger import file as ledger_file


class Booking:
    """Book the releases of one fit in the file, each before it is handed out.

    A fork copies the position, and the file takes each position once: whoever comes second stays
    refused, so that a plan's releases are made along one line, whatever their order in it.

    As a context manager it settles the fit when the block ends, also by an interrupt: the releases
    that are booked are owed. A release that failed may have done so because of the records, and the
    price of a fit must not tell: such a fit owes its whole plan for good. After any other error it
    owes its plan until it goes on or `Ledger.settle` ends it, as if its process had been killed.
    """

    def __init__(
        self, path: Path, fit: int, amounts: Mapping[Release, float], position: int = 0
    ) -> None:
        self.path, self.fit, self.position = path, fit, position
        self._amounts = amounts
        self._process = os.getpid()

    def __call__(self, release: Release | None = None) -> None:
        """Book a release, which must not be handed out if this raises an UnbookedError."""
        price = 0.0 if release is None else self._amounts.get(release, 0.0)
        try:
            if not ledger_file.book(self.path, self.fit, self.position, price):
                raise UnbookedError(self._refusal())
        except sqlite3.Error as error:
            raise UnbookedError(
                f"The release could not be booked in {self.path} ({error}); nothing is handed out."
            ) from error
        self.position += 1

    def _refusal(self) -> str:
        if any(entry.ended for entry in ledger_file.fits_of(self.path) if entry.fit == self.fit):
            return (
                f"Fit {self.fit} was settled in {self.path} while it ran, and what it had not "
                "booked was freed: it can make no further release. Nothing is handed out."
            )
        return (
            f"Release {self.position + 1} of fit {self.fit} is booked in {self.path} already, "
            "by a process that was forked from this fit, or is beyond its plan; nothing is "
            "handed out. Let one process alone go on with a fit."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._process != os.getpid():
            return  # the fit belongs to the process that this one was forked from
        with suppress(sqlite3.Error):  # the whole plan stays owed, as the report says
            match error:
                case None | KeyboardInterrupt() | SystemExit():
                    ledger_file.settle(self.path, self.fit)
                case UnreadableError() | UnbookedError():
                    pass  # not because of any value
                case ReleaseError():
                    self._pay_whole()

    def _pay_whole(self) -> None:
        try:
            ledger_file.pay_whole(self.path, self.fit)
        except sqlite3.Error as error:
            warnings.warn(
                f"A release of fit {self.fit} failed, so the fit owes its whole plan, but this "
                f"could not be written to {self.path} ({error}): do not settle it.",
                PrivacyWarning,
                stacklevel=3,
            )
