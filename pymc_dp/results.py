"""The result: a tree built from an allow-list of what may leave."""

import copy
import json
import math
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from pytensor.graph.replace import vectorize_graph

from pymc_dp.allow_list import contents
from pymc_dp.compile import function
from pymc_dp.methods.method import Method
from pymc_dp.plans import SMALLEST_PLD_DELTA, Plan
from pymc_dp.records import Records
from pymc_dp.release import Release
from pymc_dp.selection import Selection
from pymc_dp.units import spoken

# how many points of a fit's path, and of its spend, a result keeps
PATH_POINTS = 50
SPEND_POINTS = 6


class Outcome(NamedTuple):
    """What a result says about how it was made."""

    method: str
    plan: Plan | Selection
    made: tuple[Release, ...]
    rng: str
    secret: bool
    public: tuple[str, ...] = ()
    selected: Mapping[str, str] = {}

    @property
    def epsilon(self) -> float:
        """The plan's, whatever was made of it; nan if it is not known to hold."""
        found = self.plan.epsilon()
        holds = self.secret and not (self.plan.assumes_exact_draws and math.isfinite(found))
        return found if holds else math.nan


def build_result(
    records: Records,
    method: Method,
    states: list[Any],
    outcome: Outcome,
    draws: int,
    rng: np.random.Generator,
) -> xr.DataTree:
    """Build the tree that a fit returns.

    Notes
    -----
    **Privacy.** Everything here is a function of released states, of public draws and of the
    plan. Variables and coords come from `Records.outputs`, which holds releasable ones alone.
    """
    fit = method.describe(states[-1])
    drawn = _posteriors(records, method, states[-1], draws, rng)
    settings = method.settings | {"noise_aware": "noise_sd" in drawn}
    groups = {
        **drawn,
        "fit": fit,
        "fit_stats": _fit_stats(method, states, fit),
        "privacy": _privacy(records, settings, outcome),
    }
    epsilon, delta = outcome.epsilon, outcome.plan.delta
    groups["posterior"].attrs = {
        "inference_library": "pymc_dp",
        "inference_library_version": version("pymc-dp"),
        "epsilon": epsilon,
        "delta": delta,
    }
    groups["privacy"].attrs["released"] = json.dumps(contents(groups))
    return xr.DataTree.from_dict(groups)


def _posteriors(
    records: Records, method: Method, state: Any, draws: int, rng: np.random.Generator
) -> dict[str, xr.Dataset]:
    """Draw the posterior, and say how much of its width is privacy noise.

    The draws with and without noise share their random numbers, so that what they differ by is
    the noise.
    """
    same = copy.deepcopy(rng)
    aware = method.noise_aware and method.noise_aware(state, draws, same)
    without = _posterior(records, method.posterior(state, draws, rng))
    if not aware:
        return {"posterior": without}
    posterior = _posterior(records, aware)
    wide, narrow = (x.astype("float64").var(("chain", "draw")) for x in (posterior, without))
    return {"posterior": posterior, "noise_sd": (wide - narrow).clip(min=0) ** 0.5}


def _posterior(records: Records, latents: dict[str, np.ndarray]) -> xr.Dataset:
    values = transform_draws(records, latents)
    outputs = records.outputs
    variables = {}
    for name, value in values.items():
        dims = outputs.dims[name] or tuple(f"{name}_dim_{k}" for k in range(value.ndim - 1))
        variables[name] = (("chain", "draw", *dims), value[None])
    draws = next(iter(values.values())).shape[0]
    coords = {"chain": [0], "draw": np.arange(draws), **outputs.coords}
    return xr.Dataset(variables, coords)


