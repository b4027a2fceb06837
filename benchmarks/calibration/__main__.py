"""Coverage of 90% intervals, errors and ranks over generated data sets, cell by cell.

Cells that were measured before are read back; ``--bars`` measures those that bars are set for.
"""

import argparse
import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.calibration.cell import Cell, Fits, fits
from benchmarks.calibration.picture import draw
from benchmarks.calibration.problems import PROBLEMS

OUTPUT = Path("benchmarks/results/calibration")
EPSILONS, RECORDS = (0.5, 1.0, 4.0), (1000, 5000)
# methods by problem: those that have updates for it
METHODS = {
    "linear": ("vips", "dp_sep", "dp_advi"),
    "logistic": ("vips", "dp_sep", "dp_advi"),
    "poisson": ("dp_sep", "dp_advi"),
    "hierarchical": ("vips", "dp_sep", "dp_advi"),
    "mixture": ("vips", "dp_sep", "dp_advi"),
}
# the chance of a false alarm over all cells together
ALARM = 0.01


def cells(problems: Iterable[str], epsilons: Iterable[float], records: Iterable[int]) -> list[Cell]:
    """Every combination, each with and without the privacy noise in its posterior."""
    return [
        Cell(problem, method, aware, epsilon, rows)
        for problem, rows, epsilon in itertools.product(problems, records, epsilons)
        for method in METHODS[problem]
        for aware in (True, False)
    ]


BARS = cells(("linear", "logistic"), (0.5, 1.0), (2000,))
ALL = cells(PROBLEMS, EPSILONS, RECORDS)


def measured(cell: Cell, sets: int, folder: Path) -> Fits:
    """Fit one cell, unless that was done before."""
    path = folder / f"{'-'.join(map(str, cell))}-{sets}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(path, **fits(cell, sets)._asdict())
    with np.load(path) as stored:
        return Fits(**stored)


def row(cell: Cell, found: Fits, alarm: float) -> str:
    """One line of the table."""
    ranks = "even" if found.p_value > alarm else "uneven"
    return (
        f"| {cell.problem} | {cell.records} | {cell.epsilon:g} | {cell.method} | "
        f"{'yes' if cell.noise_aware else 'no'} | {found.coverage:.3f} "
        f"({found.standard_error:.3f}) | {found.rmse:.4f} | {np.median(found.sd):.4f} | {ranks} |"
    )


def main() -> None:
    """Print the table and draw the ranks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--bars", action="store_true")
    parser.add_argument("--problem", choices=sorted(PROBLEMS))
    parser.add_argument("--method")
    arguments = parser.parse_args()
    chosen = [
        cell
        for cell in (BARS if arguments.bars else ALL)
        if arguments.problem in (None, cell.problem) and arguments.method in (None, cell.method)
    ]
    print(
        "| model | records | epsilon | method | noise-aware | coverage (se) | rmse | sd | ranks |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for cell in chosen:
        found = measured(cell, arguments.sets, OUTPUT)
        print(row(cell, found, ALARM / len(chosen)), flush=True)
    draw([(cell, measured(cell, arguments.sets, OUTPUT)) for cell in chosen], OUTPUT)


if __name__ == "__main__":
    main()
