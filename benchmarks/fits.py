"""The demo's two fits of one model: with privacy, and without noise or clipping."""

import math

import pymc as pm
import xarray as xr

import pymc_dp  # noqa: F401  # teaches pm.fit the private methods

NOT_PRIVATE = "not private: public survey data"
EPSILON, DELTA = 1.0, 1e-5


def fit_privately(model: pm.Model, method: str = "dp_advi") -> xr.DataTree:
    """Fit with privacy; every setting but the budget has its default."""
    with model:
        return pm.fit(method=method, epsilon=EPSILON, delta=DELTA, progressbar=False)


def fit_without_noise(model: pm.Model) -> xr.DataTree:
    """Fit with the same code: without noise, rounds clip nothing."""
    with model:
        return pm.fit(method="dp_advi", epsilon=math.inf, random_seed=0, progressbar=False)
