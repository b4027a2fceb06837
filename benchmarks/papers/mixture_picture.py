"""The pictures of the mixture: errors against epsilon, and the clusters of figure 1."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import chi2

from benchmarks.papers.experiment import NOT_PRIVATE
from benchmarks.papers.mixture_data import COMPONENTS, Case, D, Posterior, match, responsibilities
from benchmarks.papers.picture import COLOURS, log_epsilon, panels

# squared errors of Table 1, for means and covariances: these were measured against another
# reference (see docs/papers/dp_sep.md)
PUBLISHED = {
    "dp_sep": {1: (82.9746, 5.0777), 5: (12.1623, 1.0655), 50: (2.2411, 0.0358)},
    "dp_em": {1: (7.5166, 57.8665), 5: (10.4548, 3.7573), 50: (5.3769, 1.3189)},
}
LINES = {
    "dp_sep": COLOURS["dp_sep"],
    "dp_sep, replace-one": COLOURS["dp_fullrank_advi"],
    "vips": COLOURS["vips"],
    "dp_em": COLOURS["peer"],
}
# of the components, in the order of the reference (Okabe and Ito)
CLUSTERS = np.array(["#0072B2", "#D55E00", "#009E73", "#CC79A7"])
LEVEL = 0.98
SIZE = (6.2 / 3, 1.65)
SHOWN = 4  # one record in four
MARGIN = 0.8  # of the plot around the records, which all panels share


def draw_errors(table: pd.DataFrame) -> Figure:
    """Draw medians over the fits to the paper's data; bars reach from the best to the worst."""
    table = table[table["data"] == "paper"]
    figure, axes = panels(2)
    for column, (ax, value) in enumerate(zip(axes, ("means", "covariances"), strict=True)):
        for method in LINES:
            _line(ax, table[(table["method"] == method) & np.isfinite(table["epsilon"])], value)
        for method, rows in PUBLISHED.items():
            numbers = [both[column] for both in rows.values()]
            style = {"color": LINES[method], "ls": ":", "marker": "x", "label": f"{method}, paper"}
            ax.plot(list(rows), numbers, **style)
        sep = table.loc[table["method"] == "sep", value].median()
        ax.axhline(sep, color=COLOURS[NOT_PRIVATE], ls="--", label=f"sep, {NOT_PRIVATE}")
        ax.set_yscale("log")
        ax.set_ylabel(f"squared error of the {value}")
        log_epsilon(ax, PUBLISHED["dp_sep"])
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    return figure


def _line(ax: Axes, table: pd.DataFrame, value: str) -> None:
    groups = table.groupby(["method", "epsilon"])[value]
    found = groups.quantile([0, 0.5, 1]).unstack().reset_index()
    bars = np.abs(found[[0, 1]].T.to_numpy() - found[0.5].to_numpy())
    [method] = found["method"].unique()
    style = {"color": LINES[method], "marker": "o", "ms": 4, "capsize": 3}
    apart = 1.05 ** (list(LINES).index(method) - 1.5)  # so that bars do not hide each other
    ax.errorbar(apart * found["epsilon"], found[0.5], bars, label=method, **style)


def draw_clusters(table: pd.DataFrame, case: Case) -> Figure:
    """Draw two dimensions: records by their likeliest component, rings with 98% of each centre."""
    figure, axes = panels(1 + len(table), columns=3, size=SIZE, shared=True)
    _panel(axes[0], case.X, case.label, case.reference, "data, Gibbs sampling")
    for ax, (_, row) in zip(axes[1:], table.iterrows(), strict=True):
        fit = match(_posterior(row), case.reference)
        label = responsibilities(case.X, fit.means).argmax(axis=1)
        _panel(ax, case.X, label, fit, _title(row["method"], row["epsilon"]))
    low, high = case.X[:, :2].min(axis=0) - MARGIN, case.X[:, :2].max(axis=0) + MARGIN
    axes[0].set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    return figure


def _title(method: str, epsilon: float) -> str:
    return f"{method}, epsilon {epsilon:g}" if np.isfinite(epsilon) else method


def _posterior(row: pd.Series) -> Posterior:
    """Read the columns that `mixture.moments` wrote, in its order."""
    means = row.filter(regex="^means").to_numpy(float).reshape(COMPONENTS, D)
    covariances = row.filter(regex="^covariances").to_numpy(float)
    return Posterior(means, covariances.reshape(COMPONENTS, D, D))


def _panel(ax: Axes, X: np.ndarray, label: np.ndarray, fit: Posterior, title: str) -> None:
    shown = slice(None, None, SHOWN)
    style = {
        "c": CLUSTERS[label[shown]],
        "s": 4,
        "alpha": 0.6,
        "linewidths": 0,
        "antialiased": False,
    }
    ax.scatter(*X[shown, :2].T, **style)
    for mean, covariance in zip(fit.means[:, :2], fit.covariances[:, :2, :2], strict=True):
        ax.plot(*_ring(mean, covariance), color="black", lw=1.2)
    ax.set_title(title, fontsize=8)
    ax.tick_params(labelsize=7)
    ax.grid(visible=False)


def _ring(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Points of the ellipse that holds the level, shape (2, points)."""
    angle = np.linspace(0, 2 * np.pi, 100)
    radius = np.sqrt(chi2.ppf(LEVEL, df=2))
    circle = radius * np.stack([np.cos(angle), np.sin(angle)])
    return mean[:, None] + np.linalg.cholesky(covariance) @ circle
