"""What each constant of the engine of rounds is worth: its half and its double, fit by fit.

Every cell is fitted once as it is, and some cells once for every constant, halved and doubled, with
the same records and the same privacy noise. Finished fits are stored; an interrupted run goes on
where it stopped. A constant that changes nothing in the first cells is tried in all others.
"""

import argparse
import json
import os
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.ablation.cells import CELLS, Cell, ended, reference
from benchmarks.ablation.constants import Constant, changed, constants
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
    parser.add_argument("--constant", nargs="+", help="names, in place of all")
    parser.add_argument("--at", nargs="+", type=float, help="values, for halves and doubles")
    parser.add_argument("--cell", nargs="+", help="parts of the names of cells, in place of all")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which it stops")
    parser.add_argument("--table", action="store_true", help="print what is stored, fit nothing")
    parser.add_argument("--switches", action="store_true", help="stages and releases alone")
    add_data_dir(parser)
    return parser.parse_args()


def fitted(cell: Cell, there: AbstractContextManager) -> Results:
    """Fit with a change; a fit that fails is a result."""
    try:
        with there, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mean, sd, doubts = ended(cell)
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

    def base(self, cell: Cell) -> None:
        """Fit a cell as it is."""
        own = self.found.setdefault(cell.name, {})
        if "base" not in own:
            own["base"] = fitted(cell, nullcontext())
            own["reference"] = reference(cell.problem)._asdict()
            self.save()

    def try_(self, cell: Cell, label: str, there: AbstractContextManager) -> None:
        """Fit a cell with a change."""
        if label not in self.found[cell.name]:
            self.found[cell.name][label] = fitted(cell, there)

    def constant(self, constant: Constant, cells: int, most: int) -> None:
        """Try a constant's half and double in some cells, or in more if it is idle."""
        # other constants begin with other cells, of the quick ones
        first = sum(map(ord, constant.name)) % max(min(len(self.cells), QUICK), 1)
        order = self.cells[first:QUICK] + self.cells[:first] + self.cells[QUICK:]
        is_idle = True
        for tried, cell in enumerate(order[:most]):
            if (tried >= cells and not is_idle) or time.monotonic() > self.stop:
                break
            for name, value in self.others(constant).items():
                if value != constant.value:
                    label = f"{constant.name} {name}"
                    self.try_(cell, label, changed(constant, value))
                    is_idle &= changes(self.found[cell.name], label).is_nothing
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
    chosen = [c for c in every if not arguments.constant or c.name in arguments.constant]
    if not arguments.table:
        for cell in bench.cells:
            bench.base(cell)
        for name in PATCHES if arguments.switches else ():
            for cell in bench.cells:
                bench.try_(cell, name, without(name))
            bench.save()
        for constant in () if arguments.switches else chosen:
            bench.constant(constant, arguments.cells, arguments.most)
    at = [f"{c.name} at {value:g}" for c in chosen for value in bench.at]
    print(table(bench.found, chosen, [*PATCHES, *at]))
    print(f"{len(every)} constants")


if __name__ == "__main__":
    main()
