"""The file behind a ledger: what is in it, and how several processes write to it.

Every operation opens the file anew, so that nothing is carried over a fork, and whoever writes
holds it alone. What was written is on the disk before the call returns; what was not finished is
undone by the next one to open the file.

A fit that has ended can book no release, which the file decides in the transaction that would book
it. It may therefore be ended by anybody, whether or not its process still runs.
"""

import hashlib
import math
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from pymc_dp.ledger.entry import Entry, Exact, Line, difference, total
from pymc_dp.ledger.filters import Cost, Price
from pymc_dp.ledger.terms import Terms

# how long one process waits for another to write, and to create the file
BUSY_SECONDS = 60.0
CREATION_SECONDS = 2.0
# no times of day; of what the data can have a say in, the counts of booked releases alone
TABLES = (
    "CREATE TABLE terms (dataset TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, "
    "neighbours TEXT NOT NULL, unit TEXT NOT NULL, filter TEXT NOT NULL, "
    "renyi_order REAL NOT NULL) STRICT",
    "CREATE TABLE fits (id INTEGER PRIMARY KEY, method TEXT NOT NULL, "
    "amount REAL NOT NULL CHECK (amount BETWEEN 0 AND 1e300), "
    "delta REAL NOT NULL CHECK (delta BETWEEN 0 AND 1e300), "
    "ended INTEGER NOT NULL CHECK (ended IN (0, 1))) STRICT",
    # the releases of a fit that have one price, which is beyond the fit's own amount
    "CREATE TABLE releases (fit INTEGER NOT NULL, "
    "price REAL NOT NULL CHECK (price BETWEEN 0 AND 1e300), planned INTEGER NOT NULL, "
    "booked INTEGER NOT NULL CHECK (booked BETWEEN 0 AND planned), "
    "PRIMARY KEY (fit, price)) STRICT, WITHOUT ROWID",  # no index to disagree with
    "CREATE TABLE seal (digest TEXT NOT NULL) STRICT",
    *(
        f"CREATE TRIGGER {name} BEFORE {when} "
        "BEGIN SELECT RAISE(ABORT, 'a ledger keeps its terms, and what was booked'); END"
        for name, when in {
            "terms_stay": "DELETE ON terms",
            "terms_same": "UPDATE ON terms",
            "terms_once": "INSERT ON terms WHEN EXISTS (SELECT * FROM terms)",
            "fits_stay": "DELETE ON fits",
            "fits_once": "INSERT ON fits WHEN NEW.id IN (SELECT id FROM fits)",
            "fits_cost": "UPDATE ON fits WHEN (NEW.id, NEW.method, NEW.amount, NEW.delta) "
            "!= (OLD.id, OLD.method, OLD.amount, OLD.delta)",
            "releases_stay": "DELETE ON releases",
            "releases_once": "INSERT ON releases WHEN EXISTS "
            "(SELECT * FROM releases WHERE fit = NEW.fit AND price = NEW.price)",
            "releases_grow": "UPDATE ON releases WHEN NEW.booked <= OLD.booked "
            "OR (NEW.fit, NEW.price, NEW.planned) != (OLD.fit, OLD.price, OLD.planned) "
            "OR (SELECT ended FROM fits WHERE id = OLD.fit)",
        }.items()
    ),
)


def create(path: Path, terms: Terms) -> None:
    """Make the file, unless another process was faster."""
    try:
        with locked(path, "rwc") as db:
            if not db.execute("SELECT name FROM sqlite_master").fetchall():
                for table in TABLES:
                    db.execute(table)
                db.execute("INSERT INTO terms VALUES (?, ?, ?, ?, ?, ?, ?)", terms)
                db.execute("INSERT INTO seal VALUES (?)", (_digest(_rows(db)),))
    except sqlite3.Error as error:
        raise ValueError(f"The ledger {path} could not be created ({error}).") from None


def terms_of(path: Path) -> Terms:
    """Read the terms of a ledger that is whole, once it is no longer being created."""
    deadline = time.monotonic() + CREATION_SECONDS
    while path.is_file() and path.stat().st_size == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        with _opened(path) as db:
            db.execute("BEGIN")  # all tables at one moment
            [[state]] = db.execute("PRAGMA quick_check(1)")
            if state != "ok":
                raise ValueError(f"it is damaged: {state}")
            found = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
            if {sql for [sql] in found} != set(TABLES):
                raise ValueError("it has other tables, or is of another version of pymc_dp")
            return _read(db)[0]
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a ledger ({error}).") from None


def fits_of(path: Path) -> list[Entry]:
    """Read what was set aside, and how much of it was booked."""
    with _opened(path) as db:
        db.execute("BEGIN")
        return _read(db)[1]


