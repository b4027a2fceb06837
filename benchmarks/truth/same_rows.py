"""What private fits of one cell say beside the posterior without privacy of the same rows."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.truth.cell import Cell, Fit

# an error of so many sds of the fit's own posterior is to come with a warning
FAR = 4.0
# the least variance that privacy adds, as a share of the private one: draws do not show less
LEAST_ADDED = 0.03
HEADER = (
    "| problem | epsilon | method | sets | rms z (range) | rms calibrated (range) | ratio of sds "
    "(range) | farthest | warned | beyond 4 and silent | seconds |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


class SameRows(NamedTuple):
    """One cell's results; arrays have a number for each coefficient."""

    sets: int  # with a reference, or failed
    failures: int
    z: np.ndarray  # root mean square of (private mean - mean without privacy) / private sd
    # the error over the root of (private variance - that without privacy): right is 1
    calibrated: np.ndarray
    ratio: np.ndarray  # median of the private sd over that without privacy
    farthest: float  # the largest error, in sds of the private posterior
    warned: float  # share of the fits that state a doubt
    silent: float  # share of those with an error beyond FAR that state none
    seconds: float  # median of a fit


def compare_rows(fits: Sequence[Fit], references: Mapping[int, Fit]) -> SameRows | None:
    """Compare private posteriors with those without privacy of the same rows."""
    compared = [fit for fit in fits if references[fit.set].error is None]
    good = [fit for fit in compared if fit.error is None]
    if not good:
        return None
    mean, sd = (np.array([getattr(fit, part) for fit in good]) for part in ("mean", "sd"))
    plain_mean, plain_sd = (
        np.array([getattr(references[fit.set], part) for fit in good]) for part in ("mean", "sd")
    )
    error = mean - plain_mean
    added = np.maximum(sd**2 - plain_sd**2, LEAST_ADDED * sd**2)
    far, warned = (abs(error) > FAR * sd).any(axis=1), np.array([bool(f.doubts) for f in good])
    return SameRows(
        sets=len(compared),
        failures=len(compared) - len(good),
        z=_rms(error / sd),
        calibrated=_rms(error / np.sqrt(added)),
        ratio=np.median(sd / plain_sd, axis=0),
        farthest=float(np.max(abs(error) / sd)),
        warned=float(warned.mean()),
        silent=float((far & ~warned).mean()),
        seconds=float(np.median([fit.seconds for fit in good])),
    )


def row(cell: Cell, found: SameRows | str) -> str:
    """Write one cell as a line; a text in place of a summary says why there is none."""
    start = f"| {cell.problem} | {cell.epsilon:g} | {cell.method} |"
    if isinstance(found, str):
        return f"{start} {found} |"
    cells = (
        f"{found.sets}" + (f" ({found.failures} failed)" if found.failures else ""),
        *(_range(values) for values in (found.z, found.calibrated, found.ratio)),
        f"{found.farthest:.1f}",
        f"{found.warned:.0%}",
        f"{found.silent:.0%}",
        f"{found.seconds:.2f}",
    )
    return f"{start} {' | '.join(cells)} |"


def details(names: list[str], found: SameRows) -> str:
    """Write one cell with a line a coefficient."""
    lines = ["| coefficient | rms z | rms calibrated | ratio of sds |", "|---|---|---|---|"]
    each = zip(names, found.z, found.calibrated, found.ratio, strict=True)
    return "\n".join(
        [*lines, *(f"| {name} | {z:.2f} | {c:.2f} | {ratio:.2f} |" for name, z, c, ratio in each)]
    )


def _range(values: np.ndarray) -> str:
    return f"{np.median(values):.2f} ({np.min(values):.2f}-{np.max(values):.2f})"


def _rms(x: np.ndarray) -> np.ndarray:
    """Root mean square over the data sets."""
    return np.sqrt((x**2).mean(axis=0))
