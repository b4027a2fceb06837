"""What a regression of wages costs by each method of releasing it: ``python -m benchmarks.wages``.

The table of 54,875 adults stands in for a population. Each repetition draws as many of its rows
with replacement, and fits them by all methods and at all epsilons, with new noise: wages on
education, experience and sex, and whether a wage is above a public line. Errors are differences to
the fit without privacy of the same rows; intervals should hold the population's value. Nothing that
is printed is private: the table is public.

The first run builds an environment for diffprivlib from the network.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import norm

from benchmarks import wages_releases as releases
from benchmarks.data import load
from benchmarks.papers.experiment import NOT_PRIVATE, Experiment, options, run
from benchmarks.papers.picture import COLOURS, panels
from benchmarks.wages_releases import Estimate, Rows

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


Release = Callable[[Rows, float, np.random.Generator], Estimate]
FILE = "cps_asec_2024_wages.csv.gz"
EPSILONS = (0.3, 1.0, 3.0)
# of the logarithm of a wage: 44,000 dollars
CENTER = 10.7
LINE = 75_000
# units of the page in half a column's range: years, and the step from men to women
SD = "outcome sd"
REFERENCE = ("free", "width", "truth")
UNITS = {"intercept": 1.0, "education": 11.0, "experience": 29.0, "squared": 1.0, "women": 0.5}
OURS, DP_STATSMODELS = "pymc_dp", "dp-statsmodels"
METHODS: dict[str, dict[str, Release]] = {
    "wage": {
        OURS: partial(releases.ours, releases.linear_model),
        "noise by hand": releases.by_hand,
        "diffprivlib": releases.diffprivlib_linear,
        DP_STATSMODELS: releases.three_mechanisms,
    },
    "above line": {
        OURS: partial(releases.ours, releases.logistic_model),
        "diffprivlib": releases.diffprivlib_logistic,
    },
}


class Cell(NamedTuple):
    """A fit of one draw of rows."""

    problem: str
    method: str
    epsilon: float
    seed: int


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """List the fits, those of one draw of rows together."""
    for problem, methods in METHODS.items():
        for seed in range(arguments.seeds):
            yield Cell(problem, NOT_PRIVATE, math.inf, seed)
            for method in methods:
                for epsilon in EPSILONS:
                    yield Cell(problem, method, epsilon, seed)


def measure(cell: Cell, arguments: argparse.Namespace) -> dict[str, float]:
    """Fit, and compare the estimates with those of the same rows and of the population."""
    rows = drawn(cell.problem, cell.seed, arguments.data_dir)
    free, truth = without_privacy(cell.problem, rows), _truth(cell.problem, arguments.data_dir)
    found = _fit(cell, rows, free)
    names = [*UNITS, SD][: len(truth)]
    columns = found._asdict() | {"free": free.mean, "width": free.upper - free.lower}
    columns["truth"] = truth
    return {
        f"{column} {name}": float(value) / UNITS.get(name, 1.0)
        for column, values in columns.items()
        for name, value in zip(names, values, strict=True)
    }


@cache
def _table(problem: str, folder: Path) -> Rows:
    """Read the population: predictors in [-1, 1] by public ranges, and the outcome."""
    columns = load(folder, FILE)
    years = columns["experience"] / 29 - 1
    education, female = columns["educ_years"] / 11 - 1, 2 * columns["female"] - 1
    X = np.column_stack([np.ones_like(years), education, years, 2 * years**2 - 1, female])
    above = columns["log_wage"] > math.log(LINE)
    return Rows(X, columns["log_wage"] - CENTER if problem == "wage" else above.astype(float))


def without_privacy(problem: str, rows: Rows) -> Estimate:
    """Return the classical fit of the problem."""
    return (releases.least_squares if problem == "wage" else releases.maximum_likelihood)(rows)


@cache
def drawn(problem: str, seed: int, folder: Path) -> Rows:
    """Draw as many rows as the population has."""
    population = _table(problem, folder)
    some = np.random.default_rng(seed).integers(0, len(population.y), len(population.y))
    return Rows(population.X[some], population.y[some])


@cache
def _truth(problem: str, folder: Path) -> np.ndarray:
    return without_privacy(problem, _table(problem, folder)).mean


def _fit(cell: Cell, rows: Rows, free: Estimate) -> Estimate:
    if cell.method == NOT_PRIVATE:
        return free
    rng = np.random.default_rng((cell.seed, EPSILONS.index(cell.epsilon)))
    return METHODS[cell.problem][cell.method](rows, cell.epsilon, rng)


def long(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each coefficient of each fit."""
    names = [column.removeprefix("truth ") for column in table if column.startswith("truth ")]
    parts = []
    for name in names:
        columns = {f"{column} {name}": column for column in (*Estimate._fields, *REFERENCE)}
        part = table[[*Cell._fields, *columns]].rename(columns=columns)
        parts.append(part.assign(coefficient=name))
    return pd.concat(parts).dropna(subset=["mean"])


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return errors, widths and coverage by method and epsilon; the sd of outcomes apart."""
    found = long(table)
    found["problem"] = np.where(found["coefficient"] == SD, SD, found["problem"])
    ses = found["width"] / (2 * norm.ppf((1 + releases.PROB) / 2))
    found["error"] = (found["mean"] - found["free"]).abs() / ses
    found["ratio"] = (found["upper"] - found["lower"]) / found["width"]
    within = (found["lower"] <= found["truth"]) & (found["truth"] <= found["upper"])
    found["holds"] = within.astype(float).where(found["lower"].notna())
    groups = found.groupby(["problem", "method", "epsilon"], sort=False)
    return pd.DataFrame(
        {
            "error": groups["error"].agg(lambda errors: math.sqrt(np.mean(errors**2))),
            "largest": groups["error"].max(),
            "width": groups["ratio"].median(),
            "coverage": groups["holds"].mean(),
        }
    ).reset_index()


EXPERIMENT = Experiment("wages", cells, measure, summary, lambda table: draw(long(table)))


def main() -> None:
    parser = options("wages", __doc__, seeds=20)
    parser.prog = "python -m benchmarks.wages"
    run(EXPERIMENT, parser.parse_args())


if __name__ == "__main__":
    main()
