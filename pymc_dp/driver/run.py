"""The run of every private method: compile, put the data behind a wall, ask, release, update.

With a checkpoint, releases and the state of the public generator are kept in an SQLite file, and
the same call goes on after a crash: states are computed again from them. A release is written as a
whole or not at all. With a ledger it is booked before it is written, and what is booked is never
made again, so that no copy of the file gives a release a second value.
"""

import hashlib
import json
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.metadata import version
from inspect import isroutine
from pathlib import Path
from traceback import format_exception_only
from typing import Any, NamedTuple

import numpy as np
from pytensor.printing import debugprint
from rich.progress import Progress

from pymc_dp.accounting.plan import Plan, Release
from pymc_dp.contributions.gradients import padded
from pymc_dp.errors import UnbookedError, UnreadableError
from pymc_dp.ledger.file import locked
from pymc_dp.ledger.ledger import Booking, Ledger
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.model import PrivateData, Records
from pymc_dp.model.compilation import compile_mode
from pymc_dp.model.graphs import all_variables, tensor_constants
from pymc_dp.privacy.contribution import (
    Batch,
    Contribution,
    Contributions,
    Noisy,
    Query,
    for_units,
    unit_sums,
    unit_vector,
    with_draws,
)
from pymc_dp.privacy.probe import FaultyContributionError, is_same_in_any_batch, probe, probe_units
from pymc_dp.privacy.randomness import MOST_IN_FLOATING_SUM, TEST_SEED
from pymc_dp.privacy.wall import PrivacyWall, nothing
from pymc_dp.results.tree import Outcome

Callback = Callable[[Any, None, int], Any]  # called as (state, None, i), like those of pm.fit
TABLES = (
    "CREATE TABLE fit (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE releases (position INTEGER PRIMARY KEY, name TEXT NOT NULL, value BLOB NOT NULL, "
    "sd REAL NOT NULL, sample_rate REAL NOT NULL) STRICT",
)


class Setup(NamedTuple):
    """A model split into records, the method built for it and the plan that it must obey."""

    name: str
    records: Records
    data: PrivateData
    method: Method
    plan: Plan


def compile_method(setup: Setup, backend: str) -> Compiled:
    """Compile a method for a backend, and try it on made-up rows."""
    compile_mode(backend)
    method = setup.method
    compiled = method.compile(backend)
    backend = compiled.runs_on or backend
    axes = {name: column.axis for name, column in setup.data.spec.items()}

    def for_backend(contributions: Contributions) -> Contributions:
        """Pad batches where every size is compiled anew; take those that jump from Python."""
        # it is sent to workers, and may hold no data
        adapted = dict(contributions)
        for name, each in contributions.items():
            if backend != "python" and getattr(each, "jumps", False):
                adapted[name] = method.compile("python").contributions[name]
            elif backend == "jax" and isinstance(each, Contribution):
                adapted[name] = padded(each, axes)
        return adapted

    compiled = compiled._replace(
        contributions=for_backend(compiled.contributions),
        again=lambda: for_backend(method.compile(backend).contributions),
    )
    exact = backend == "python"
    for state in method.trials(np.random.default_rng(0)):
        query = method.query(state, rng=np.random.default_rng(0))
        _rehearse(setup, compiled, state, query)
        exact = exact and _is_exact(setup, compiled.contributions[query.name], query)
    return compiled._replace(is_exact=exact)


def _is_exact(setup: Setup, contribution: Any, query: Query) -> bool:
    """Whether the proof of a release holds for the arithmetic of the machine, in Python."""
    if not isinstance(contribution, Contribution):
        return False
    of_units = setup.data.unit is not None
    if of_units:
        contribution = for_units(contribution)
        if unit_vector(contribution).rows is None:
            return False
    elif getattr(contribution, "parts_norm", 0) >= MOST_IN_FLOATING_SUM:
        return False
    with np.errstate(all="ignore"):
        return is_same_in_any_batch(contribution, setup.data.spec, query.context, of_units=of_units)


