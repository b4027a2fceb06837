"""Posteriors that are made up, for what is computed from draws."""

import numpy as np
import xarray as xr


def posterior(draws=5, **values) -> xr.DataTree:
    """Make a posterior of equal draws."""
    variables = {}
    for name, value in values.items():
        value = np.broadcast_to(np.asarray(value, float), (1, draws, *np.shape(value)))
        dims = ("chain", "draw", *(f"{name}_{k}" for k in range(value.ndim - 2)))
        variables[name] = (dims, value)
    return xr.DataTree.from_dict({"posterior": xr.Dataset(variables)})
