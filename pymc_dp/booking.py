"""Booking a fit's releases in its ledger, each before it is made."""

import sqlite3
from pathlib import Path

from pymc_dp import ledger_file
from pymc_dp.errors import ReleaseError


class Booking:
    """Book the releases of one fit in the file, each before it is made.

    A fork copies the position, and the file takes each position once: whoever comes second stays
    refused, so that a plan's releases are made along one line, whatever their order in it.
    """

    def __init__(self, path: Path, fit: int) -> None:
        self.path, self.fit, self.position = path, fit, 0

    def __call__(self) -> None:
        """Book the next release.

        Raises
        ------
        ReleaseError
            It cannot be booked, so it must not be made.
        """
        try:
            found = ledger_file.book(self.path, self.fit, self.position)
        except sqlite3.Error as error:
            raise ReleaseError(
                f"The release could not be booked in {self.path} ({error}); nothing is handed out."
            ) from error
        if not found:
            raise ReleaseError(
                f"Release {self.position + 1} of fit {self.fit} is booked in {self.path} already, "
                "by a process that was forked from this fit, or is beyond its plan; nothing is "
                "handed out. Let one process alone go on with a fit."
            )
        self.position += 1
