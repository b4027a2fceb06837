"""The tables: a line a cell, or a line a coefficient."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.truth.cell import Cell, Fit
from benchmarks.truth.same_rows import FAR

# --- what the fits of one cell say together, coefficient by coefficient --------------------------

# eigenvalues of a correlation matrix below which a direction is not free, as in shares of one
DEPENDENT = 1e-9
MOMENTS = ("mean", "sd")


class Coefficients(NamedTuple):
    """One number for every coefficient, shape (coefficients,)."""

    coverage: np.ndarray  # share of the 90% intervals that hold the truth
    calibration: np.ndarray  # the posterior's sd over the root mean square error; 1 is right
    error: np.ndarray  # root mean square error over the non-private posterior's sd
    bias: np.ndarray  # mean error over the non-private posterior's sd
    width: np.ndarray  # median ratio of the posterior's sd to the non-private one's
    # root mean square distance of the means to the non-private ones, over the non-private sd
    privacy: np.ndarray


class Summary(NamedTuple):
    """One cell's results."""

    sets: int  # with a reference, or failed
    failures: int
    coefficients: Coefficients
    # mean of e' H e / d, with e the error of means, H the inverse of the covariance without privacy
    joint: float
    farthest: float  # the largest error, in sds of its own posterior
    silent: int  # fits with an error beyond FAR of these sds, and no warning
    seconds: float  # median of a fit


def summarise(fits: Sequence[Fit], references: Mapping[int, Fit]) -> Summary | None:
    """Compare fits with the truth and with the non-private posteriors of the same data sets."""
    compared = [fit for fit in fits if references[fit.set].error is None or fit.error]
    good = [fit for fit in compared if fit.error is None]
    if not good:
        return None
    truth, mean, sd, low, high = (np.array(x) for x in zip(*map(_values, good), strict=True))
    plain, plain_sd = (np.array([getattr(references[f.set], n) for f in good]) for n in MOMENTS)
    error = mean - truth
    found = Coefficients(
        coverage=((low <= truth) & (truth <= high)).mean(axis=0),
        calibration=_size(sd) / np.maximum(_size(error), 1e-300),
        error=_size(error) / _size(plain_sd),
        bias=(error / plain_sd).mean(axis=0),
        width=np.median(sd / plain_sd, axis=0),
        privacy=_size((mean - plain) / plain_sd),
    )
    farthest = (abs(error) / np.maximum(sd, 1e-300)).max(axis=1)
    joint = [joint_error(e, references[fit.set]) for e, fit in zip(error, good, strict=True)]
    return Summary(
        sets=len(compared),
        failures=len(compared) - len(good),
        coefficients=found,
        joint=float(np.mean(joint)),
        farthest=float(farthest.max()),
        silent=sum(far > FAR and not fit.doubts for far, fit in zip(farthest, good, strict=True)),
        seconds=float(np.median([fit.seconds for fit in good])),
    )


def joint_error(error: np.ndarray, reference: Fit) -> float:
    """Return e' H e over the number of free directions: probabilities that sum to one have less."""
    sd = np.array(reference.sd)
    covariance = np.reshape(reference.covariance, (len(sd), len(sd)))
    values, vectors = np.linalg.eigh(covariance / np.outer(sd, sd))
    free = values > DEPENDENT
    along = vectors[:, free].T @ (error / sd)
    return float(np.mean(along**2 / values[free]))


def _values(fit: Fit) -> tuple[list[float], ...]:
    return fit.truth, fit.mean, fit.sd, fit.low, fit.high


def _size(x: np.ndarray) -> np.ndarray:
    """Root mean square over the data sets."""
    return np.sqrt((x**2).mean(axis=0))


# --- coverage, width and error of every coefficient: a line a problem, a color a method ----------

# where coverage of 90% intervals should be
BAND = (0.84, 0.95)


def draw(found: Sequence[tuple[Cell, Summary]], folder: Path) -> list[Path]:
    """Write one picture for each epsilon; return where they are."""
    paths = []
    for epsilon in sorted({cell.epsilon for cell, _ in found}):
        path = folder / f"truth-{epsilon:g}.png"
        _draw([(c, summary) for c, summary in found if c.epsilon == epsilon], epsilon, path)
        paths.append(path)
    return paths


def _draw(found: Sequence[tuple[Cell, Summary]], epsilon: float, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    problems = list(dict.fromkeys(cell.problem for cell, _ in found))
    methods = list(dict.fromkeys(cell.method for cell, _ in found))
    fig, axes = plt.subplots(
        1, 3, figsize=(10, 0.3 * len(problems) + 1.4), sharey=True, layout="constrained"
    )
    for cell, summary in found:
        number = methods.index(cell.method)
        height = problems.index(cell.problem) + 0.22 * (number - (len(methods) - 1) / 2)
        each = summary.coefficients
        for ax, values in zip(axes, (each.coverage, each.width, each.error), strict=True):
            _draw_line(ax, height, values, f"C{number}", cell.method)
    axes[0].axvspan(*BAND, color="0.85", zorder=0)
    axes[0].set(xlim=(-0.02, 1.02), xlabel="coverage of 90% intervals")
    for ax, name in zip(axes[1:], ("sd", "rmse"), strict=True):
        ax.axvline(1.0, color="0.8", zorder=0)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set(xlabel=f"{name} / non-private sd")
    axes[0].set(yticks=range(len(problems)), yticklabels=problems, ylim=(len(problems) - 0.5, -0.5))
    handles, names = axes[0].get_legend_handles_labels()
    kept = dict(zip(names, handles, strict=True))
    fig.legend(kept.values(), kept.keys(), loc="outside lower center", ncols=len(kept))
    fig.suptitle(f"epsilon={epsilon:g}: a dot a coefficient, a ring their middle")
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=100)
    plt.close(fig)


def _draw_line(ax, height: float, values: np.ndarray, color: str, label: str) -> None:
    ax.plot([values.min(), values.max()], [height, height], color=color, lw=0.8)
    ax.plot(values, np.full(len(values), height), ".", color=color, ms=3)
    ax.plot(np.median(values), height, "o", mfc="none", color=color, ms=6, label=label)


# --- the tables: a line a cell, or a line a coefficient ------------------------------------------

HEADER = (
    "| problem | epsilon | method | sets | coverage (range) | sd / rmse (range) | "
    "rmse / non-private sd (max) | privacy error | joint | width | farthest | silent | seconds |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
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
        f"{np.median(each.privacy):.2f}",
        f"{found.joint:.2f}",
        f"{np.median(each.width):.2f}",
        f"{found.farthest:.1f}",
        f"{found.silent}",
        f"{found.seconds:.2f}",
    )
    return f"{start} {' | '.join(cells)} |"


def details(names: list[str], found: Summary) -> str:
    """Write one cell with a line a coefficient."""
    lines = [
        f"| {name} | {coverage:.3f} | {calibration:.2f} | {error:.2f} | {bias:+.2f} | {width:.2f} |"
        for name, coverage, calibration, error, bias, width in zip(
            names, *found.coefficients[:5], strict=True
        )
    ]
    return "\n".join([DETAILS, *lines])


def _range(values: np.ndarray, middle: float) -> str:
    return f"{middle:.2f} ({np.min(values):.2f}-{np.max(values):.2f})"
