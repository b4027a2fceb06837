"""The tables: a line a cell, or a line a coefficient."""

import numpy as np

from benchmarks.truth.cell import Cell
from benchmarks.truth.summary import Summary

HEADER = (
    "| problem | epsilon | method | sets | coverage (range) | sd / rmse (range) | "
    "rmse / non-private sd (max) | joint | width | interval | farthest | seconds |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)
DETAILS = (
    "| coefficient | coverage | sd / rmse | rmse / non-private sd | bias / non-private sd | width |"
    "\n|---|---|---|---|---|---|"
)


def row(cell: Cell, found: Summary | str) -> str:
    """Write one cell as a line; a text in place of a summary says why there is none."""
    start = f"| {cell.problem} | {cell.epsilon:g} | {cell.method} |"
    if isinstance(found, str):
        return f"{start} {found} |"
    each = found.coefficients
    sets = f"{found.sets}" + (f" ({found.failures} failed)" if found.failures else "")
    cells = (
        sets,
        f"{_range(each.coverage, np.mean(each.coverage))}",
        f"{_range(each.calibration, np.median(each.calibration))}",
        f"{np.median(each.error):.2f} ({np.max(each.error):.2f})",
        f"{found.joint:.2f}",
        f"{np.median(each.width):.2f}",
        f"{found.interval:.3g}",
        f"{found.farthest:.1f}",
        f"{found.seconds:.2f}",
    )
    return f"{start} {' | '.join(cells)} |"


def details(names: list[str], found: Summary) -> str:
    """Write one cell with a line a coefficient."""
    lines = [
        f"| {name} | {coverage:.3f} | {calibration:.2f} | {error:.2f} | {bias:+.2f} | {width:.2f} |"
        for name, coverage, calibration, error, bias, width in zip(
            names, *found.coefficients, strict=True
        )
    ]
    return "\n".join([DETAILS, *lines])


def _range(values: np.ndarray, middle: float) -> str:
    return f"{middle:.2f} ({np.min(values):.2f}-{np.max(values):.2f})"
