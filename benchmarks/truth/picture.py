"""Coverage, width and error of every coefficient: a line a problem, a color a method."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.truth.cell import Cell
from benchmarks.truth.summary import Summary

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
