"""The picture of same data, same epsilon: a panel a score, a column of points an epsilon."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.experiment import NOT_PRIVATE
from benchmarks.papers.picture import COLOURS, panels

PANELS = (
    ("logistic", "auc", "classification: AUC"),
    ("linear", "rmse", "linear regression: rmse"),
    ("linear", "log_density", "linear regression: log density"),
)
PEERS = {"LogisticRegression": "s", "LinearRegression": "^", "GaussianNB": "D"}
SIZE = (11 / 3, 4.0)
# of a column: neighbouring epsilons are one apart
SPREAD = 0.6


def draw(rows: pd.DataFrame) -> Figure:
    """Draw the medians of a summary."""
    figure, axes = panels(len(PANELS), size=SIZE)
    for ax, (problem, score, title) in zip(axes, PANELS, strict=True):
        _points(ax, rows[(rows["problem"] == problem) & rows[score].notna()], score)
        ax.set_title(f"{title}, held out", fontsize=10)
        ax.set_xlabel("epsilon")
    entries = {}
    for ax in axes:
        points, labels = ax.get_legend_handles_labels()
        entries |= dict(zip(labels, points, strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=5)
    return figure


def _points(ax: Axes, rows: pd.DataFrame, score: str) -> None:
    free = rows["method"] == NOT_PRIVATE
    level = rows.loc[free, score].item()
    ax.axhline(level, color=COLOURS[NOT_PRIVATE], ls=":", label=NOT_PRIVATE)
    rows = rows[~free]
    methods, epsilons = list(dict.fromkeys(rows["method"])), sorted(set(rows["epsilon"]))
    for method, offset in zip(methods, np.linspace(-0.5, 0.5, len(methods)), strict=True):
        points = rows[rows["method"] == method].sort_values("epsilon")
        where = np.searchsorted(epsilons, points["epsilon"]) + SPREAD * offset
        ax.plot(where, points[score], **_style(method), ls="", ms=7, label=method)
    ax.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])


def _style(method: str) -> dict[str, str]:
    if method in PEERS:
        return {"color": COLOURS["peer"], "marker": PEERS[method]}
    filling = {"mfc": "white"} if method == "dp_ops" else {}  # no guarantee is proved
    return {"color": COLOURS[method], "marker": "o"} | filling
