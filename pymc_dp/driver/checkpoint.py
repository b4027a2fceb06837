"""What an interrupted fit has released so far, in a file, so that the same call goes on.

A state is a function of the releases and of public draws. The file therefore holds the released
vectors and the state of the public generator, and no state: the fit is computed again from them.
It is an SQLite file, since a release must be written as a whole or not at all, and reading numbers
from it runs no code.

With a ledger, a release is booked between its computation and the moment when it is written. What
is booked is never made again, so that no copy of the file gives a release a second value.
"""

import hashlib
import json
import operator
import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import toposort

from pymc_dp.accounting.plan import Release
from pymc_dp.driver.setup import Setup
from pymc_dp.errors import UnbookedError, UnreadableError
from pymc_dp.ledger.file import locked
from pymc_dp.ledger.ledger import Booking, Ledger
from pymc_dp.model import Records
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.privacy.noise import TEST_SEED
from pymc_dp.privacy.query import Noisy, Query
from pymc_dp.privacy.wall import PrivacyWall

TABLES = (
    "CREATE TABLE fit (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE releases (position INTEGER PRIMARY KEY, name TEXT NOT NULL, value BLOB NOT NULL, "
    "sd REAL NOT NULL, sample_rate REAL NOT NULL) STRICT",
)


class Kept(NamedTuple):
    """A release as the file has it."""

    name: str
    noisy: Noisy


class Checkpoint:
    """The releases of one fit, in a file that is created if it does not exist.

    Raises ValueError where the file is of another fit, where a release has failed, or where the
    file has moved: two files of one fit would go on to two different values of one release. A copy
    that was moved back to where the file was is seen with a ledger alone.
    """

    def __init__(
        self, path: str | os.PathLike[str], setup: Setup, seed: int | None, ledger: Ledger | None
    ) -> None:
        self.path = Path(path).resolve()
        self._book: Callable[[Release], None] | None = None
        about = {
            "version of pymc_dp": version("pymc-dp"),  # its updates follow from releases
            "model": fingerprint(setup.records),
            "plan": setup.plan.to_json(),
            "method": json.dumps([setup.name, setup.method.settings], default=str),
            "random seed": json.dumps(_whole(seed)),
            "ledger": json.dumps(None if ledger is None else [str(ledger.path), *ledger.terms]),
            "noise": "secret" if TEST_SEED.get() is None else "test mode",
        }
        new = not self.path.exists() or self.path.stat().st_size == 0
        try:
            with locked(self.path, "rwc") as db:
                if new:
                    for table in TABLES:
                        db.execute(table)
                    self._note(db, **about, file=self._file())
                found = dict(db.execute("SELECT name, value FROM fit").fetchall())
        except sqlite3.Error as error:
            raise ValueError(f"checkpoint={str(self.path)!r} cannot be used ({error}).") from None
        self._refuse_other_fits(found, about)

    def public_generator(self, seed: int | None) -> np.random.Generator:
        """Return the generator of public draws, as it was when the fit began."""
        rng = np.random.default_rng(seed)
        with locked(self.path, "rwc") as db:
            db.execute(
                "INSERT OR IGNORE INTO fit VALUES ('generator', ?)",
                (json.dumps(rng.bit_generator.state),),
            )
            [[state]] = db.execute("SELECT value FROM fit WHERE name = 'generator'")
        rng.bit_generator.state = json.loads(state)
        return rng

    def reserve(self, ledger: Ledger, setup: Setup) -> Booking:
        """Set the plan aside in the ledger, or go on with what was set aside for this fit."""
        with locked(self.path, "rwc") as db:
            found = db.execute("SELECT value FROM fit WHERE name = 'booking'").fetchall()
        if found:
            return ledger.resume(int(found[0][0]), setup.name, setup.plan, len(self.kept()))
        booking = ledger.reserve(setup.name, setup.plan)
        with locked(self.path, "rwc") as db:
            self._note(db, booking=str(booking.fit))
        return booking

    def books(self, booking: Booking) -> None:
        """Let `keep` book releases, in place of the wall."""
        self._book = booking

    def kept(self) -> list[Kept]:
        """Return the releases that were made, in their order."""
        with locked(self.path, "rwc") as db:
            rows = db.execute(
                "SELECT name, value, sd, sample_rate FROM releases ORDER BY position"
            ).fetchall()
        return [
            Kept(name, Noisy(np.frombuffer(value, "<f8").copy(), sd, rate))
            for name, value, sd, rate in rows
        ]

    def release(self, wall: PrivacyWall, query: Query) -> Noisy:
        """Make a release, and hand it out once it is booked and written.

        Made again with other coins until it succeeds, a release that fails would have another
        distribution than the plan accounts: the failure is noted. Whether partitions can be read
        depends on no coins, since every release reads all of them.
        """
        made = len(wall.made)
        try:
            noisy = wall.release(query)
        except UnreadableError:
            raise
        except Exception as error:
            if len(wall.made) > made:
                # whatever keeps the note from being written, the release has failed
                with suppress(sqlite3.Error, KeyboardInterrupt), locked(self.path, "rwc") as db:
                    self._note(db, failed=type(error).__name__)
            raise
        self.keep(made, Kept(query.name, noisy), wall.made[made])
        return noisy

    def keep(self, position: int, kept: Kept, release: Release) -> None:
        """Book and write a release before anything else sees it; each position is written once.

        It is booked before it is on the disk: a fit that ends in between cannot go on, and a file
        that holds fewer releases than are booked is known to be old.
        """
        name, (value, sd, rate) = kept
        row = (position, name, np.asarray(value, "<f8").tobytes(), sd, rate)
        try:
            with locked(self.path, "rwc") as db:
                db.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?)", row)
                if self._book:
                    self._book(release)
        except sqlite3.Error as error:
            raise UnbookedError(
                f"The release could not be written to checkpoint={str(self.path)!r} ({error}), or "
                "another process goes on with the same fit; nothing is handed out."
            ) from None

    def _refuse_other_fits(self, found: dict[str, str], about: dict[str, str]) -> None:
        for name, value in about.items():
            if found.get(name) != value:
                raise ValueError(
                    f"checkpoint={str(self.path)!r} is of another {name} than "
                    "this fit: call pm.fit as it was called when the file was made, or give "
                    "another file. Nothing was released."
                )
        if found.get("file") != self._file():
            raise ValueError(
                f"checkpoint={str(self.path)!r} is a copy of the file that the fit wrote. A fit "
                "goes on from its own file alone; nothing was released."
            )
        if "failed" in found:
            raise ValueError(
                f"checkpoint={str(self.path)!r} is of a fit that ended because a release failed "
                f"({found['failed']}). A release that fails is not made again; nothing was "
                "released."
            )

    def _file(self) -> str:
        return f"{self.path} {self.path.stat().st_ino}"

    def _note(self, db: sqlite3.Connection, **values: str) -> None:
        db.executemany("INSERT INTO fit VALUES (?, ?)", values.items())


