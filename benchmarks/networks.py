"""Bayesian networks on five public tables: ``python -m benchmarks.networks``.

Test RMSE and test log likelihood, in the units of the target, on the papers' random splits (the
first of them). Features and targets are standardised by the training rows, as in the papers: these
are public benchmark data, and neither that nor the scores are private.

The papers' DP-SEP rows carry no noise as published, so they are no reference for the private fits.
"""

import argparse
import math
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from scipy.special import logsumexp

import pymc_dp
from benchmarks.data import add_data_dir, load

TABLES = {
    "Kin8nm": "kin8nm",
    "Power": "power_plant",
    "Wine": "wine_quality_red",
    "Naval": "naval_propulsion_plant",
    "Protein": "protein_tertiary_structure",
}
# test RMSE of Vinaroz and Park, Table 3: SEP, clipped SEP, "DP-SEP" (without noise as published)
PAPERS = {
    "Kin8nm": (0.089, 0.078, 0.078),
    "Power": (4.061, 4.013, 4.032),
    "Wine": (0.623, 0.627, 0.627),
    "Naval": (0.002, 0.002, 0.002),
    "Protein": (4.602, 4.581, 4.585),
}
DELTA, DRAWS = 1e-5, 200
FREE = {"epsilon": math.inf}


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
    scale = X[train].std(axis=0)
    X = (X - X[train].mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    unit = float(y[train].std())
    y = (y - y[train].mean()) / unit
    return Split(X[train], y[train], X[test], y[test], unit)


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


def line(rows: Split, units: int) -> pm.Model:
    """The same without a hidden layer."""
    with pm.Model() as model:
        w, a = pm.Normal("w", 0, 1, shape=rows.X.shape[1]), pm.Normal("a", 0, 1)
        mean = pm.math.dot(rows.X, w) + a
        pm.Normal("y", mean, tau=pm.Gamma("tau", 2, 0.5), observed=rows.y)
    return model


FITS = {
    "sep": (network, {"method": "dp_sep", **FREE, "clip_norm": math.inf}),
    "sep, clipped": (network, {"method": "dp_sep", **FREE}),
    "dp_sep, epsilon=4": (network, {"method": "dp_sep", "epsilon": 4}),
    "dp_sep, epsilon=1": (network, {"method": "dp_sep", "epsilon": 1}),
    "dp_advi, no noise": (network, {"method": "dp_advi", **FREE}),
    "dp_advi, epsilon=4": (network, {"method": "dp_advi", "epsilon": 4}),
    "dp_advi, epsilon=1": (network, {"method": "dp_advi", "epsilon": 1}),
    "line, no noise": (line, {"method": "vips", **FREE}),
    "line, epsilon=4": (line, {"method": "vips", "epsilon": 4}),
    "line, epsilon=1": (line, {"method": "vips", "epsilon": 1}),
}


def fitted(model: pm.Model, rows: Split, **settings) -> xr.Dataset:
    """Fit with the defaults of the method; the number of records is declared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pymc_dp.PrivacyWarning)
        idata = pymc_dp.fit(
            model=model,
            delta=DELTA,
            num_records=len(rows.y),
            draws=DRAWS,
            progressbar=False,
            **settings,
        )
    return idata["posterior"].to_dataset().isel(chain=0)


def score(posterior: xr.Dataset, rows: Split) -> Score:
    """Score the average over posterior draws."""
    p = {name: values.to_numpy() for name, values in posterior.data_vars.items()}
    if "W" in p:
        z = np.maximum(0, rows.X_test @ np.swapaxes(p["W"], 1, 2) + p["b"][:, None])
        f = np.einsum("snh,sh->sn", z, p["w"]) + p["a"][:, None]
    else:
        f = p["w"] @ rows.X_test.T + p["a"][:, None]
    tau = p["tau"][:, None]
    density = np.log(tau / (2 * np.pi)) / 2 - tau * (rows.y_test - f) ** 2 / 2
    log_likelihood = np.mean(logsumexp(density, axis=0)) - np.log(len(f) * rows.unit)
    error = rows.y_test - f.mean(axis=0)
    return Score(float(np.sqrt(np.mean(error**2)) * rows.unit), float(log_likelihood))


def rows_of_table(folder: Path, name: str, splits: int, units: int) -> dict[str, list[Score]]:
    """Fit every model to the first splits of one table."""
    data = [split(folder, name, k) for k in range(splits)]
    found = {}
    for label, (build, settings) in FITS.items():
        start = time.time()
        found[label] = [score(fitted(build(x, units), x, **settings), x) for x in data]
        mean = np.mean([s.rmse for s in found[label]])
        print(f"  {name}: {label}: {mean:.4g} ({time.time() - start:.0f} s)", flush=True)
    return found


def show(title: str, found: dict[str, dict[str, list[Score]]], field: str, form: str) -> None:
    """Print one table: a row a fit, a column a data set; means over the splits."""
    print(f"\n{title}\n\n| | " + " | ".join(found) + " |")
    print("|---" * (len(found) + 1) + "|")
    for label in FITS:
        means = [np.mean([getattr(s, field) for s in found[name][label]]) for name in found]
        print(f"| {label} | " + " | ".join(format(mean, form) for mean in means) + " |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--units", type=int, default=20)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    add_data_dir(parser)
    arguments = parser.parse_args()
    found = {}
    for name in arguments.tables:
        found[name] = rows_of_table(arguments.data_dir, name, arguments.splits, arguments.units)
        show("Test RMSE", found, "rmse", ".4g")
    show("Test log likelihood", found, "log_likelihood", ".3f")
    for k, label in enumerate(("SEP", "clipped SEP", "DP-SEP, which carries no noise")):
        numbers = ", ".join(f"{name} {PAPERS[name][k]:g}" for name in found)
        print(f"\nRMSE in the paper, {label}: {numbers}")


if __name__ == "__main__":
    main()