def _rehearse(setup: Setup, compiled: Compiled, state: Any, query: Query) -> None:
    contribution, data = compiled.contributions[query.name], setup.data
    batch = {name: spec.zeros(2) for name, spec in data.spec.items()}
    try:
        with undisturbed():
            if isinstance(contribution, Contribution):
                in_use = contribution if data.unit is None else for_units(contribution)
                value = _tried(in_use, batch, query.context, data.unit is not None)
                probe(in_use, data.spec, query.context)
                if data.unit is not None:
                    probe_units(in_use, data.spec, query.context)
            else:
                value = contribution.rehearse(batch, query.context)
            # made-up rows may lie outside the likelihood's support; noise there always is
            noisy = Noisy(np.nan_to_num(value, posinf=0.0), 1.0, 1.0)
            compiled.update(state, query, noisy)
    except FaultyContributionError as fault:
        raise NotImplementedError(
            f"Release {query.name!r} would not be private on this backend: on made-up records, "
            f"{fault}. Nothing was released; try backend='python', or report this as a bug."
        ) from fault
    except Exception as error:
        raise NotImplementedError(
            f"The model's graph does not run on this backend ({type(error).__name__}: {error}). "
            "Nothing was released; try backend='python'."
        ) from error


def _tried(contribution: Contribution, batch: Batch, context: Any, units: bool) -> np.ndarray:
    """Run every function of a contribution once, and return a vector of a release's shape."""
    batch = with_draws(contribution, batch, context, np.random.default_rng(0))
    prepared = contribution.prepare(batch, context)
    norms = contribution.norms(prepared, context)
    if units:
        unit, owner = unit_vector(contribution), np.arange(len(norms))
        unit.vectors(unit_sums(unit, prepared, context, owner, owner >= 0), context)
    return contribution.weighted_sum(prepared, context, np.zeros(len(norms)))


@contextmanager
def progress(positions: range, partitions: int, shown: bool) -> Iterator[tuple[Any, Any]]:
    """Yield the releases to make, and what to call when a partition has answered, and show them."""
    # a screen that is gone ends no fit
    bar, total = Progress(disable=not shown), positions.stop * partitions
    what = "Private releases" if partitions == 1 else "Private passes over partitions"
    task = bar.add_task(what, total=total, completed=positions.start * partitions)

    def counted() -> Iterator[int]:
        for i in positions:
            yield i
            bar.update(task, completed=(i + 1) * partitions)

    with suppress(Exception):
        bar.start()
    try:
        yield counted(), lambda: bar.advance(task)
    finally:
        with suppress(Exception):
            bar.stop()