def reserve(path: Path, terms: Terms, method: str, price: Price, limit: Cost) -> int | None:
    """Set a price aside if it is within what is left; return the fit's number."""
    # of NumPy's numbers, SQLite stores whole ones as bytes, and single precision compares coarsely
    upfront = Cost(*map(float, price.upfront))
    lines = [(float(amount), int(count), 0) for amount, count in price.counts.items()]
    if not all(map(math.isfinite, [*upfront, *(amount for amount, *_ in lines)])):
        return None
    with changing(path, terms) as (db, fits):
        new = Entry(0, method, upfront, False, tuple(Line(*line) for line in lines))
        if not _within(limit, [new.of_plan, *(entry.owed for entry in fits)]):
            return None
        added = db.execute("INSERT INTO fits VALUES (NULL, ?, ?, ?, 0)", (method, *upfront))
        rows = [(added.lastrowid, *line) for line in lines]
        db.executemany("INSERT INTO releases VALUES (?, ?, ?, ?)", rows)
        return added.lastrowid


def reopen(path: Path, terms: Terms, fit: int, limit: Cost) -> bool:
    """Set the rest of a fit's plan aside again, if it is within what is left and was freed."""
    with changing(path, terms) as (db, fits):
        if not _within(limit, [e.of_plan if e.fit == fit else e.owed for e in fits]):
            return False
        db.execute("UPDATE fits SET ended = 0 WHERE id = ?", (fit,))
        return True


def book(path: Path, fit: int, position: int, price: float) -> bool:
    """Book a fit's release at a position, from 0; return whether it was the next in the plan."""
    one_more = "UPDATE releases SET booked = booked + 1 WHERE fit = ? AND price = ?"
    with changing(path) as (db, fits):
        if (fit, False, position) not in [(e.fit, e.ended, e.booked) for e in fits]:
            return False
        return db.execute(f"{one_more} AND booked < planned", (fit, float(price))).rowcount == 1


def settle(path: Path, fit: int) -> bool:
    """End a fit, which then owes what it has booked; return whether it had not ended yet."""
    with changing(path) as (db, _):
        ended = db.execute("UPDATE fits SET ended = 1 WHERE id = ? AND NOT ended", (fit,))
        return ended.rowcount == 1


def pay_whole(path: Path, fit: int) -> None:
    """End a fit that has not ended yet, and book its whole plan."""
    rest = "UPDATE releases SET booked = planned WHERE fit = ? AND booked < planned"
    with changing(path) as (db, fits):
        if (fit, False) in [(entry.fit, entry.ended) for entry in fits]:
            db.execute(rest, (fit,))
            db.execute("UPDATE fits SET ended = 1 WHERE id = ?", (fit,))


def _within(limit: Cost, costs: Iterable[Exact]) -> bool:
    return all(left >= 0 for left in difference(limit, total(costs)))


def _read(db: Connection) -> tuple[Terms, list[Entry]]:
    """Read all rows, or refuse those that a disk has damaged; the digest stops no forger."""
    rows = _rows(db)
    if db.execute("SELECT digest FROM seal").fetchall() != [(_digest(rows),)]:
        raise sqlite3.DatabaseError("it is damaged: its rows and their digest do not match")
    [terms], fits, releases = rows
    lines: dict[int, list[Line]] = {fit: [] for fit, *_ in fits}
    for fit, *line in releases:
        lines[fit].append(Line(*line))
    return Terms(*terms), [
        Entry(fit, method, Cost(amount, delta), bool(ended), tuple(lines[fit]))
        for fit, method, amount, delta, ended in fits
    ]


def _rows(db: Connection) -> list[list[Any]]:
    return [db.execute(f"SELECT * FROM {x}").fetchall() for x in ("terms", "fits", "releases")]


def _digest(rows: list[list[Any]]) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()


@contextmanager
def changing(path: Path, terms: Terms | None = None) -> Iterator[tuple[Connection, list[Entry]]]:
    """Hold a ledger that is whole, with its fits, and write the digest of what is left.

    A file of other terms is refused: the limit is not the right one for them.
    """
    with locked(path) as db:
        found, fits = _read(db)
        if terms not in (None, found):
            raise ValueError(f"{path} is another ledger than the one that was opened: reopen it.")
        yield db, fits
        if db.total_changes:
            db.execute("UPDATE seal SET digest = ?", (_digest(_rows(db)),))


@contextmanager
def locked(path: Path, mode: str = "rw") -> Iterator[Connection]:
    """Lock a file until the block ends; an error takes back what was written in it.

    A `pymc_dp.driver.run` is written in the same way.
    """
    with _opened(path, mode) as db:
        db.execute("PRAGMA cache_spill=OFF")  # nothing is on the disk before the block ends
        db.execute("BEGIN IMMEDIATE")
        yield db
        db.execute("COMMIT")


@contextmanager
def _opened(path: Path, mode: str = "rw") -> Iterator[Connection]:
    if path.is_file() and path.stat().st_nlink > 1:
        # each name has a journal of its own, so that a crash under one is not undone under another
        raise sqlite3.OperationalError("the file has several names; keep one of its hard links")
    uri = f"{path.as_uri()}?mode={mode}"
    file = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    with closing(file) as db:
        db.execute("PRAGMA synchronous=EXTRA")
        yield db
