"""Bayesian networks on public tables: the DP-SEP paper's Tables 3 and 4.

Test RMSE and test log likelihood, in the units of the target. A repetition is a fit to the next of
the usual random splits; Protein has five. The line is the same model without a hidden layer. All
tables, three times: ``--tables Kin8nm Power Wine Naval Protein --seeds 3``.

The paper's private rows carry no noise as published, so they are no reference for private fits.
"""

import argparse
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import norm

from benchmarks.data import load
from benchmarks.papers.experiment import (
    NOT_PRIVATE,
    Experiment,
    default_clip_norm,
    mean_and_error,
    options,
    quiet_fit,
    run,
)
from benchmarks.papers.picture import COLOURS, line, log_epsilon, panels
from benchmarks.papers.tasks import log_density, standardised

# --- public tables of the papers on Bayesian networks, and how their fits are scored -------------

TABLES = {
    "Kin8nm": "kin8nm",
    "Power": "power_plant",
    "Wine": "wine_quality_red",
    "Naval": "naval_propulsion_plant",
    "Protein": "protein_tertiary_structure",
}


class Split(NamedTuple):
    """Standardised rows to fit and to score; ``unit`` is one standard deviation of the target."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    unit: float


class Score(NamedTuple):
    """Test RMSE and mean test log likelihood, in the units of the target."""

    rmse: float
    log_likelihood: float


def split(folder: Path, name: str, k: int) -> Split:
    """Standardise by the training rows, as in the papers."""
    table = load(folder, f"uci_{TABLES[name]}.npz")
    train, test = table["train_idx"][k], table["test_idx"][k]
    X, y = table["X"].astype(float), table["y"].astype(float)
    unit = float(y[train].std())
    X, y = standardised(X, X[train]), standardised(y, y[train])
    return Split(X[train], y[train], X[test], y[test], unit)


def score(posterior: xr.Dataset, rows: Split) -> Score:
    """Score the average over posterior draws."""
    p = {name: values.to_numpy() for name, values in posterior.data_vars.items()}
    if "W" in p:
        z = np.maximum(0, rows.X_test @ np.swapaxes(p["W"], 1, 2) + p["b"][:, None])
        f = np.einsum("snh,sh->sn", z, p["w"]) + p["a"][:, None]
    else:
        f = p["w"] @ rows.X_test.T + p["a"][:, None]
    each = norm.logpdf(rows.y_test, f, p["tau"][:, None] ** -0.5)
    log_likelihood = log_density(each) - np.log(rows.unit)
    error = rows.y_test - f.mean(axis=0)
    return Score(float(np.sqrt(np.mean(error**2)) * rows.unit), float(log_likelihood))


# Vinaroz and Park, Tables 3 and 4: the noise of their DP-SEP was never applied, as published
PUBLISHED = {
    "Kin8nm": {"SEP": (0.089, 0.999), "clipped SEP": (0.078, 1.121), "DP-SEP": (0.078, 1.125)},
    "Power": {"SEP": (4.061, -2.821), "clipped SEP": (4.013, -2.809), "DP-SEP": (4.032, -2.814)},
    "Wine": {"SEP": (0.623, -0.936), "clipped SEP": (0.627, -0.938), "DP-SEP": (0.627, -0.938)},
    "Naval": {"SEP": (0.002, 4.609), "clipped SEP": (0.002, 4.710), "DP-SEP": (0.002, 4.686)},
    "Protein": {"SEP": (4.602, -2.945), "clipped SEP": (4.581, -2.941), "DP-SEP": (4.585, -2.941)},
}
DELTA, DRAWS = 1e-5, 200
# hidden units in the paper: 50, and more for its largest table
UNITS = {"Protein": 100}
EPSILONS = (1.0, 4.0, math.inf)
SIZE = (3.0, 2.8)


class Cell(NamedTuple):
    """A fit to one split of one table, by a network of so many hidden units."""

    table: str
    method: str
    epsilon: float
    split: int
    units: int


def network(rows: Split, units: int) -> pm.Model:
    """One hidden layer of ReLUs; weights have priors of variance one over their fan-in."""
    d = rows.X.shape[1]
    with pm.Model() as model:
        W = pm.Normal("W", 0, d**-0.5, shape=(units, d))
        b = pm.Normal("b", 0, 1, shape=units)
        w = pm.Normal("w", 0, units**-0.5, shape=units)
        a = pm.Normal("a", 0, 1)
        z = pm.math.maximum(0, pm.math.dot(rows.X, W.T) + b)
        pm.Normal("y", pm.math.dot(z, w) + a, tau=pm.Gamma("tau", 2, 0.5), observed=rows.y)
    return model


def linear(rows: Split, units: int) -> pm.Model:
    """The same without a hidden layer, which ``units`` would have."""
    with pm.Model() as model:
        w, a = pm.Normal("w", 0, 1, shape=rows.X.shape[1]), pm.Normal("a", 0, 1)
        mean = pm.math.dot(rows.X, w) + a
        pm.Normal("y", mean, tau=pm.Gamma("tau", 2, 0.5), observed=rows.y)
    return model


# the model, and the settings that are not the method's defaults
FITS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sep": (network, {"method": "dp_sep", "clip_norm": math.inf}),
    "dp_sep": (network, {"method": "dp_sep"}),
    # gradient steps alone: rounds look for one mode, and a network has many
    "dp_advi": (network, {"method": "dp_advi", "noise_aware": False}),
    "line by vips": (linear, {"method": "vips"}),
}
LINES = {
    "dp_sep": COLOURS["dp_sep"],
    "dp_advi": COLOURS["dp_advi"],
    "line by vips": COLOURS["vips"],
    "sep": COLOURS[NOT_PRIVATE],
}


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    for table in arguments.tables:
        for method in arguments.methods:
            for epsilon in EPSILONS if method != "sep" else (math.inf,):
                for k in range(arguments.seeds):
                    units = arguments.units or UNITS.get(table, 50)
                    yield Cell(table, method, epsilon, k, units)


def measure(cell: Cell, arguments: argparse.Namespace) -> dict[str, float]:
    rows = split(arguments.data_dir, cell.table, cell.split)
    build, settings = FITS[cell.method]
    model = build(rows, cell.units)
    if cell.method == "dp_sep" and math.isinf(cell.epsilon):
        clip_norm = default_clip_norm(model, num_records=len(rows.y), **settings)
        settings = settings | {"clip_norm": clip_norm}
    settings = settings | {"epsilon": cell.epsilon, "random_seed": cell.split}
    return score(fitted(model, rows, **settings), rows)._asdict()


def fitted(model: pm.Model, rows: Split, **settings) -> xr.Dataset:
    """Fit with the defaults of the method; the number of records is declared."""
    budget = {} if math.isinf(settings["epsilon"]) else {"delta": DELTA}
    idata = quiet_fit(model=model, num_records=len(rows.y), draws=DRAWS, **budget, **settings)
    return idata["posterior"].to_dataset().isel(chain=0)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Lay out both scores, means over the splits: a row a fit; the paper's rows come last."""
    whole = pd.concat([table, pd.DataFrame(published(table["table"].unique()))])
    means = whole.groupby(["method", "epsilon", "table"], sort=False)[list(Score._fields)].mean()
    wide = means.unstack("table", sort=False).reset_index()
    wide.columns = [" ".join(filter(None, names)) for names in wide.columns]
    return wide


