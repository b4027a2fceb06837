"""How the experiments' pictures look: one colour a method in all of them."""

import math
from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.experiment import NOT_PRIVATE

# colour-blind safe (Okabe and Ito; Tol for the two samplers)
COLOURS = {
    "dp_advi": "#0072B2",
    "dp_fullrank_advi": "#56B4E9",
    "vips": "#D55E00",
    "dp_sep": "#009E73",
    "dp_sgld": "#882255",
    "dp_ops": "#999933",
    NOT_PRIVATE: "#555555",
    "paper": "#CC79A7",
    "peer": "#E69F00",
    # where lines are one method's: by who chose the noise, and what stands beside them
    "strong": "#E69F00",
    "moments": "#CC79A7",
    "today": "#D55E00",
    "defaults": "#0072B2",
    "unigram": "#56B4E9",
}
SIZE = (5.0, 3.6)


def panels(
    count: int, columns: int | None = None, size: tuple[float, float] = SIZE, shared: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return a figure of panels, in one row or in rows of so many columns."""
    columns = columns or count
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=shared, sharey=shared, squeeze=False).flat
    for ax in axes[count:]:
        ax.remove()
    for ax in axes[:count]:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.3)
    return figure, list(axes[:count])


def line(ax: Axes, points: pd.DataFrame, x: str, y: str, label: str, **style) -> None:
    """Draw means with their standard errors, the column ``error``."""
    points = points.sort_values(x)
    style = {"color": COLOURS.get(label), "marker": "o", "ms": 4, "capsize": 3, **style}
    ax.errorbar(points[x], points[y], points["error"], label=label, **style)


def log_epsilon(ax: Axes, ticks: Iterable[float]) -> None:
    """Give an axis of epsilons its label, and plain numbers as ticks."""
    ax.set_xscale("log")
    ax.set_xticks(list(ticks), [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlabel("epsilon")
