"""A regression whose model is right, and one that is not, with results of both."""

from functools import cache

import numpy as np
import pymc as pm
import xarray as xr

import pymc_dp
from tests import zoo

ROWS = 6000
TERMS = {"epsilon": 4.0, "delta": 1e-5}
QUIETLY = {"progressbar": False, "backend": "python", "random_seed": 1}


def columns(seed: int = 0, rows: int = ROWS) -> dict[str, np.ndarray]:
    """Outcomes with skewed noise and a bend that one of the models has."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    noise = (rng.exponential(size=rows) - 1) * 1.2
    return {"X": X, "y": X @ [1.0, -1.0] + 1.2 * (X[:, 0] ** 2 - 1) + noise}


def straight(data: dict[str, np.ndarray]) -> pm.Model:
    return zoo.line(data["X"], data["y"], prior_sd=2, sd=None)


def bent(data: dict[str, np.ndarray]) -> pm.Model:
    with pm.Model() as model:
        b, c = pm.Normal("b", 0, 2, shape=2), pm.Normal("c", 0, 2)
        X = pm.Data("X", data["X"])
        mean = X @ b + c * (X[:, 0] ** 2 - 1)
        pm.Normal("y", mean, pm.HalfNormal("s", 2), observed=data["y"])
    return model


def coin(ones: int = 700, zeros: int = 300) -> pm.Model:
    return zoo.coin(np.repeat([0, 1], [zeros, ones]))


@cache
def result(build) -> xr.DataTree:
    """Fit one of the models, once for all tests."""
    model = coin() if build is coin else build(columns())
    return pymc_dp.fit(model=model, **TERMS, **QUIETLY)