def published(tables: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Return the paper's rows, all without noise."""
    for table in tables:
        for method, numbers in PUBLISHED[table].items():
            scores = Score(*numbers)._asdict()
            yield {"table": table, "method": f"paper's {method}", "epsilon": math.inf, **scores}


def draw(table: pd.DataFrame) -> Figure:
    """Draw the test RMSE against epsilon; a broken line is the same fit without noise."""
    names = list(table["table"].unique())
    figure, axes = panels(len(names), columns=3, size=SIZE)
    for ax, name in zip(axes, names, strict=True):
        _panel(ax, table[table["table"] == name])
        style = {"color": COLOURS["paper"], "ls": ":", "label": "SEP in the paper"}
        ax.axhline(PUBLISHED[name]["SEP"][0], **style)
        ax.set_title(name)
    figure.supylabel("test RMSE", fontsize=10)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    return figure


def _panel(ax: Axes, table: pd.DataFrame) -> None:
    means = mean_and_error(table, ["method", "epsilon"], "rmse")
    for method in means["method"].unique():
        points, colour = means[means["method"] == method], LINES[method]
        free = np.isinf(points["epsilon"])
        without = {"color": colour, "ls": "--", "label": "sep" if method == "sep" else None}
        for rmse in points["rmse"][free]:
            ax.axhline(rmse, **without)
        if method != "sep":
            line(ax, points[~free], "epsilon", "rmse", method, color=colour)
    log_epsilon(ax, EPSILONS[:-1])


def main() -> None:
    parser = options("networks", __doc__, seeds=1)
    parser.add_argument("--units", type=int, help="of the hidden layer; as in the paper by default")
    default, methods = ["Kin8nm", "Power", "Wine"], list(FITS)
    parser.add_argument("--methods", nargs="+", choices=FITS, default=methods, help="to fit")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=default, help="a panel each")
    run(Experiment("networks", cells, measure, summary, draw), parser.parse_args())


if __name__ == "__main__":
    main()