class Checkpoint:
    """The releases of one fit, in a file that is created if it does not exist."""

    def __init__(
        self, path: str | os.PathLike[str], setup: Setup, seed: int | None, ledger: Ledger | None
    ) -> None:
        self.path = Path(path).resolve()
        self.book: Callable[[Release], None] | None = None  # books releases, in place of the wall
        about = {
            "version of pymc_dp": version("pymc-dp"),  # its updates follow from releases
            "model": fingerprint(setup.records),
            "plan": setup.plan.to_json(),
            "method": json.dumps([setup.name, setup.method.settings], default=str),
            "random seed": json.dumps(seed),
            "ledger": json.dumps(None if ledger is None else [str(ledger.path), *ledger.terms]),
            "noise": "secret" if TEST_SEED.get() is None else "test mode",
        }
        new = not self.path.exists() or self.path.stat().st_size == 0
        try:
            with locked(self.path, "rwc") as db:
                if new:
                    for table in TABLES:
                        db.execute(table)
                    entropy = str(np.random.SeedSequence(seed).entropy)
                    self._note(db, **about, file=self._file(), entropy=entropy)
                noted = dict(db.execute("SELECT name, value FROM fit").fetchall())
        except sqlite3.Error as error:
            raise ValueError(f"checkpoint={str(self.path)!r} cannot be used ({error}).") from None
        self._refuse_other_fits(noted, about)
        self.rng = np.random.default_rng(int(noted["entropy"]))  # of public draws

    def reserve(self, ledger: Ledger, setup: Setup) -> Booking:
        """Set the plan aside in the ledger, or go on with what was set aside for this fit."""
        with locked(self.path, "rwc") as db:
            noted = db.execute("SELECT value FROM fit WHERE name = 'booking'").fetchall()
        if noted:
            return ledger.resume(int(noted[0][0]), setup.name, setup.plan, len(self.kept()))
        booking = ledger.reserve(setup.name, setup.plan)
        with locked(self.path, "rwc") as db:
            self._note(db, booking=str(booking.fit))
        return booking

    def kept(self) -> list[tuple[str, Noisy]]:
        """Return the releases that were made, in their order, each with its name."""
        with locked(self.path, "rwc") as db:
            rows = db.execute(
                "SELECT name, value, sd, sample_rate FROM releases ORDER BY position"
            ).fetchall()
        return [(name, Noisy(np.frombuffer(x, "<f8").copy(), *rest)) for name, x, *rest in rows]

    def release(self, wall: PrivacyWall, query: Query) -> Noisy:
        """Make a release, and hand it out once it is booked and written."""
        made = len(wall.made)
        try:
            noisy = wall.release(query)
        except UnreadableError:  # which depends on no coins: every release reads all partitions
            raise
        except Exception as error:
            # made again until it succeeds, a release would have another distribution than the
            # plan accounts; whatever keeps the note from being written, it has failed
            if len(wall.made) > made:
                with suppress(sqlite3.Error, KeyboardInterrupt), locked(self.path, "rwc") as db:
                    self._note(db, failed=type(error).__name__)
            raise
        self.keep(made, query.name, noisy, wall.made[made])
        return noisy

    def keep(self, position: int, name: str, noisy: Noisy, release: Release) -> None:
        """Book and write a release before anything else sees it; each position is written once."""
        value, sd, rate = noisy
        row = (position, name, np.asarray(value, "<f8").tobytes(), sd, rate)
        try:
            with locked(self.path, "rwc") as db:
                db.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?)", row)
                if self.book:  # before it is on the disk: an old file holds less than is booked
                    self.book(release)
        except sqlite3.Error as error:
            raise UnbookedError(
                f"The release could not be written to checkpoint={str(self.path)!r} ({error}), or "
                "another process goes on with the same fit; nothing is handed out."
            ) from None

    def _refuse_other_fits(self, noted: dict[str, str], about: dict[str, str]) -> None:
        """Refuse files of other fits, of failed ones, and copies, except those moved back."""
        faults = [f"is of another {x} than this fit" for x in about if noted.get(x) != about[x]]
        if noted.get("file") != self._file():  # two would go on to two values of one release
            faults.append("is a copy of the file that the fit wrote")
        if failed := noted.get("failed"):
            faults.append(
                f"is of a fit in which a release failed ({failed}), and is not made again"
            )
        for fault in faults:
            raise ValueError(
                f"checkpoint={str(self.path)!r} {fault}. Nothing was released: to go on, call "
                "pm.fit as then, with the file that it wrote; else give another file."
            )

    def _file(self) -> str:
        return f"{self.path} {self.path.stat().st_ino}"

    def _note(self, db: sqlite3.Connection, **values: str) -> None:
        db.executemany("INSERT INTO fit VALUES (?, ?)", values.items())


def fingerprint(records: Records) -> str:
    """Return a digest of a model's prior, likelihood and initial values: no data."""
    graphs = [records.prior, *records.batch.terms]
    written = str(debugprint(graphs, print_type=True, file="str"))  # which shortens large constants
    numbers = [x.data for x in tensor_constants(all_variables(graphs))]
    parts = [
        f"{x.dtype} {x.shape} {x.tobytes().hex()}" for x in (*numbers, *records.point.values())
    ]
    return hashlib.sha256("\n".join([written, *records.point, *parts]).encode()).hexdigest()


