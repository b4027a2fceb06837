"""DP-ADVI, figure 1: ``python -m benchmarks.papers.abalone --data-dir DIR``.

Accuracy on Abalone against epsilon, (a) for clip norms and (b) for sample rates. Fits in the
paper's own setting are accounted in the paper's way, and for the same noise in today's. Beside them
stand the defaults of three methods. The scores read held-out rows of public data: they are not
private.
"""

import argparse
import math
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import pymc_dp
from benchmarks.papers.experiment import (
    NOT_PRIVATE,
    Experiment,
    mean_and_error,
    options,
    quiet_fit,
    run,
)
from benchmarks.papers.paper_accounting import advanced_composition
from benchmarks.papers.picture import COLOURS, line, log_epsilon, panels
from benchmarks.papers.tasks import Task, abalone, accuracy, logistic

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


DELTA = 1e-3
# the authors' code: releases, windowed Adagrad, its rate with noise and without
RELEASES, WINDOW, OFFSET, RATE, RATE_NO_NOISE = 2000, 10, 0.1, 0.1, 0.01
# noise over twice the clip norm; at a sample rate of .01 the paper's epsilon is .936, .433, .168
SIGMAS = (11.315, 21.471, 51.077)
CLIP_NORMS = (0.1, 0.5, 1.0, 5.0)
SAMPLE_RATES = (0.005, 0.02, 0.05)
CLIP_NORM, SAMPLE_RATE = 1.0, 0.01
# those of the fits above at a sample rate of .01: by today's accountant two, by the paper's three
EPSILONS = (0.0099, 0.025, 0.168, 0.433, 0.936)
METHODS = ("dp_advi", "vips", "dp_sep")


class Cell(NamedTuple):
    """A fit: in the paper's setting by its noise, or with defaults by its epsilon."""

    method: str
    clip_norm: float
    sample_rate: float
    sigma: float
    epsilon: float
    seed: int


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """List the fits without privacy, of panel a, of panel b, and with defaults."""
    yield Cell(NOT_PRIVATE, math.inf, 1.0, 0.0, math.inf, 0)
    settings = [(clip, SAMPLE_RATE) for clip in CLIP_NORMS]
    settings += [(CLIP_NORM, rate) for rate in SAMPLE_RATES]
    for seed in range(arguments.seeds):
        yield Cell("paper", math.inf, SAMPLE_RATE, 0.0, math.inf, seed)
        for clip, rate in settings:
            for sigma in SIGMAS:
                yield Cell("paper", clip, rate, sigma, math.nan, seed)
        for method in METHODS:
            for epsilon in EPSILONS:
                yield Cell(method, math.nan, math.nan, math.nan, epsilon, seed)


def measure(cell: Cell, arguments: argparse.Namespace) -> dict[str, float]:
    """Fit, and score held-out rows."""
    task = _task(arguments.data_dir)
    if cell.method != "paper":
        idata = _fit(task, cell.seed, **default_setting(cell))
        return _accounted(cell) | {"accuracy": _accuracy(task, idata), "last": math.nan}
    idata = _fit(task, cell.seed, **paper_setting(cell))
    last = idata["fit_stats"]["mean_path"].to_numpy()[-1]
    scores = {"accuracy": _accuracy(task, idata), "last": accuracy(*_predicted(task, last))}
    return _accounted(cell) | scores


def paper_setting(cell: Cell) -> dict:
    """Return the options under which dp_advi is the paper's algorithm."""
    rate = RATE if cell.sigma else RATE_NO_NOISE
    return {
        "method": "dp_advi",
        "aligned": False,
        "noise_aware": False,
        "n": RELEASES,
        "sample_rate": cell.sample_rate,
        "clip_norm": cell.clip_norm,
        "noise_multiplier": 2 * cell.sigma,
        "obj_optimizer": pm.adagrad_window(learning_rate=rate, n_win=WINDOW, epsilon=OFFSET),
    }


def default_setting(cell: Cell) -> dict:
    """Return a method's defaults; without privacy, a fit in closed form to convergence."""
    if math.isinf(cell.epsilon):
        return {"method": "vips", "epsilon": math.inf, "clip_norm": math.inf}
    return {"method": cell.method, "epsilon": cell.epsilon}


def _accounted(cell: Cell) -> dict[str, float]:
    """Return epsilon by the paper's accounting, by today's, and by today's at delta 1e-5."""
    if cell.method != "paper" or not cell.sigma:
        return {"paper": math.nan, "today": cell.epsilon, "today_1e-5": math.nan}
    plan = {"sample_rate": cell.sample_rate, "n": RELEASES}
    return {
        "paper": advanced_composition(sigma=cell.sigma, delta=DELTA, **plan),
        "today": _today(2 * cell.sigma, cell.sample_rate, DELTA),
        "today_1e-5": _today(2 * cell.sigma, cell.sample_rate, 1e-5),
    }


@cache
def _today(noise: float, rate: float, delta: float) -> float:
    return pymc_dp.epsilon(noise_multiplier=noise, sample_rate=rate, n=RELEASES, delta=delta)


_task = cache(abalone)


def _fit(task: Task, seed: int, **settings) -> xr.DataTree:
    fixed = {"delta": DELTA, "random_seed": seed, "backend": "python"}
    return quiet_fit(model=logistic(task), **fixed, **settings)


def _predicted(task: Task, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return task.y_held_out, task.X_held_out @ mean


def _accuracy(task: Task, idata: xr.DataTree) -> float:
    mean = idata["posterior"]["b"].mean(("chain", "draw")).to_numpy()
    return accuracy(*_predicted(task, mean))


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row a setting: means of the accuracies, and their standard errors."""
    by = ["method", "clip_norm", "sample_rate", "paper", "today", "today_1e-5"]
    rows = mean_and_error(table, by, "accuracy")
    last = mean_and_error(table, by, "last")
    return rows.assign(last=last["last"], last_error=last["error"]).drop(columns="fits")


EXPERIMENT = Experiment("dp_advi", cells, measure, summary, draw)


def main() -> None:
    run(EXPERIMENT, options("abalone", __doc__, seeds=10).parse_args())


if __name__ == "__main__":
    main()
