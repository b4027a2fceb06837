"""VIPS, figure 5: ``python -m benchmarks.papers.auc --data-dir DIR``.

Area under the curve against epsilon of private logistic regressions: `vips` in the
paper's form, `dp_advi`, and empirical risk minimisation by objective
perturbation (diffprivlib). The paper's records of strokes are not public; two generated tasks and
Abalone stand in. The scores read held-out rows of generated or public data: they are not private.

The first run builds an environment for diffprivlib from the network.
"""

import argparse
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.papers.experiment import (
    NOT_PRIVATE,
    Experiment,
    mean_and_error,
    options,
    quiet_fit,
    run,
)
from benchmarks.papers.peers import NORM, fit_peers, objective_perturbation
from benchmarks.papers.picture import COLOURS, line, log_epsilon, panels
from benchmarks.papers.tasks import Task, abalone, accuracy, auc, correlated, logistic, mode, sparse

TITLES = {
    "correlated": "correlated features, N=3341, d=9",
    "sparse": "rare binary features, N=10000, d=101",
    "abalone": "Abalone, N=3341, d=8",
}
SIZE = (3.2, 3.3)
STYLES = {
    "vips": {},
    "paper's form": {"color": COLOURS["vips"], "ls": "--", "mfc": "white"},
    "dp_advi": {},
    "peer": {"marker": "s"},
}
LABELS = {
    "vips": "vips",
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


EPSILONS = (0.5, 1.0, 2.0, 4.0)
DELTA = 1e-5
TASKS = ("correlated", "sparse", "abalone")
METHODS = {
    "paper's form": {"method": "vips", "form": "absolute", "noise_aware": False},
    "dp_advi": {"method": "dp_advi"},
    # what a posterior costs that contains the noise
    "dp_advi, noise_aware=False": {"method": "dp_advi", "noise_aware": False},
}
# a standard normal prior is C = 1; smaller ones shrink more, which makes private minima steadier
SHRINKAGES = (1.0, 0.1, 0.01)


class Cell(NamedTuple):
    """A fit; ``C`` is that of the empirical risk minimisation."""

    task: str
    method: str
    C: float
    epsilon: float
    seed: int


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """List the fits without privacy, of our methods, and of the peer."""
    for seed in range(arguments.seeds):
        for task in TASKS:
            yield Cell(task, NOT_PRIVATE, math.nan, math.inf, seed)
            for epsilon in EPSILONS:
                for method in METHODS:
                    yield Cell(task, method, math.nan, epsilon, seed)
                for C in SHRINKAGES:
                    yield Cell(task, "peer", C, epsilon, seed)


def measure(cell: Cell, arguments: argparse.Namespace) -> dict[str, float]:
    """Fit, and score held-out rows."""
    task = _task(cell.task, cell.seed, arguments.data_dir)
    if cell.method == "peer":
        score = _peer(cell.task, cell.seed, arguments.data_dir)[cell.C, cell.epsilon]
    elif cell.method == NOT_PRIVATE:
        score = task.X_held_out @ mode(task)
    else:
        score = task.X_held_out @ _mean(task, cell)
    return {"auc": auc(task.y_held_out, score), "accuracy": accuracy(task.y_held_out, score)}


@cache
def _task(name: str, seed: int, folder: Path) -> Task:
    make = {"correlated": correlated, "sparse": sparse}.get(name)
    return make(seed) if make else abalone(folder)


@cache
def _peer(name: str, seed: int, folder: Path) -> dict[tuple[float, float], np.ndarray]:
    """Return scores of held-out rows by C and epsilon: probabilities less a half."""
    task = _task(name, seed, folder)
    grid = [(C, epsilon) for C in SHRINKAGES for epsilon in EPSILONS]
    settings = [objective_perturbation(*setting) for setting in grid]
    found = fit_peers(task.X / NORM, task.y, task.X_held_out / NORM, settings)
    return dict(zip(grid, found - 0.5, strict=True))


def _mean(task: Task, cell: Cell) -> np.ndarray:
    """Return the posterior mean of the coefficients."""
    settings = METHODS[cell.method] | {"epsilon": cell.epsilon, "delta": DELTA}
    settings |= {"random_seed": cell.seed, "backend": "python"}
    idata = quiet_fit(model=logistic(task), **settings)
    return idata["fit"]["mean_vector"].to_numpy()


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row a setting, the peer at the best of its C."""
    by, same = ["task", "method", "C", "epsilon"], ["task", "seed"]
    free = table[table["method"] == NOT_PRIVATE].set_index(same)["auc"]
    lost = table["auc"] - free.loc[pd.MultiIndex.from_frame(table[same])].to_numpy()
    rows = mean_and_error(table, by, "auc")
    rows["error"] = mean_and_error(table.assign(lost=lost), by, "lost")["error"]
    rows["accuracy"] = mean_and_error(table, by, "accuracy")["accuracy"]
    return best(rows).drop(columns="fits")


def best(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the row of the greatest AUC where a method was fitted with several C."""
    kept = rows.groupby(["task", "method", "epsilon"], sort=False)["auc"].idxmax()
    return rows.loc[kept].sort_values(["task", "epsilon"], kind="stable", ignore_index=True)


EXPERIMENT = Experiment("auc", cells, measure, summary, lambda table: draw(summary(table)))


def main() -> None:
    run(EXPERIMENT, options("auc", __doc__, seeds=5).parse_args())


if __name__ == "__main__":
    main()
