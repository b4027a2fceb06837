"""Do private intervals hold the truth, and how much wider are they than without privacy?

Data are generated from known truths and fitted with default settings, at delta = 1e-5. Finished
fits are stored; an interrupted run goes on where it stopped. Those of group r are real tables,
compared with the posterior without privacy of the same rows.
"""

import argparse
import os
from collections.abc import Iterator
from concurrent.futures import Future

from benchmarks.data import VARIABLE, add_data_dir
from benchmarks.truth import same_rows
from benchmarks.truth.cell import REFERENCE, Cell
from benchmarks.truth.problem import data_set, labels, reported
from benchmarks.truth.problems import GROUPS, PROBLEMS
from benchmarks.truth.run import OUTPUT, Place, Task, code_version, finish, reference_of, start
from benchmarks.truth.summary import HEADER, Summary, details, draw, row

# of groups a and r; the others have one
EPSILONS, OF_REAL = (0.1, 0.3, 1.0), (0.1, 0.3, 1.0, 8.0)
Futures = dict[Cell, Future[None]]
Found = tuple[Cell, Summary]


def chosen_tasks(arguments: argparse.Namespace) -> Iterator[Task]:
    """Yield each problem's posterior without privacy, and then its private cells."""
    part = arguments.problem or ""
    names = [part] if part in PROBLEMS else [name for name in PROBLEMS if part in name]
    for problem in map(PROBLEMS.get, names):
        if problem is None or problem.group not in arguments.group:
            continue
        simple = problem.group == "a"
        usual = 200 if simple else 20 if problem.real else 40
        sets = range(arguments.first, arguments.first + (arguments.sets or usual))
        yield Task(reference_of(problem.name), sets)
        for epsilon in arguments.epsilon or (
            EPSILONS if simple else OF_REAL if problem.real else (1.0,)
        ):
            for method in arguments.method or problem.methods:
                if method != REFERENCE:
                    yield Task(Cell(problem.name, method, epsilon), sets)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description=__doc__)
    groups = "; ".join(f"{key}: {title}" for key, title in GROUPS.items())
    names = sorted(GROUPS)
    parser.add_argument("--group", nargs="+", choices=names, default=names, help=groups)
    parser.add_argument("--problem", help="part of the names of problems, or one of them")
    parser.add_argument("--epsilon", nargs="+", type=float)
    parser.add_argument("--method", nargs="+", help="in place of all that fit; or non-private")
    parser.add_argument("--sets", type=int, help="data sets; 200 in group a, 20 in r, else 40")
    parser.add_argument("--first", type=int, default=0, help="number of the first data set")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--details", action="store_true", help="print every coefficient")
    parser.add_argument("--version", help="name of the stored fits, in place of the code's digest")
    add_data_dir(parser)
    return parser.parse_args()


def show(tasks: list[Task], place: Place, futures: Futures, each: bool) -> Iterator[Found]:
    """Print a line for each cell when it is finished."""
    head = ""
    for task in tasks:
        problem = PROBLEMS[task.cell.problem]
        if problem.real and task.cell.method == REFERENCE:
            finish(place, task, futures)
            continue
        if head != (head := same_rows.HEADER if problem.real else HEADER):
            print(head, flush=True)
        found = finish(place, task, futures)
        print((same_rows.row if problem.real else row)(task.cell, found), flush=True)
        if isinstance(found, Summary):
            yield task.cell, found
        if each and not isinstance(found, str):
            names = labels(reported(problem, data_set(problem, task.sets[0]).truth))
            say = same_rows.details if problem.real else details
            print(f"\n{say(names, found)}\n", flush=True)


def main() -> None:
    arguments = read_arguments()
    os.environ[VARIABLE] = str(arguments.data_dir)
    place = Place(OUTPUT, arguments.version or code_version())
    tasks = list(chosen_tasks(arguments))
    pool, futures = start(place, tasks, arguments.workers)
    with pool:
        found = list(show(tasks, place, futures, arguments.details))
    private = [(cell, summary) for cell, summary in found if cell.method != REFERENCE]
    for path in draw(private, OUTPUT / place.version):
        print(f"picture: {path}")


if __name__ == "__main__":
    main()
