"""The picture of VIPS's figure 5: a panel a task."""

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.papers.experiment import NOT_PRIVATE
from benchmarks.papers.picture import COLOURS, line, log_epsilon, panels

TITLES = {
    "correlated": "correlated features, N=3341, d=9",
    "sparse": "rare binary features, N=10000, d=101",
    "abalone": "Abalone, N=3341, d=8",
}
SIZE = (3.2, 3.3)
STYLES = {
    "paper's form": {"color": COLOURS["vips"], "ls": "--", "mfc": "white"},
    "dp_advi": {},
    "peer": {"marker": "s"},
}
LABELS = {
    "paper's form": "vips, the paper's form",
    "peer": "objective perturbation",
}


def draw(rows: pd.DataFrame) -> Figure:
    """Draw the means of a summary, a line a method."""
    figure, axes = panels(len(TITLES), size=SIZE)
    for ax, (task, title) in zip(axes, TITLES.items(), strict=True):
        shown = rows[rows["task"] == task].rename(columns={"auc": "AUC"})
        for method, style in STYLES.items():
            points = shown[shown["method"] == method]
            style = {"color": COLOURS.get(method), **style}
            line(ax, points, "epsilon", "AUC", LABELS.get(method, method), **style)
        free = shown.loc[shown["method"] == NOT_PRIVATE, "AUC"].item()
        ax.axhline(free, color=COLOURS[NOT_PRIVATE], ls=":", label=NOT_PRIVATE)
        ax.set_title(title, fontsize=9.5)
        log_epsilon(ax, sorted(set(points["epsilon"])))
    axes[0].set_ylabel("held-out AUC")
    axes[0].legend(fontsize=8, loc="lower right")
    return figure
