"""The result of a fit: tried before the first release, and built after the last.

A posterior has the variables and coords of `Records.outputs`, which holds releasable ones alone.
"""

import copy
import warnings
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_dp.driver.run import Setup, undisturbed
from pymc_dp.errors import PosteriorWarning
from pymc_dp.methods.method import Both, Doubt, Draws, Kind, Method
from pymc_dp.methods.prior import at_draws
from pymc_dp.model import Records
from pymc_dp.model.compilation import function
from pymc_dp.model.split import named_dims
from pymc_dp.results.tree import Outcome, with_guarantee

MOST_NUMBERS = 2**29  # the most that a posterior holds: 4 GB in double precision
PATH_POINTS = 50  # how many points of a fit's path a result keeps


def rehearse_result(setup: Setup, draws: int) -> None:
    """Build a result of two draws from public numbers; refuse what no result can hold."""
    records, method = setup.records, setup.method
    _check_size(records, draws)
    try:
        with undisturbed():
            state = method.init(np.random.default_rng(0))
            groups = released_groups(records, method, [state] * 2, 2, np.random.default_rng(0))
            tree = xr.DataTree.from_dict(groups)
            # most names and labels can stand in files of any kind, and writing takes time
            if not _are_plain([*groups.values()]):
                tree.to_netcdf(engine="h5netcdf")  # to memory
    except Exception as error:
        raise ValueError(
            f"No result can be made of this model, or none that pymc_dp.save could write: two "
            f"draws fail with {type(error).__name__}: {error}. Nothing was released. See what its "
            "deterministics compute; give plain names, and coords that are numbers or text."
        ) from error


def _check_size(records: Records, draws: int) -> None:
    """Refuse a posterior of more than `MOST_NUMBERS` numbers, without computing any of them."""
    graphs: dict[str, Any] = records.outputs.graphs
    sizes = function(list(records.latents.values()), [x.size for x in graphs.values()], "python")
    each = dict(zip(graphs, map(int, sizes(*records.point.values())), strict=True))
    number = draws * sum(each.values())
    if number > MOST_NUMBERS:
        largest = max(each, key=each.__getitem__)
        raise ValueError(
            f"draws={draws} of {sum(each.values()):,} numbers, {each[largest]:,} of them in "
            f"`{largest}`, are {number:,} numbers, and a result holds at most {MOST_NUMBERS:,}: "
            "ask for fewer draws, or leave large deterministics out. Nothing was released."
        )


def _are_plain(groups: list[xr.Dataset]) -> bool:
    """Whether the names in groups, and their labels that are no numbers, are plain text."""
    names = [name for group in groups for name in (*group.variables, *group.dims)]
    coords = [x for group in groups for x in group.coords.values() if x.dtype.kind not in "biufmM"]
    every = [*names, *(label for x in coords for label in x.to_numpy().ravel())]
    return all(
        isinstance(x, str) and x.isprintable() and x.strip(".") and "/" not in x for x in every
    )


def make_result(
    setup: Setup, states: list[Any], outcome: Outcome, draws: int, rng: np.random.Generator
) -> xr.DataTree:
    """Build the tree that a fit returns, and warn of what is doubtful about it."""
    again = copy.deepcopy(rng)
    with undisturbed():
        try:
            groups = released_groups(setup.records, setup.method, states, draws, rng)
        except Exception as error:
            setup = _without_failing(setup, states[-1], draws, copy.deepcopy(again), error)
            groups = released_groups(setup.records, setup.method, states, draws, again)
        groups["posterior"].attrs = {
            "inference_library": "pymc_dp",
            "inference_library_version": version("pymc-dp"),
            "epsilon": outcome.epsilon,
            "delta": outcome.plan.delta,
        }
        doubts = setup.method.doubts(states[-1])
        about = {
            "withheld": setup.records.outputs.withheld,
            "doubts": [doubt._asdict() for doubt in doubts],
            "settings": setup.method.settings | {"noise_aware": "noise_sd" in groups},
            "defaults": setup.method.constants(),
        }
        idata = with_guarantee(groups, setup.records, outcome, about)
        for doubt in doubts:
            warnings.warn(doubt.text, PosteriorWarning, stacklevel=3)
    return idata


def _without_failing(
    setup: Setup, state: Any, draws: int, rng: np.random.Generator, error: Exception
) -> Setup:
    """Leave out the variables that fail at some draw, as a doubt; raise what that does not mend."""
    records, outputs, method = setup.records, setup.records.outputs, setup.method
    latents, _ = latent_draws(method, state, draws, rng)
    kept = {}
    for name, graph in outputs.graphs.items():
        alone = outputs._replace(graphs={name: graph})
        with suppress(Exception):
            transform_draws(records._replace(outputs=alone), latents)
            kept[name] = graph
    failing = [name for name in outputs.graphs if name not in kept]
    if not failing or not kept:
        raise error
    text = (
        f"The result lacks {', '.join(f'`{name}`' for name in failing)}: at some draws of the "
        f"posterior it cannot be computed ({type(error).__name__})."  # its text may hold data
    )
    lacking = Doubt(Kind.INCOMPLETE, tuple(failing), text)
    return setup._replace(
        records=records._replace(outputs=outputs._replace(graphs=kept)),
        method=method._replace(doubts=lambda state: (*method.doubts(state), lacking)),
    )


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
    wide, *narrow = (x.astype("float64").var(("chain", "draw")) for x in (posterior, *without))
    added = wide - narrow[0] if narrow else wide * np.nan  # where draws are too few to say
    return {"posterior": posterior, "noise_sd": added.where(added >= 0) ** 0.5}


def latent_draws(
    method: Method, state: Any, draws: int, rng: np.random.Generator
) -> tuple[Draws, Both | None]:
    """Draw the latents, with the noise's width where it is known, and behind them without it."""
    aware = method.noise_aware(state, draws, rng)
    wide, narrow = aware or (method.posterior(state, draws, rng), None)
    if not narrow:
        return wide, aware
    return {name: np.concatenate([x, narrow[name]]) for name, x in wide.items()}, aware


def _posterior(records: Records, values: dict[str, np.ndarray]) -> xr.Dataset:
    outputs = records.outputs
    dims = {name: named_dims(outputs.dims[name], name, x.ndim - 1) for name, x in values.items()}
    variables = {name: (("chain", "draw", *dims[name]), x[None]) for name, x in values.items()}
    draws = next(iter(values.values())).shape[0]
    coords = {dim: _writable(x) for dim, x in outputs.coords.items()}
    return xr.Dataset(variables, {"chain": [0], "draw": np.arange(draws), **coords})


def _writable(labels: np.ndarray) -> np.ndarray:
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
    for name, (dims, first) in method.trace(states[0]).items():
        values = np.reshape([trace[name][1] for trace in traces], (len(traces), *np.shape(first)))
        variables[name] = (("release", *dims), values)
    used = {dim: fit[dim] for dims, _ in variables.values() for dim in dims if dim in fit.coords}
    return xr.Dataset(variables, {"release": chosen, **used})
