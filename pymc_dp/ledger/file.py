"""The file behind a ledger: what is in it, and how several processes write to it.

Every operation opens the file anew, so that nothing is carried over a fork, and whoever writes
holds it alone. What was written is on the disk before the call returns; what was not finished is
undone by the next one to open the file.
"""

import math
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from pymc_dp.errors import ReleaseError
from pymc_dp.ledger.filters import Cost
from pymc_dp.ledger.terms import Terms

# how long one process waits for another to write, and to create the file
BUSY_SECONDS = 60.0
CREATION_SECONDS = 2.0
# no times of day; of what the data can have a say in, the counts of booked releases alone
TABLES = (
    "CREATE TABLE terms (dataset TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, "
    "neighbours TEXT NOT NULL, unit TEXT NOT NULL, filter TEXT NOT NULL, "
    "renyi_order REAL NOT NULL) STRICT",
    "CREATE TABLE fits (id INTEGER PRIMARY KEY, method TEXT NOT NULL, planned INTEGER NOT NULL, "
    "booked INTEGER NOT NULL, amount REAL NOT NULL CHECK (amount BETWEEN 0 AND 1e300), "
    "delta REAL NOT NULL CHECK (delta BETWEEN 0 AND 1e300)) STRICT",
    *(
        f"CREATE TRIGGER terms_{change} BEFORE {change} ON terms {when}"
        "BEGIN SELECT RAISE(ABORT, 'a ledger keeps its terms'); END"
        for change, when in {
            "UPDATE": "",
            "DELETE": "",
            "INSERT": "WHEN EXISTS (SELECT * FROM terms) ",
        }.items()
    ),
    "CREATE TRIGGER once BEFORE INSERT ON fits WHEN NEW.id IN (SELECT id FROM fits) "
    "BEGIN SELECT RAISE(ABORT, 'a ledger refunds nothing'); END",
    "CREATE TRIGGER stays BEFORE DELETE ON fits "
    "BEGIN SELECT RAISE(ABORT, 'a ledger refunds nothing'); END",
    "CREATE TRIGGER grows BEFORE UPDATE ON fits WHEN NEW.booked != OLD.booked + 1 "
    "OR NEW.booked > OLD.planned OR NEW.planned != OLD.planned OR NEW.amount != OLD.amount "
    "OR NEW.delta != OLD.delta "
    "BEGIN SELECT RAISE(ABORT, 'a ledger refunds nothing'); END",
)


class Entry(NamedTuple):
    """One fit as the file has it."""

    fit: int
    method: str
    planned: int
    booked: int
    cost: Cost


def create(path: Path, terms: Terms) -> None:
    """Make the file, unless another process was faster."""
    try:
        with _held(path, "rwc") as db:
            if not db.execute("SELECT name FROM sqlite_master").fetchall():
                for table in TABLES:
                    db.execute(table)
                db.execute("INSERT INTO terms VALUES (?, ?, ?, ?, ?, ?, ?)", terms)
    except sqlite3.Error as error:
        raise ValueError(f"The ledger {path} could not be created ({error}).") from None


def terms_of(path: Path) -> Terms:
    """Read the terms of a ledger that is whole, once it is no longer being created."""
    deadline = time.monotonic() + CREATION_SECONDS
    while path.is_file() and path.stat().st_size == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        with _opened(path) as db:
            [[state]] = db.execute("PRAGMA quick_check(1)")
            if state != "ok":
                raise ValueError(f"it is damaged: {state}")
            return _terms(db)
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a ledger ({error}).") from None


def fits_of(path: Path) -> list[Entry]:
    """Read what was set aside, and how much of it was booked."""
    with _opened(path) as db:
        return _fits(db)