def transform_draws(records: Records, latents: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Map draws of the value variables, shape (draws, ...), to what the model calls them."""
    batched = {
        variable: variable.type.clone(shape=(None, *variable.type.shape))()
        for variable in records.latents.values()
    }
    graphs = vectorize_graph(list(records.outputs.graphs.values()), batched)
    fn = function(list(batched.values()), graphs, "python")
    draws = len(next(iter(latents.values())))
    values = fn(*[np.asarray(latents[name]) for name in records.latents])
    return {
        name: np.broadcast_to(value, (draws, *value.shape[1:]))
        for name, value in zip(records.outputs.graphs, values, strict=True)
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


def _privacy(records: Records, settings: dict[str, Any], outcome: Outcome) -> xr.Dataset:
    plan = outcome.plan
    valid = not math.isnan(outcome.epsilon)
    deltas = delta_grid(plan)
    profile = plan.epsilon_profile(deltas) if valid else np.full(len(deltas), math.nan)
    points = np.unique(np.linspace(0, plan.total, SPEND_POINTS + 1).astype(int)[1:])
    spent = [plan.prefix(int(k)).epsilon() if valid else math.nan for k in points]
    return xr.Dataset(
        {"epsilon": ("delta", profile), "epsilon_spent": ("releases", spent)},
        {"delta": deltas, "releases": points},
        _privacy_attrs(records, settings, outcome),
    )


def delta_grid(plan: Plan | Selection) -> np.ndarray:
    """Deltas at which a result says its epsilon; the plan's own is one of them."""
    grid = np.geomspace(SMALLEST_PLD_DELTA, 1e-1, 19)
    return np.unique(np.append(grid[~np.isclose(grid, plan.delta)], plan.delta))


def _privacy_attrs(records: Records, settings: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    plan = outcome.plan
    first = plan.releases[0]
    attrs = {
        "epsilon": outcome.epsilon,
        "delta": plan.delta,
        "method": outcome.method,
        "mechanism": _mechanism(outcome),
        "guarantee": _guarantee(outcome),
        "neighbours": plan.neighbours,
        "privacy_unit": spoken(plan.unit),
        "sampling": first.sampling,
        "sample_rate": _settings(plan, "sample_rate"),
        "noise_multiplier": _settings(plan, "noise_multiplier"),
        "clip_norm": _settings(plan, "clip_norm"),
        "releases": plan.total,
        "releases_made": len(outcome.made),
        "accountant": plan.accountant,
        "accountant_version": _accountant_version(plan.accountant),
        "dp_event": plan.to_json(),
        "rng": outcome.rng,
        "pymc_dp_version": version("pymc-dp"),
        "declared_public": json.dumps(sorted(outcome.public)),
        "trusted_constants": json.dumps(records.trusted),
        "withheld": json.dumps(records.outputs.withheld),
        "settings": json.dumps(settings),
    }
    if plan.assumes_exact_draws:
        attrs["epsilon_if_exact"] = plan.epsilon() if outcome.secret else math.nan
        attrs["temperature"] = first.temperature
    if plan.num_records is not None:
        attrs["num_records"] = plan.num_records
    if plan.unit is not None:
        attrs["unit"] = plan.unit
    return attrs | dict(outcome.selected)


def _mechanism(outcome: Outcome) -> str:
    if outcome.plan.assumes_exact_draws:
        return "draws by a Markov chain from a posterior of clipped, tempered log likelihoods"
    noise = "no noise" if math.isinf(outcome.epsilon) else "Gaussian noise"
    best = "the best of a secret number of runs: " if outcome.selected else ""
    return f"{best}{noise} on sums of clipped per-{spoken(outcome.plan.unit)} vectors"


def _guarantee(outcome: Outcome) -> str:
    if not outcome.secret:
        return "none: test mode"
    if math.isnan(outcome.epsilon):
        return "none proved: epsilon_if_exact holds if every draw is exact, which is not known"
    return "none: no noise was added" if math.isinf(outcome.epsilon) else "(epsilon, delta)"


def _settings(plan: Plan | Selection, field: str) -> Any:
    """One number where all releases agree, else one number a kind of release."""
    values = [float(getattr(release, field)) for release in plan.releases]
    return values[0] if len(set(values)) == 1 else values


def _accountant_version(accountant: str) -> str:
    package = "autodp" if accountant == "rdp" else "dp-accounting"
    return f"{package} {version(package)}"
