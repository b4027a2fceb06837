"""What is made of released states: the posterior's draws, and the path of a fit.

A posterior has the variables and coords of `Records.outputs`, which holds releasable ones alone.
"""

import copy
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_dp.methods.at_draws import at_draws
from pymc_dp.methods.method import Draws, Method
from pymc_dp.model import Records
from pymc_dp.model.dims import named_dims

PATH_POINTS = 50  # how many points of a fit's path a result keeps


def released_groups(
    records: Records, method: Method, states: list[Any], draws: int, rng: np.random.Generator
) -> dict[str, xr.Dataset]:
    """Draw the posterior, and describe the states: all groups but ``privacy``."""
    fit = method.describe(states[-1])
    drawn = _posteriors(records, method, states[-1], draws, rng)
    return {**drawn, "fit": fit, "fit_stats": _fit_stats(method, states, fit)}


def _posteriors(
    records: Records, method: Method, state: Any, draws: int, rng: np.random.Generator
) -> dict[str, xr.Dataset]:
    """Draw the posterior, and say how much of its width is privacy noise."""
    latents, has_both = latent_draws(method, state, draws, rng)
    values = transform_draws(records, latents)
    if not has_both:
        return {"posterior": _posterior(records, values)}
    halves = {name: np.split(x, 2) for name, x in values.items()}
    without = _posterior(records, {name: half[0] for name, half in halves.items()})
    posterior = _posterior(records, {name: half[1] for name, half in halves.items()})
    wide, narrow = (x.astype("float64").var(("chain", "draw")) for x in (posterior, without))
    return {"posterior": posterior, "noise_sd": (wide - narrow).clip(min=0) ** 0.5}


def latent_draws(
    method: Method, state: Any, draws: int, rng: np.random.Generator
) -> tuple[Draws, bool]:
    """Draw the latents; where the noise is known, without its width and then with it.

    Return also whether both are drawn. They share their random numbers, so that what they differ
    by is the noise.
    """
    same = copy.deepcopy(rng)
    aware = method.noise_aware and method.noise_aware(state, draws, same)
    latents = method.posterior(state, draws, rng)
    if not aware:
        return latents, False
    return {name: np.concatenate([x, aware[name]]) for name, x in latents.items()}, True


def _posterior(records: Records, values: dict[str, np.ndarray]) -> xr.Dataset:
    outputs = records.outputs
    variables = {}
    for name, value in values.items():
        dims = named_dims(outputs.dims[name], name, value.ndim - 1)
        variables[name] = (("chain", "draw", *dims), value[None])
    draws = next(iter(values.values())).shape[0]
    coords = {dim: _labels(x) for dim, x in outputs.coords.items()}
    return xr.Dataset(variables, {"chain": [0], "draw": np.arange(draws), **coords})


def _labels(labels: np.ndarray) -> np.ndarray:
    """Return labels as numbers, times or text: files hold no others, and objects may hold data."""
    if labels.dtype == object:
        labels = pd.Index(labels).to_numpy()  # which knows times
    if labels.dtype != object:
        return labels
    return np.array([x if x is None else str.__str__(str(x)) for x in labels], object)


def transform_draws(records: Records, latents: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Map draws of the value variables, shape (draws, ...), to what the model calls them."""
    graphs = records.outputs.graphs
    draws = len(next(iter(latents.values())))
    values = at_draws(list(graphs.values()), records.latents, latents)
    return {
        name: np.broadcast_to(value, (draws, *value.shape[1:]))
        for name, value in zip(graphs, values, strict=True)
    }


def _fit_stats(method: Method, states: list[Any], fit: xr.Dataset) -> xr.Dataset:
    """Keep traces of released quantities, thinned to at most `PATH_POINTS` releases."""
    chosen = np.unique(np.linspace(0, len(states) - 1, PATH_POINTS).astype(int))
    chosen = chosen[chosen > 0]
    traces = [method.trace(states[i]) for i in chosen]
    variables = {}
    for name, (dims, value) in method.trace(states[0]).items():
        values = [trace[name][1] for trace in traces]
        variables[name] = (("release", *dims), np.reshape(values, (len(values), *np.shape(value))))
    used = {dim for dims, _ in variables.values() for dim in dims}
    shared = {dim: fit[dim] for dim in used if dim in fit.coords}
    return xr.Dataset(variables, {"release": chosen, **shared})