def reserve(
    path: Path, terms: Terms, method: str, planned: int, cost: Cost, limit: Cost
) -> int | None:
    """Set a cost aside if it is within what is left; return the fit's number.

    A file that has other terms by now is refused: the limit is not the right one for them.
    """
    # of NumPy's numbers, SQLite stores whole ones as bytes, and single precision compares coarsely
    planned, cost = int(planned), Cost(*map(float, cost))
    with _held(path) as db:
        if _terms(db) != terms:
            raise ValueError(
                f"{path} is another ledger than the one that was opened: open it again, with "
                "Ledger(path)."
            )
        if not _within(limit, [cost, *(entry.cost for entry in _fits(db))]):
            return None
        added = db.execute(
            "INSERT INTO fits (method, planned, booked, amount, delta) VALUES (?, ?, 0, ?, ?)",
            (method, planned, *cost),
        )
        return added.lastrowid


def book(path: Path, fit: int, position: int) -> bool:
    """Book a fit's release at a position, from 0; return whether it was the next in the plan."""
    with _held(path) as db:
        found = db.execute(
            "UPDATE fits SET booked = booked + 1 WHERE id = ? AND booked = ? AND booked < planned",
            (fit, position),
        )
        return found.rowcount == 1


class Booking:
    """Book the releases of one fit in the file, each before it is handed out.

    A fork copies the position, and the file takes each position once: whoever comes second stays
    refused, so that a plan's releases are made along one line, whatever their order in it.
    """

    def __init__(self, path: Path, fit: int, position: int = 0) -> None:
        self.path, self.fit, self.position = path, fit, position

    def __call__(self) -> None:
        """Book the next release, which must not be handed out if this raises a ReleaseError."""
        try:
            found = book(self.path, self.fit, self.position)
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


def spent(fits: Iterable[Entry]) -> Cost:
    """Add up costs.

    >>> spent([Entry(i, "dp_advi", 1, 1, Cost(0.1, 1e-6)) for i in range(10)])
    Cost(amount=1.0, delta=1e-05)
    """
    return Cost(*map(float, _sums(fit.cost for fit in fits)))


def difference(limit: Cost, fits: Iterable[Entry]) -> Cost:
    """Return what is left."""
    taken = _sums(fit.cost for fit in fits)
    return Cost(*(float(_exact(a) - b) for a, b in zip(limit, taken, strict=True)))


def _within(limit: Cost, costs: list[Cost]) -> bool:
    if not all(math.isfinite(number) for cost in costs for number in cost):
        return False
    return all(a <= _exact(b) for a, b in zip(_sums(costs), limit, strict=True))


def _sums(costs: Iterable[Cost]) -> tuple[Fraction, Fraction]:
    amounts, deltas = zip(Cost(0.0), *costs, strict=True)
    return sum(map(_exact, amounts), Fraction()), sum(map(_exact, deltas), Fraction())


def _exact(number: float) -> Fraction:
    """Return a number as it is written: in binary, ten times 1e-6 is more than 1e-5."""
    return Fraction(repr(float(number)))


def _terms(db: sqlite3.Connection) -> Terms:
    [row] = db.execute("SELECT * FROM terms")
    return Terms(*row)


def _fits(db: sqlite3.Connection) -> list[Entry]:
    rows = db.execute("SELECT id, method, planned, booked, amount, delta FROM fits ORDER BY id")
    return [
        Entry(fit, method, planned, booked, Cost(amount, delta))
        for fit, method, planned, booked, amount, delta in rows
    ]


@contextmanager
def _held(path: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    """Hold the file alone until the block ends; an error takes back what was written in it."""
    with _opened(path, mode) as db:
        db.execute("BEGIN IMMEDIATE")
        yield db
        db.execute("COMMIT")


@contextmanager
def _opened(path: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    if path.is_file() and path.stat().st_nlink > 1:
        # each name has a journal of its own, so that a crash under one is not undone under another
        raise sqlite3.OperationalError("the file has several names; keep one of its hard links")
    uri = f"{path.as_uri()}?mode={mode}"
    file = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    with closing(file) as db:
        db.execute("PRAGMA synchronous=EXTRA")
        yield db
