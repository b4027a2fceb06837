"""What is made of released states: the posterior's draws, and the path of a fit.

A posterior has the variables and coords of `Records.outputs`, which holds releasable ones alone.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_dp.methods.method import Both, Draws, Method
from pymc_dp.methods.prior import at_draws
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
    latents, aware = latent_draws(method, state, draws, rng)
    copies = 2 if aware and aware[1] else 1
    halves = {name: np.split(x, copies) for name, x in transform_draws(records, latents).items()}
    posterior, *without = (
        _posterior(records, {name: half[i] for name, half in halves.items()}) for i in range(copies)
    )
    if not aware:
        return {"posterior": posterior}
    wide = posterior.astype("float64").var(("chain", "draw"))
    added = wide * np.nan  # where draws are too few to say
    for narrow in without:
        added = wide - narrow.astype("float64").var(("chain", "draw"))
    return {"posterior": posterior, "noise_sd": added.where(added >= 0) ** 0.5}


def latent_draws(
    method: Method, state: Any, draws: int, rng: np.random.Generator
) -> tuple[Draws, Both | None]:
    """Draw the latents, with the noise's width where it is known, and behind them without it.

    Return also both, as the method does.
    """
    aware = method.noise_aware and method.noise_aware(state, draws, rng)
    wide, narrow = aware or (method.posterior(state, draws, rng), None)
    if not narrow:
        return wide, aware
    return {name: np.concatenate([x, narrow[name]]) for name, x in wide.items()}, aware


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
