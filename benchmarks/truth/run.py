"""Run cells, each in a process of its own, and read what is stored of them."""

import math
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.truth.cell import REFERENCE, Cell, Fit, private_fits, reference_fits
from benchmarks.truth.problem import data_set
from benchmarks.truth.problems import PROBLEMS
from benchmarks.truth.same_rows import SameRows, compare_rows
from benchmarks.truth.store import append, file_of, read
from benchmarks.truth.summary import Summary, summarise


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
