"""The result: released groups, what was spent on them, and the list of what leaves."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.accounting.accountants import SMALLEST_PLD_DELTA
from pymc_dp.accounting.plan import Plan, Release, unit_label
from pymc_dp.accounting.selection import Selection
from pymc_dp.model import Records
from pymc_dp.results.allow_list import released_names

if TYPE_CHECKING:
    from pymc_dp.methods.method import Method

SPEND_POINTS = 6  # how many points of a fit's spend a result keeps


class Outcome(NamedTuple):
    """How a result was made."""

    method: str
    plan: Plan
    made: tuple[Release, ...]
    rng: str
    secret: bool
    is_exact: bool  # whether the proof holds for the arithmetic of the machine
    public: tuple[str, ...] = ()
    selected: Mapping[str, str] = MappingProxyType({})
    selection: Selection | None = None
    algorithm: str = ""  # what the method computed, with its sources

    @property
    def spent(self) -> Plan | Selection:
        """What the budget was spent on: the plan, or the search that chose it."""
        return self.selection or self.plan

    @property
    def epsilon(self) -> float:
        """That of what was spent, whatever was made of it; nan if it is not known to hold."""
        found = self.spent.epsilon()
        holds = self.secret and (self.plan.all_sums or math.isinf(found))
        return found if holds else math.nan


def build_result(
    records: Records,
    method: Method,
    states: Sequence[Any],
    outcome: Outcome,
    groups: Mapping[str, xr.Dataset],
) -> xr.DataTree:
    """Build the tree that a fit returns around ``groups``, which `results.posterior` draws.

    **Privacy.** Everything here is a function of released states, of public draws and of the
    plan: nothing that a method or a posterior is made from holds data.
    """
    groups["posterior"].attrs = {
        "inference_library": "pymc_dp",
        "inference_library_version": version("pymc-dp"),
        "epsilon": outcome.epsilon,
        "delta": outcome.plan.delta,
    }
    about = {
        "withheld": records.outputs.withheld,
        "doubts": [doubt._asdict() for doubt in method.doubts(states[-1])],
        "settings": method.settings | {"noise_aware": "noise_sd" in groups},
        "defaults": method.constants(),
    }
    return with_guarantee(groups, records, outcome, about)


def with_guarantee(
    groups: Mapping[str, xr.Dataset], records: Records, outcome: Outcome, about: Mapping[str, Any]
) -> xr.DataTree:
    """Join groups of released values with ``privacy``, and list all that is released."""
    privacy = _privacy(outcome)
    known = {"declared_public": sorted(outcome.public), "trusted_constants": _trusted(records)}
    nothing: dict[str, Any] = {"withheld": [], "doubts": [], "settings": {}, "defaults": {}}
    described = known | nothing | dict(about)
    privacy.attrs |= {name: json.dumps(value) for name, value in described.items()}
    whole = {name: _of_text(group) for name, group in groups.items()} | {"privacy": privacy}
    privacy.attrs["released"] = json.dumps(released_names(whole))
    return xr.DataTree.from_dict(whole)


def _of_text(group: xr.Dataset) -> xr.Dataset:
    """Copy a group with text for names: an object that is text and more carries what it has."""
    names = {name: str.__str__(name) for name in (*group.variables, *group.dims)}
    return group.rename(names)


def _trusted(records: Records) -> list[str]:
    """List what is trusted, without counting the numbers in what goes by records."""
    # the size of a record's variable is a number of its graph: where it equals another number, a
    # count is smaller by one
    names, many = records.term_names, len(records.term_names) - len(records.local_latents)
    kinds = dict.fromkeys(names[:many], "likelihood") | dict.fromkeys(names[many:], "prior")
    others = [str(x) for x in records.trusted if x.name not in kinds or x.kind == "operation"]
    return [*others, *(f"{kind} of {name}" for name, kind in kinds.items())]


def _privacy(outcome: Outcome) -> xr.Dataset:
    plan, spent = outcome.plan, outcome.spent
    valid = not math.isnan(outcome.epsilon)
    grid = np.geomspace(SMALLEST_PLD_DELTA, 1e-1, 19)  # the plan's own delta is added
    deltas = np.unique(np.append(grid[~np.isclose(grid, plan.delta)], plan.delta))
    profile = spent.epsilon_profile(deltas) if valid else np.full(len(deltas), math.nan)
    points = np.unique(np.linspace(0, plan.total, SPEND_POINTS + 1).astype(int)[1:])
    along = [spent.prefix(int(k)).epsilon() if valid else math.nan for k in points]
    return xr.Dataset(
        {"epsilon": ("delta", profile), "epsilon_spent": ("releases", along)},
        {"delta": deltas, "releases": points},
        _privacy_attrs(outcome),
    )


def _privacy_attrs(outcome: Outcome) -> dict[str, Any]:
    plan = outcome.plan
    first, package = plan.releases[0], plan.accountant.package
    attrs = {
        "epsilon": outcome.epsilon,
        "delta": plan.delta,
        "method": outcome.method,
        "algorithm": outcome.algorithm,
        "mechanism": _mechanism(outcome),
        "guarantee": _guarantee(outcome),
        "neighbours": plan.neighbours.value,
        "privacy_unit": unit_label(plan.unit),
        "sampling": first.sampler.name,
        "sample_rate": _settings(release.sampler.rate for release in plan.releases),
        "noise_multiplier": _settings(release.noise_multiplier for release in plan.releases),
        "clip_norm": _settings(release.clip_norm for release in plan.releases),
        "releases": plan.total,
        "releases_made": len(outcome.made),
        "accountant": plan.accountant.name,
        "accountant_version": f"{package} {version(package)}",
        "dp_event": outcome.spent.to_json(),
        "rng": outcome.rng,
        "numerics": numerics(outcome.is_exact),
        "pymc_dp_version": version("pymc-dp"),
    }
    if not plan.all_sums:
        attrs["epsilon_if_exact"] = plan.epsilon() if outcome.secret else math.nan
        attrs |= first.mechanism.about(first)
    if plan.num_records is not None:
        attrs["num_records"] = plan.num_records
    if plan.unit is not None:
        attrs["unit"] = str.__str__(plan.unit)
    return attrs | dict(outcome.selected)


def numerics(is_exact: bool) -> str:
    """Name the arithmetic that a proof speaks of, as results and plans do."""
    return "exact" if is_exact else "idealized"


def _mechanism(outcome: Outcome) -> str:
    noise = "no noise" if math.isinf(outcome.epsilon) else "Gaussian noise"
    best = "the best of a secret number of runs: " if outcome.selected else ""
    return f"{best}{noise} on sums of clipped per-{unit_label(outcome.plan.unit)} vectors"


def _guarantee(outcome: Outcome) -> str:
    if not outcome.secret:
        return "none: test mode"
    if math.isnan(outcome.epsilon):
        return "none proved: epsilon_if_exact holds if every draw is exact, which is not known"
    return "none: no noise was added" if math.isinf(outcome.epsilon) else "(epsilon, delta)"


def _settings(of_releases: Iterable[float]) -> float | list[float]:
    """One number where all releases agree, else one number a kind of release."""
    values = [float(value) for value in of_releases]
    return values[0] if len(set(values)) == 1 else values
