"""The tree that a fit returns: what was released, and what was spent on it.

Every result carries a list of what was released: what is not on it is not saved.
"""

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.accounting.accountants import PLD, SMALLEST_PLD_DELTA, Selection, accountant_named
from pymc_dp.accounting.plan import Neighbours, Plan, Release, unit_label
from pymc_dp.model import Records

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
        epsilon = self.spent.epsilon()
        holds = self.secret and (self.plan.all_sums or math.isinf(epsilon))
        return epsilon if holds else math.nan


@dataclass(frozen=True)
class Composition:
    """What several fits cost together; prints as a sentence."""

    epsilon: float
    delta: float
    fits: int  # how many there are
    plan: Plan  # all their releases

    def __str__(self) -> str:
        return (
            f"{self.fits} fits together: ({self.epsilon:.4g}, {self.delta:g})-differential privacy "
            f"({self.plan.neighbours.value}, {self.plan.accountant.name}), if the settings of all "
            "were fixed before the first one ran. Otherwise it does not hold: use a ledger."
        )


def with_guarantee(
    groups: Mapping[str, xr.Dataset], records: Records, outcome: Outcome, about: Mapping[str, Any]
) -> xr.DataTree:
    """Join groups of released values with ``privacy``, and list all that is released."""
    privacy = _privacy(outcome)
    described: dict[str, Any] = {
        "declared_public": sorted(outcome.public),
        "trusted_constants": _trusted(records),
        **{"withheld": [], "doubts": [], "settings": {}, "defaults": {}},
        **about,
    }
    privacy.attrs |= {name: json.dumps(value) for name, value in described.items()}
    whole = {name: _of_text(group) for name, group in groups.items()} | {"privacy": privacy}
    names = {name: [*map(str, (*x.variables, *x.attrs))] for name, x in whole.items()}
    names["privacy"].append("released")
    privacy.attrs["released"] = json.dumps(names)
    return xr.DataTree.from_dict(whole)


def _of_text(group: xr.Dataset) -> xr.Dataset:
    """Copy a group with text for names: an object that is text and more carries what it has."""
    return group.rename({name: str.__str__(name) for name in (*group.variables, *group.dims)})


