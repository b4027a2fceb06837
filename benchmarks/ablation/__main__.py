"""What each constant of the engine of rounds is worth: its half and its double, fit by fit.

Every cell is fitted once as it is, and once for every constant that it reads, halved and doubled,
with the same records and the same privacy noise. Finished fits are stored; an interrupted run goes
on where it stopped. A constant that changes nothing in the first cells is tried in all others.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.ablation.cells import CELLS, Cell, Ended, prepare, reference
from benchmarks.ablation.constants import Constant, changed, constants, recorded
from benchmarks.ablation.switches import PATCHES, without
from benchmarks.ablation.table import changes, table
from benchmarks.data import VARIABLE, add_data_dir
from benchmarks.truth.run import code_version

QUICK = 9  # of the cells: the first ones
FACTORS = {"half": 0.5, "double": 2.0}
Results = dict[str, Any]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("ablation.json"))
    parser.add_argument("--cells", type=int, default=4, help="in which every constant is tried")
    parser.add_argument("--most", type=int, default=99, help="the same if it changes nothing there")
    parser.add_argument("--constant", nargs="+", help="labels, in place of all")
    parser.add_argument("--at", nargs="+", type=float, help="values, for halves and doubles")
    parser.add_argument("--cell", nargs="+", help="parts of the names of cells, in place of all")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which it stops")
    parser.add_argument("--table", action="store_true", help="print what is stored, fit nothing")
    parser.add_argument("--switches", action="store_true", help="stages and releases alone")
    add_data_dir(parser)
    return parser.parse_args()


def fitted(make: Callable[[], Callable[[], Ended]], there: AbstractContextManager) -> Results:
    """Fit with a change; a fit that fails is a result."""
    try:
        with there, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mean, sd, doubts = make()()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    return {"mean": mean.tolist(), "sd": sd.tolist(), "doubts": doubts}


class Bench:
    """Fits of a run, stored in one file, by the version of the package."""

    def __init__(self, arguments: argparse.Namespace):
        self.file: Path = arguments.output
        self.stop = time.monotonic() + 60 * arguments.minutes
        stored: Results = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.stored, self.found = stored, stored.setdefault(code_version(), {})
        parts = arguments.cell or [""]
        self.cells = [cell for cell in CELLS if any(part in cell.name for part in parts)]
        self.at: list[float] = arguments.at or []
        self.ready: dict[str, Callable[[], Ended]] = {}

    def base(self, cell: Cell) -> Results:
        """Fit a cell as it is, and say which constants it reads before and in the fit."""
        own = self.found.setdefault(cell.name, {})
        if "base" not in own:
            every = constants()
            with recorded() as before:
                fit = prepare(cell)
            with recorded() as later:
                own["base"] = fitted(lambda: fit, nullcontext())
            own["before"] = before.labels(every)
            own["read"] = sorted({*own["before"], *later.labels(every)})
            own["reference"] = reference(cell.problem)._asdict()
            self.save()
        return own

    def try_(self, cell: Cell, label: str, there: AbstractContextManager, anew: bool) -> Results:
        """Fit a cell with a change, ``anew`` from the start if that is read before the fit."""
        own = self.found[cell.name]
        if label not in own:
            if not anew and cell.name not in self.ready:
                self.ready[cell.name] = prepare(cell)
            make = (lambda: prepare(cell)) if anew else (lambda: self.ready[cell.name])
            own[label] = fitted(make, there)
        return own[label]

    def constant(self, constant: Constant, cells: int, most: int) -> None:
        """Try a constant's half and double in some cells that read it, or in more if it is idle."""
        reading = [c for c in self.cells if constant.label in self.found[c.name]["read"]]
        # other constants begin with other cells, of the quick ones
        first = sum(map(ord, constant.label)) % max(min(len(reading), QUICK), 1)
        order, is_idle = reading[first:QUICK] + reading[:first] + reading[QUICK:], True
        for tried, cell in enumerate(order[:most]):
            if (tried >= cells and not is_idle) or time.monotonic() > self.stop:
                break
            own = self.found[cell.name]
            anew = constant.label in own["before"]
            for name, value in self.others(constant).items():
                if value != constant.value:
                    label = f"{constant.label} {name}"
                    self.try_(cell, label, changed(constant, value), anew)
                    is_idle &= changes(own, label).is_nothing
        self.save()

    def others(self, constant: Constant) -> Results:
        """Return other values of a constant, by name."""
        if self.at:
            return {f"at {value:g}": type(constant.value)(value) for value in self.at}
        return {name: constant.times(factor) for name, factor in FACTORS.items()}

    def save(self) -> None:
        """Write all fits in one piece."""
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.stored))
        part.replace(self.file)


def main() -> None:
    arguments = read_arguments()
    os.environ[VARIABLE] = str(arguments.data_dir)
    bench, every = Bench(arguments), constants()
    chosen = [c for c in every if not arguments.constant or c.label in arguments.constant]
    if not arguments.table:
        for cell in bench.cells:
            bench.base(cell)
            print(f"{cell.name}: {len(bench.found[cell.name]['read'])} constants", flush=True)
        for name in PATCHES if arguments.switches else ():
            for cell in bench.cells:
                bench.try_(cell, name, without(name), anew=True)
            bench.save()
        for constant in () if arguments.switches else chosen:
            bench.constant(constant, arguments.cells, arguments.most)
    at = [f"{c.label} at {value:g}" for c in chosen for value in bench.at]
    print(table(bench.found, chosen, [*PATCHES, *at]))
    print(f"{len(every)} constants")


if __name__ == "__main__":
    main()