def _whole(seed: int | None) -> int | None:
    """Return a seed that can be compared with that of the interrupted fit."""
    try:
        return None if seed is None else operator.index(seed)
    except TypeError:
        raise TypeError(
            f"random_seed must be a whole number or None where checkpoint= is given, not an object "
            f"of type {type(seed).__name__}: the same call must be recognised."
        ) from None


def fingerprint(records: Records) -> str:
    """Return a digest of a model's prior, likelihood and initial values: no data."""
    parts = [_graph([records.prior, *records.batch.terms])]
    parts += [f"{name} {value.tobytes().hex()}" for name, value in records.point.items()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _graph(outputs: Iterable[AnyVariable]) -> str:
    """Write a graph as lines, one for each of its operations."""
    outputs = list(outputs)
    names: dict[AnyVariable, str] = {}

    def name(variable: AnyVariable) -> str:
        if variable not in names:
            names[variable] = f"{len(names)}: {_leaf(variable)}"
        return names[variable]

    lines = []
    for node in toposort(outputs):
        inner = getattr(node.op, "inner_outputs", None)
        lines.append(f"{node.op} {_graph(inner) if inner else ''} {[name(x) for x in node.inputs]}")
        names.update({out: f"{len(names) + k}" for k, out in enumerate(node.outputs)})
    return "\n".join([*lines, *map(name, outputs)])


def _leaf(variable: AnyVariable) -> str:
    if not isinstance(variable, Constant):
        return f"{variable.name} {variable.type}"
    value = np.asarray(variable.data)
    shown = value.tobytes().hex() if value.dtype != object else str(variable.data)
    return f"{value.dtype} {value.shape} {shown}"
