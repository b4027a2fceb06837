"""Public tables of the papers on Bayesian networks, and how their fits are scored.

Features and targets are standardised by the training rows, as in the papers: these are public
benchmark data, and neither that nor the scores are private.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.stats import norm

from benchmarks.data import load
from benchmarks.papers.tasks import log_density, standardised

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
