"""The picture of the wages: what each method releases of two coefficients, draw by draw."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.experiment import NOT_PRIVATE
from benchmarks.papers.picture import COLOURS, panels

EPSILON = 1.0
TITLES = {"education": "one more year of education", "women": "women, compared with men"}
COLOUR = {NOT_PRIVATE: COLOURS[NOT_PRIVATE], "pymc_dp": COLOURS["dp_advi"]}
SIZE = (2.7, 4.4)
# of the height that a method has; the rest is a gap
FILLED = 0.78
POINTS = 100  # in one of a logarithm
# a panel shows this many widths of intervals without privacy, on either side of the middle
SHOWN = 4.5


def draw(found: pd.DataFrame) -> Figure:
    """Draw the estimates of every draw at one epsilon, with their intervals if they have any."""
    wages = found[found["problem"] == "wage"]
    at = wages[(wages["epsilon"] == EPSILON) | (wages["method"] == NOT_PRIVATE)]
    figure, axes = panels(len(TITLES), size=SIZE)
    for ax, (coefficient, title) in zip(axes, TITLES.items(), strict=True):
        _panel(ax, at[at["coefficient"] == coefficient])
        ax.set_title(title, fontsize=10)
    axes[1].tick_params(labelleft=False)
    figure.supxlabel("change of the logarithm of wages, times 100", fontsize=9)
    return figure


def _panel(ax: Axes, rows: pd.DataFrame) -> None:
    truth, width = POINTS * rows["truth"].iloc[0], POINTS * rows["width"].mean()
    ends = truth - SHOWN * width, truth + SHOWN * width
    methods = list(dict.fromkeys(rows["method"]))
    for place, method in enumerate(methods):
        part = POINTS * rows.loc[rows["method"] == method, ["mean", "lower", "upper"]]
        heights = place + FILLED * (np.arange(len(part)) / len(part) - 0.5)
        colour = COLOUR.get(method, COLOURS["peer"])
        ax.hlines(heights, part["lower"], part["upper"], color=colour, lw=1.2, alpha=0.7)
        ax.plot(part["mean"].clip(*ends), heights, "o", color=colour, ms=2.6)
    ax.axvline(truth, color="0.5", lw=1, zorder=0)
    ax.set(xlim=ends, yticks=range(len(methods)), yticklabels=methods)
    ax.set_ylim(len(methods) - 0.5, -0.5)
    ax.grid(False, axis="y")
