"""The picture of DP-ADVI's figure 1: by the paper's accounting above, by today's below."""

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.experiment import NOT_PRIVATE, mean_and_error
from benchmarks.papers.picture import COLOURS, line, log_epsilon, panels

# from light to dark, so that the order of clip norms and sample rates is seen
SHADES = ("#E3B7CF", "#CC79A7", "#9B4C7B", "#5A2346")
ACCOUNTING = {"paper": "the paper's accounting", "today": "today's accounting"}
PANELS = {
    "clip_norm": ("(a) clip norms, sample rate 0.01", "C = "),
    "sample_rate": ("(b) sample rates, C = 1", "q = "),
}
FIXED = {"clip_norm": ("sample_rate", 0.01), "sample_rate": ("clip_norm", 1.0)}
SIZE = (3.9, 3.0)
TICKS = (0.001, 0.01, 0.1, 1, 10)


def draw(table: pd.DataFrame) -> Figure:
    """Draw means and standard errors of the accuracy."""
    figure, axes = panels(4, columns=2, size=SIZE, shared=True)
    shown = product(ACCOUNTING.items(), PANELS.items())
    for ax, ((accounting, words), (setting, (title, prefix))) in zip(axes, shown, strict=True):
        _paper(ax, table, setting, accounting, prefix)
        _free(ax, table)
        ax.set_title(f"{title}: {words}", fontsize=9)
        log_epsilon(ax, TICKS)
    for ax in axes[2:]:
        _defaults(ax, table)
    for ax in axes[::2]:
        ax.set_ylabel("held-out accuracy")
    for ax in axes:
        ax.legend(fontsize=7, loc="lower left" if ax in axes[:2] else "lower right")
    return figure


def _paper(ax: Axes, table: pd.DataFrame, setting: str, accounting: str, prefix: str) -> None:
    """Draw the fits in the paper's setting, one line a value of the setting."""
    other, fixed = FIXED[setting]
    noisy = table[(table["method"] == "paper") & (table["sigma"] > 0) & (table[other] == fixed)]
    means = mean_and_error(noisy, [setting, accounting], "last")
    for shade, (value, points) in zip(SHADES, means.groupby(setting), strict=True):
        style = {"color": shade, "marker": "o"}
        line(ax, points, accounting, "last", f"{prefix}{value:g}", **style)


def _free(ax: Axes, table: pd.DataFrame) -> None:
    free = table.loc[table["method"] == NOT_PRIVATE, "accuracy"].item()
    ax.axhline(free, color=COLOURS[NOT_PRIVATE], ls=":", label=NOT_PRIVATE)


def _defaults(ax: Axes, table: pd.DataFrame) -> None:
    """Draw the fits whose epsilon was chosen, not their noise."""
    chosen = table[np.isfinite(table["epsilon"])]
    for method, fits in chosen.groupby("method", sort=False):
        points = mean_and_error(fits, ["epsilon"], "accuracy")
        style = {"color": COLOURS[method], "ls": "--", "marker": "s"}
        line(ax, points, "epsilon", "accuracy", f"{method}, defaults", **style)
