"""The file behind a ledger: what is in it, and how several processes write to it.

Every operation opens the file anew, so that nothing is carried over a fork, and whoever writes
holds it alone. What was written is on the disk before the call returns; what was not finished is
undone by the next one to open the file.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from pymc_dp.filters import Cost
from pymc_dp.ledger_terms import Terms

# how long one process waits for another
BUSY_SECONDS = 60.0
# no times of day; of what the data can have a say in, the counts of booked releases alone
TABLES = (
    "CREATE TABLE terms (dataset TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, "
    "neighbours TEXT NOT NULL, unit TEXT NOT NULL, filter TEXT NOT NULL, "
    "renyi_order REAL NOT NULL) STRICT",
    "CREATE TABLE fits (id INTEGER PRIMARY KEY, method TEXT NOT NULL, planned INTEGER NOT NULL, "
    "booked INTEGER NOT NULL, amount REAL NOT NULL CHECK (amount >= 0), "
    "delta REAL NOT NULL CHECK (delta >= 0)) STRICT",
    "CREATE TRIGGER once BEFORE INSERT ON fits WHEN NEW.id IN (SELECT id FROM fits) "
    "BEGIN SELECT RAISE(ABORT, 'a ledger refunds nothing'); END",
    "CREATE TRIGGER stays BEFORE DELETE ON fits "
    "BEGIN SELECT RAISE(ABORT, 'a ledger refunds nothing'); END",
    "CREATE TRIGGER grows BEFORE UPDATE ON fits WHEN NEW.booked != OLD.booked + 1 "
    "OR NEW.booked > OLD.planned OR NEW.planned != OLD.planned OR NEW.amount != OLD.amount "
    "OR NEW.delta != OLD.delta "
    "BEGIN SELECT RAISE(ABORT, 'a ledger refunds nothing'); END",
)


class Booked(NamedTuple):
    """One fit as the file has it."""

    fit: int
    method: str
    planned: int
    booked: int
    cost: Cost


def create(path: Path, terms: Terms) -> None:
    """Make the file, unless another process was faster."""
    with _held(path, "rwc") as db:
        if not db.execute("SELECT name FROM sqlite_master").fetchall():
            for table in TABLES:
                db.execute(table)
            db.execute("INSERT INTO terms VALUES (?, ?, ?, ?, ?, ?, ?)", terms)


def terms_of(path: Path) -> Terms:
    """Read the terms.

    Raises
    ------
    ValueError
        The file is no ledger.
    """
    try:
        with _opened(path) as db:
            [row] = db.execute("SELECT * FROM terms")
            return Terms(*row)
    except (sqlite3.DatabaseError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a ledger ({error}).") from None


def fits_of(path: Path) -> list[Booked]:
    """Read what was set aside, and how much of it was booked."""
    with _opened(path) as db:
        return _fits(db)


def reserve(path: Path, method: str, planned: int, cost: Cost, limit: Cost) -> int | None:
    """Set a cost aside if it is within what is left; return the fit's number."""
    # of NumPy's numbers, SQLite stores whole ones as bytes, and single precision compares coarsely
    planned, cost = int(planned), Cost(*map(float, cost))
    with _held(path) as db:
        left = difference(limit, _fits(db))
        if not (cost.amount <= left.amount and cost.delta <= left.delta):
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


def spent(fits: list[Booked]) -> Cost:
    """Add up costs as they are written: in binary, ten times 1e-6 is more than 1e-5.

    >>> spent([Booked(i, "dp_advi", 1, 1, Cost(0.1, 1e-6)) for i in range(10)])
    Cost(amount=1.0, delta=1e-05)
    """
    amounts = sum(_exact(fit.cost.amount) for fit in fits)
    return Cost(float(amounts), float(sum(_exact(fit.cost.delta) for fit in fits)))


def difference(limit: Cost, fits: list[Booked]) -> Cost:
    """Return what is left."""
    taken = spent(fits)
    parts = [_exact(a) - _exact(b) for a, b in zip(limit, taken, strict=True)]
    return Cost(*map(float, parts))


def _exact(number: float) -> Decimal:
    return Decimal(repr(float(number)))


def _fits(db: sqlite3.Connection) -> list[Booked]:
    rows = db.execute("SELECT id, method, planned, booked, amount, delta FROM fits ORDER BY id")
    return [
        Booked(fit, method, planned, booked, Cost(amount, delta))
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
    uri = f"{path.as_uri()}?mode={mode}"
    file = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    with closing(file) as db:
        db.execute("PRAGMA synchronous=EXTRA")
        yield db
