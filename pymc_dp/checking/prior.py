"""Widths of a prior, from draws of it."""

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dp.model.priors import draw_of_prior

DRAWS = 500
# the ends of the intervals that are compared
ENDS = (0.05, 0.95)


def widths(values: xr.Dataset) -> xr.Dataset:
    """Return the lengths of central intervals of 90 percent of draws."""
    low, high = (values.quantile(end, ("chain", "draw")) for end in ENDS)
    return (high.drop_vars("quantile") - low.drop_vars("quantile")).astype("float64")


def prior_draws(model: pm.Model, posterior: xr.Dataset) -> xr.Dataset | None:
    """Draw the prior of the latents that a posterior holds; None where one cannot be drawn.

    **Privacy.** No prior of a fitted model reads private data.
    """
    latents = [rv for rv in model.free_RVs if rv.name in posterior]
    try:
        drawn = draw_of_prior(latents, DRAWS)
    except NotImplementedError:  # a flat prior
        return None
    found = {}
    for rv, values in zip(latents, drawn, strict=True):
        like = posterior[rv.name]
        if values.shape[1:] != like.shape[2:]:
            raise ValueError(
                f"The posterior holds no `{rv.name}` of shape {values.shape[1:]}: give the model "
                "that was fitted."
            )
        found[rv.name] = (like.dims, np.asarray(values)[None])
    return xr.Dataset(found)