def run_releases(
    setup: Setup,
    compiled: Compiled,
    rng: np.random.Generator,
    steps: Iterable[int],
    callbacks: Sequence[Callback] = (),
    ledger: Ledger | None = None,
    done: Callable[[], None] = nothing,
    checkpoint: Checkpoint | None = None,
) -> tuple[list[Any], Outcome]:
    """Put the data behind a wall and make the releases; return the states along the way."""
    method, plan = setup.method, setup.plan
    ask, update = partial(method.query, rng=rng), compiled.update
    kept = checkpoint.kept() if checkpoint else []  # not made again: states follow from them
    states = [method.init(rng)]
    for name, noisy in kept:
        with undisturbed():
            query = ask(states[-1])
            if query.name != name:
                raise ValueError("The checkpoint holds releases that this fit does not make.")
            states.append(update(states[-1], query, noisy))
    with ExitStack() as ends:
        account = None if ledger is None else partial(_account, ends, setup, ledger, checkpoint)
        made = [name for name, _ in kept]
        wall = build_wall(setup, compiled, reserve=account, done=done, made=made)
        release = wall.release if checkpoint is None else partial(checkpoint.release, wall)
        states = run(release, states, ask, update, steps, callbacks)
    coins, algorithm = (wall.random.label, wall.random.valid), ", then ".join(method.algorithms)
    return states, Outcome(
        setup.name, plan, wall.made, *coins, compiled.is_exact, algorithm=algorithm
    )


def _account(
    ends: ExitStack, setup: Setup, ledger: Ledger, checkpoint: Checkpoint | None
) -> Callable[[Release], None] | None:
    """Set the plan aside, settled at the end; return what books releases if no checkpoint does."""
    if checkpoint is None:
        return ends.enter_context(ledger.reserve(setup.name, setup.plan))
    checkpoint.book = ends.enter_context(checkpoint.reserve(ledger, setup))
    return None


def build_wall(setup: Setup, compiled: Compiled, **settings: Any) -> PrivacyWall:
    """Put the data behind a wall, which checks that they are those of the plan."""
    return PrivacyWall(
        setup.data, compiled.contributions, setup.plan, compile_again=compiled.again, **settings
    )


def run(
    release: Callable[[Query], Noisy],
    states: list[Any],
    ask: Callable[[Any], Query],
    update: Callable[[Any, Query, Noisy], Any],
    steps: Iterable[int],
    callbacks: Sequence[Callback] = (),
) -> list[Any]:
    """Release once a step, until a callback stops; return the states so far and along the way."""
    states, callbacks = list(states), list(callbacks)
    try:
        for i in steps:
            with undisturbed():
                query = ask(states[-1])
                states.append(update(states[-1], query, release(query)))
            for callback in tuple(callbacks):
                try:
                    callback(read_only(states[-1]), None, i)
                except StopIteration:
                    raise
                except Exception as error:  # the budget is spent, so that the fit goes on
                    callbacks = [other for other in callbacks if other is not callback]
                    _warn_of_failure(callback, i, error)
    except (StopIteration, KeyboardInterrupt):
        pass
    return states


def read_only(value: Any) -> Any:
    """Copy a state, with views of its arrays that cannot be written to."""
    if isinstance(value, np.ndarray):
        return np.broadcast_to(value, value.shape)  # a view that cannot be written to
    if isinstance(value, dict):
        return {key: read_only(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        # earlier states that it holds stay as they are
        items = [item if type(item) is type(value) else read_only(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _warn_of_failure(callback: Callback, i: int, error: Exception) -> None:
    name = callback.__name__ if isroutine(callback) else type(callback).__name__
    reason = format_exception_only(error)[-1].strip()  # also of one that has no text
    with undisturbed():
        warnings.warn(
            f"The callback {name} failed after release {i} ({reason}) and is "
            "not called again. The fit goes on: its budget is spent. A private fit calls it as "
            "(state, None, i), with what was released, in place of an approximation and losses.",
            RuntimeWarning,
            stacklevel=3,
        )


@contextmanager
def undisturbed() -> Iterator[None]:
    """Compute as numpy does without errors, and show warnings that the caller has made errors."""
    filters: Any = [*reversed(warnings.filters)]
    with np.errstate(all="ignore"), ExitStack() as ends:
        # elsewhere filters stay as they are: they are those of all threads
        if any(action == "error" for action, *_ in filters):
            ends.enter_context(warnings.catch_warnings())
            for action, message, category, module, line in filters:
                about, within = (getattr(text, "pattern", text) or "" for text in (message, module))
                shown: Any = "default" if action == "error" else action
                warnings.filterwarnings(shown, about, category, within, line)
        yield
