"""Finished fits on disk, a line of JSON each, so that an interrupted run goes on where it stopped.

Private fits are kept apart by the state of the package's source code: a change of it starts anew.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

import pymc_dp
from benchmarks.truth.cell import REFERENCE, Cell, Fit

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
