"""Widths of a prior, from draws of it."""

from collections.abc import Collection

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph.traversal import ancestors

from pymc_dp.methods.prior import draw_of_prior
from pymc_dp.model.graphs import unproved_in

DRAWS = 500
ENDS = (0.05, 0.95)  # the ends of the intervals that are compared


def widths(values: xr.Dataset) -> xr.Dataset:
    """Return the lengths of central intervals of 90 percent of draws."""
    low, high = (values.quantile(end, ("chain", "draw")) for end in ENDS)
    return (high.drop_vars("quantile") - low.drop_vars("quantile")).astype("float64")


def prior_draws(model: pm.Model, posterior: xr.Dataset, public: Collection[str] = ()) -> xr.Dataset:
    """Draw the prior of the latents that a posterior holds.

    ``public`` is what the fit declared public: arrays, and operations that hold no data.

    Raises
    ------
    NotImplementedError
        A prior is flat, or is drawn by a Python function that was not declared public.
    ValueError
        The model is not the one that was fitted.

    Notes
    -----
    **Privacy.** No prior of a fitted model reads private data, but the fit proves nothing of how
    its variables are drawn unless it draws them.
    """
    latents = [rv for rv in model.free_RVs if rv.name in posterior]
    read = set(ancestors(latents)).intersection(model.data_vars)
    for name in sorted({str(variable.name) for variable in read}.difference(public)):
        raise ValueError(
            f"A prior reads the data `{name}`, which the fit did not declare public: give the "
            "model that was fitted."
        )
    own = unproved_in(latents)
    for name in sorted(own.keys() - set(public)):
        raise NotImplementedError(
            f"A prior is drawn by `{name}`, which may hold private records. Fit it written as a "
            f"distribution of PyMC's{own[name]}."
        )
    try:
        drawn = draw_of_prior(latents, DRAWS)
    except NotImplementedError as error:
        raise NotImplementedError("The prior is flat: nothing can be drawn from it.") from error
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
