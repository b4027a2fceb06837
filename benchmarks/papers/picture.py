"""How the experiments' pictures look: one colour a method in all of them."""

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# colour-blind safe (Okabe and Ito)
COLOURS = {
    "dp_advi": "#0072B2",
    "dp_fullrank_advi": "#56B4E9",
    "vips": "#D55E00",
    "dp_sep": "#009E73",
    "not private": "#555555",
    "paper": "#CC79A7",
    "peer": "#E69F00",
}
WIDTH, HEIGHT = 5.0, 3.6


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """Return a figure of panels in a row."""
    figure = Figure(figsize=(WIDTH * count, HEIGHT), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)
    for ax in axes[0]:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.3)
    return figure, list(axes[0])


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
