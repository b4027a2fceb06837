"""Run cells, each in a process of its own, and read what is stored of them."""

import hashlib
import json
import math
import multiprocessing
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pymc_dp
from benchmarks.truth.cell import REFERENCE, Cell, Fit, private_fits, reference_fits
from benchmarks.truth.problem import data_set
from benchmarks.truth.problems import PROBLEMS
from benchmarks.truth.same_rows import SameRows, compare_rows
from benchmarks.truth.summary import Summary, summarise

# --- finished fits on disk, a line of JSON each, so that an interrupted run goes on where it stopp

OUTPUT = Path("benchmarks/results/truth")


def code_version() -> str:
    """Name the state of the package's source code."""
    found, root = hashlib.sha256(), Path(pymc_dp.__file__).parent
    for path in sorted(root.rglob("*.py")):
        found.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return found.hexdigest()[:10]


def file_of(folder: Path, version: str, cell: Cell) -> Path:
    """Say where a cell's fits are; those without privacy belong to every version."""
    if cell.method == REFERENCE:
        return folder / REFERENCE / f"{cell.problem}.jsonl"
    return folder / version / f"{cell.problem}-{cell.method}-{cell.epsilon:g}.jsonl"


def read(path: Path) -> dict[int, Fit]:
    """Read a cell's fits by the number of the data set; a line that was cut short is no fit."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            fit = Fit(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue
        found[fit.set] = fit
    return found


def append(path: Path, fits: Iterable[Fit]) -> None:
    """Write each fit as soon as it is finished, in one piece: other processes may write, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for fit in fits:
        given = {key: value for key, value in fit._asdict().items() if value is not None}
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, f"{json.dumps(given)}\n".encode())
        finally:
            os.close(file)


# --- run cells, each in a process of its own, and read what is stored of them --------------------


class Place(NamedTuple):
    """Where fits are stored, and for which state of the package's source code."""

    folder: Path
    version: str


class Task(NamedTuple):
    """A cell, and the numbers of its data sets."""

    cell: Cell
    sets: range


def stored(place: Place, task: Task) -> dict[int, Fit]:
    """Read the fits of a cell's data sets; fits of data that are generated no more are left out."""
    problem, found = PROBLEMS[task.cell.problem], read(file_of(*place, task.cell))
    return {
        number: found[number]
        for number in task.sets
        if number in found and found[number].digest == data_set(problem, number).digest
    }


def run(place: Place, task: Task) -> None:
    """Fit the data sets of a cell that have not been fitted."""
    cell, done = task.cell, stored(place, task)
    problem, missing = PROBLEMS[cell.problem], [k for k in task.sets if k not in done]
    if cell.method == REFERENCE:
        fits = reference_fits(problem, missing)
    else:
        fits = private_fits(problem, cell.method, cell.epsilon, missing)
    append(file_of(*place, cell), fits)


def start(
    place: Place, tasks: Sequence[Task], workers: int
) -> tuple[ProcessPoolExecutor, dict[Cell, Future[None]]]:
    """Start a few processes; every cell gets a new one."""
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    )
    return pool, {task.cell: pool.submit(run, place, task) for task in tasks}


def finish(place: Place, task: Task, futures: dict[Cell, Future[None]]) -> Summary | SameRows | str:
    """Wait for a cell and for the posteriors that it is compared with; return what they say."""
    compared = task._replace(cell=reference_of(task.cell.problem))
    try:
        futures[compared.cell].result()
        futures[task.cell].result()
    except (Exception, SystemExit) as error:  # a refused model, a missing table: others go on
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    fits = stored(place, task)
    say = compare_rows if PROBLEMS[task.cell.problem].real else summarise
    return say(list(fits.values()), stored(place, compared)) or "every fit failed"


def reference_of(problem: str) -> Cell:
    """Return the cell of a problem without privacy."""
    return Cell(problem, REFERENCE, math.inf)
