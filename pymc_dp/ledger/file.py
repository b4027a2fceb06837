"""The file behind a ledger: fits and exact sums of what they owe, terms, and operations.

Every operation opens the file anew, so that nothing is carried over a fork, and whoever writes
locks it alone. What was written is on the disk before the call returns; what was not finished is
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
from fractions import Fraction
from pathlib import Path
from sqlite3 import Connection
from typing import Any, NamedTuple

from pymc_dp.accounting.plan import Neighbours, Plan
from pymc_dp.ledger.filters import FILTERS, Cost, Price, best_order
from pymc_dp.privacy.randomness import TEST_SEED


class Exact(NamedTuple):
    """A cost without rounding."""

    amount: Fraction
    delta: Fraction

    def rounded(self) -> Cost:
        """Return the nearest floating-point numbers, for reports."""
        return Cost(float(self.amount), float(self.delta))


class Line(NamedTuple):
    """The releases of one fit that have one price."""

    price: float
    planned: int
    booked: int


class Entry(NamedTuple):
    """One fit as the file has it."""

    fit: int
    method: str
    upfront: Cost  # owed from the moment in which the plan was set aside
    ended: bool  # whether it can book no further release
    lines: tuple[Line, ...]

    @property
    def planned(self) -> int:
        """How many releases its plan holds."""
        return sum(line.planned for line in self.lines)

    @property
    def booked(self) -> int:
        """How many of them are booked."""
        return sum(line.booked for line in self.lines)

    @property
    def of_plan(self) -> Exact:
        """What its whole plan costs."""
        return self._with((line.price, line.planned) for line in self.lines)

    @property
    def of_booked(self) -> Exact:
        """What its booked releases cost."""
        return self._with((line.price, line.booked) for line in self.lines)

    @property
    def owed(self) -> Exact:
        """What it takes from the limit: the whole plan while a release may still be booked."""
        return self.of_booked if self.ended else self.of_plan

    def _with(self, releases: Iterable[tuple[float, int]]) -> Exact:
        amount, delta = map(exact, self.upfront)
        return Exact(amount + sum(exact(price) * count for price, count in releases), delta)


def exact(number: float) -> Fraction:
    """Return a number as it is written: in binary, ten times 1e-6 is more than 1e-5."""
    return Fraction(repr(float(number)))


def total(costs: Iterable[Exact]) -> Exact:
    """Add up costs.

    >>> ten = [Entry(i, "dp_advi", Cost(0.1, 1e-6), True, ()) for i in range(10)]
    >>> total(entry.owed for entry in ten).rounded()
    Cost(amount=1.0, delta=1e-05)
    """
    amounts, deltas = zip(Exact(Fraction(), Fraction()), *costs, strict=True)
    return Exact(sum(amounts, Fraction()), sum(deltas, Fraction()))


def difference(limit: Cost, taken: Exact) -> Exact:
    """Return what a limit leaves; negative where it is exceeded."""
    amount, delta = map(exact, limit)
    return Exact(amount - taken.amount, delta - taken.delta)


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
    given["neighbours"] = Neighbours(given["neighbours"]).value
    if given["filter"] not in FILTERS:
        raise ValueError(f"filter={given['filter']!r} is unknown: use one of {sorted(FILTERS)}.")
    order = best_order(given["epsilon"], given["delta"]) if given["filter"] == "rdp" else 0.0
    return Terms(**given, order=order)


def refuse_other_fits(stored: Terms, plan: Plan) -> None:
    """Refuse a fit whose guarantee differs from a ledger's, or is none."""
    terms = {"neighbours": plan.neighbours.value, "unit": plan.unit or DEFAULTS["unit"]}
    for name, value in terms.items():
        kept = getattr(stored, name)
        if value != kept:
            text = f"The fit's {name}={value!r} is not that of the ledger, {kept!r}"
            raise ValueError(f"{text}: costs of different guarantees do not add up.")
    if any(release.noise_multiplier == 0 for release in plan.releases):
        raise ValueError("A fit without noise is not private: no budget is large enough.")
    if not plan.all_sums:
        raise ValueError("A ledger takes noisy sums alone: no proof covers this fit's epsilon.")
    if TEST_SEED.get() is not None:
        raise ValueError("Test mode gives no privacy: a ledger takes no fits that were made in it.")


# how long one process waits for another to write, and to create the file
BUSY_SECONDS, CREATION_SECONDS = 60.0, 2.0
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


def settle(path: Path, fit: int, *, whole: bool = False) -> bool:
    """End a fit, which owes what it has booked, or all; return whether it had not ended yet."""
    rest = "UPDATE releases SET booked = planned WHERE fit = ? AND booked < planned"
    with changing(path) as (db, fits):
        if (fit, False) not in [(entry.fit, entry.ended) for entry in fits]:
            return False
        if whole:
            db.execute(rest, (fit,))
        db.execute("UPDATE fits SET ended = 1 WHERE id = ?", (fit,))
        return True


def _within(limit: Cost, costs: Iterable[Exact]) -> bool:
    return min(difference(limit, total(costs))) >= 0


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
    """Hold a ledger that is whole, with its fits, and write the digest of what is left."""
    with locked(path) as db:
        found, fits = _read(db)
        if terms not in (None, found):
            raise ValueError(f"{path} is another ledger than the one that was opened: reopen it.")
        yield db, fits
        if db.total_changes:
            db.execute("UPDATE seal SET digest = ?", (_digest(_rows(db)),))


@contextmanager
def locked(path: Path, mode: str = "rw") -> Iterator[Connection]:
    """Lock a file until the block ends; an error takes back what was written in it."""
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
