"""Fits of experiments, which say nothing: no progress, and no warning that a budget is large.

Experiments show what a setting costs, large budgets and fits without noise among them.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import xarray as xr

import pymc_dp


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out warnings about privacy; a function takes it as a decorator, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pymc_dp.PrivacyWarning)
        yield


@quiet()
def quiet_fit(**settings) -> xr.DataTree:
    """Fit as `pymc_dp.fit` does."""
    return pymc_dp.fit(progressbar=False, **settings)