def _trusted(records: Records) -> list[str]:
    """List what is trusted, without counting the numbers in what goes by records."""
    # such a count would depend on whether the size of a record's variable equals another number
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
    best = "the best of a secret number of runs: " if outcome.selected else ""
    noise = "no noise" if math.isinf(outcome.epsilon) else "Gaussian noise"
    attrs = {
        "epsilon": outcome.epsilon,
        "delta": plan.delta,
        "method": outcome.method,
        "algorithm": outcome.algorithm,
        "mechanism": f"{best}{noise} on sums of clipped per-{unit_label(plan.unit)} vectors",
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
        "numerics": "exact" if outcome.is_exact else "idealized",
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


def _settings(of_releases: Iterable[float]) -> float | list[float]:
    """One number where all releases agree, else one number a kind of release."""
    values = [float(value) for value in of_releases]
    return values[0] if len(set(values)) == 1 else values


def _guarantee(outcome: Outcome) -> str:
    if not outcome.secret:
        return "none: test mode"
    if math.isnan(outcome.epsilon):
        return "none proved: epsilon_if_exact holds if every draw is exact, which is not known"
    return "none: no noise was added" if math.isinf(outcome.epsilon) else "(epsilon, delta)"


def privacy_of(idata: xr.DataTree) -> xr.Dataset:
    """Return the ``privacy`` group of a result; refuse anything else."""
    if not isinstance(idata, xr.DataTree):
        given = type(idata).__name__
        raise TypeError(f"A result of pymc_dp.fit is needed, before any model, not {given}.")
    group = idata["privacy"].to_dataset() if "privacy" in idata.children else xr.Dataset()
    if not {"guarantee", "epsilon", "delta", "released"} <= group.attrs.keys():
        raise ValueError("This tree has no `privacy` group of a fit: it was not made by pymc_dp.")
    return group


def released_part(idata: xr.DataTree) -> xr.DataTree:
    """Return the part of a tree that its fit released; all else is dropped."""
    groups = {}
    for name, names in listed(idata).items():
        if name in idata.children:
            group = idata[name].to_dataset()
            kept = group.drop_vars([x for x in group.variables if x not in names])
            attrs = {k: v for k, v in group.attrs.items() if k in names}
            groups[name] = kept.drop_attrs().drop_encoding().assign_attrs(attrs)
    return xr.DataTree.from_dict(groups)


def listed(idata: xr.DataTree) -> dict[str, set[str]]:
    """Return the names of variables and attributes that a fit released, by group."""
    listed = json.loads(privacy_of(idata).attrs["released"])
    return {name: set(names) for name, names in listed.items()}


def compose(results: Sequence[xr.DataTree], *, delta: float) -> Composition:
    """Compute what several fits on one data set cost, if all their settings were fixed in advance.

    Where one was chosen after looking at an earlier result, give the fits a `pymc_dp.Ledger`.

    Parameters
    ----------
    results : sequence of DataTree
        Results of `pymc_dp.fit`.
    delta : float
        Where to read epsilon; the fits' own deltas do not matter.

    Returns
    -------
    Composition
        Its ``epsilon`` is the number; its text says under which condition it holds.

    Raises
    ------
    ValueError
        A result is not private, was made in test mode, by exact draws or by `pymc_dp.tune`; the
        results differ in neighbours or unit; or no accountant covers them all.

    Notes
    -----
    **Privacy.** Every release of every plan counts, whether or not it was made.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model():
    ...     y = pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.repeat([0, 1], [300, 700]))
    ...     terms = {"epsilon": 0.5, "delta": 1e-5, "progressbar": False}
    ...     fits = [pymc_dp.fit(n, **terms) for n in (50, 100)]
    >>> 0.5 < pymc_dp.compose(fits, delta=1e-5).epsilon < 1
    True
    """
    if isinstance(results, xr.DataTree) or not results:
        raise ValueError("Give a list of results, such as compose([idata1, idata2], delta=1e-5).")
    plans = [_plan_of(idata, f"Result {i}") for i, idata in enumerate(results)]
    terms = [{"neighbours": plan.neighbours.value, "unit": plan.unit} for plan in plans]
    for i, term in itertools.product(range(len(plans)), ("neighbours", "unit")):
        if (value := terms[i][term]) != (other := terms[0][term]):
            raise ValueError(
                f"Result {i} has {term}={value!r} and result 0 has {other!r}: their guarantees are "
                "about different things and do not compose."
            )
    releases = tuple(release for plan in plans for release in plan.releases)
    whole = Plan(releases, plans[0].neighbours, delta, PLD, unit=plans[0].unit)
    return Composition(whole.epsilon(), delta, len(plans), whole)


def _plan_of(idata: xr.DataTree, name: str) -> Plan:
    """Rebuild the plan of a result that can be composed."""
    attrs = privacy_of(idata).attrs
    if "selected" in attrs:
        raise ValueError(
            f"{name} was tuned: its epsilon is that of the search. Give tune and the other fits a "
            "ledger, or add up their epsilons and deltas."
        )
    if attrs["guarantee"] != "(epsilon, delta)" or not math.isfinite(attrs["epsilon"]):
        raise ValueError(
            f"{name} cannot be composed, because its guarantee is {attrs['guarantee']!r} with "
            f"epsilon={attrs['epsilon']:g}: leave it out, and state that it exists."
        )
    return plan_from_json(attrs["dp_event"])


def plan_from_json(text: str) -> Plan:
    """Rebuild a plan from what `Plan.to_json` wrote."""
    fields = json.loads(text)
    return Plan(
        tuple(map(Release.from_dict, fields["releases"])),
        Neighbours(fields["neighbours"]),
        fields["delta"],
        accountant_named(fields["accountant"]),
        fields["num_records"],
        fields["unit"],
    )
