"""What several results cost together, if nothing was learned between the fits."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import xarray as xr

from pymc_dp.accounting.accountants import ACCOUNTANTS, Accountant, accountant_named
from pymc_dp.accounting.plan import Neighbours, Plan, Release
from pymc_dp.results.allow_list import privacy_of


@dataclass(frozen=True)
class Composition:
    """What several fits cost together.

    Attributes
    ----------
    epsilon, delta : float
    fits : int
    plan : Plan
        All their releases.
    """

    epsilon: float
    delta: float
    fits: int
    plan: Plan

    def __str__(self) -> str:
        return (
            f"{self.fits} fits together: ({self.epsilon:.4g}, {self.delta:g})-differential privacy "
            f"({self.plan.neighbours.value}, {self.plan.accountant.name}), if the settings of all "
            "of them were fixed before the first one ran. If one was chosen after looking at the "
            "result of another, this number does not hold: use a ledger."
        )


def compose(results: Sequence[xr.DataTree], *, delta: float) -> Composition:
    """Compute what several fits on one data set cost together.

    Only for fits whose settings were all fixed in advance. If a setting was chosen after looking
    at an earlier result, the number does not hold: give the fits a `pymc_dp.Ledger` instead.

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
        results differ in neighbours, unit or number of records; or no accountant covers them all,
        such as whole batches with little noise together with batches of some records.

    Notes
    -----
    **Privacy.** Reads the plans in the results, which are public. Every release of every plan
    counts, whether or not it was made.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     y = pm.Bernoulli("y", p, observed=np.repeat([0, 1], [300, 700]))
    ...     terms = {"epsilon": 0.5, "delta": 1e-5, "progressbar": False}
    ...     fits = [pymc_dp.fit(n, **terms) for n in (50, 100)]
    >>> 0.5 < pymc_dp.compose(fits, delta=1e-5).epsilon < 1
    True
    """
    if isinstance(results, xr.DataTree) or not results:
        raise ValueError("Give a list of results, such as compose([idata1, idata2], delta=1e-5).")
    plans = [_plan_of(idata, f"Result {i}") for i, idata in enumerate(results)]
    first = plans[0]
    for i, plan in enumerate(plans):
        _refuse_difference(i, "neighbours", plan.neighbours.value, first.neighbours.value)
        _refuse_difference(i, "unit", plan.unit, first.unit)
    releases = tuple(release for plan in plans for release in plan.releases)
    accountant = _common_accountant(releases, first.neighbours)
    whole = Plan(
        releases, first.neighbours, delta, accountant, _number_of_records(plans), first.unit
    )
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


def _refuse_difference(i: int, term: str, value: str | None, first: str | None) -> None:
    if value != first:
        raise ValueError(
            f"Result {i} has {term}={value!r} and result 0 has {first!r}: their guarantees are "
            "about different things and do not compose."
        )


def _common_accountant(releases: tuple[Release, ...], neighbours: Neighbours) -> Accountant:
    for accountant in ACCOUNTANTS.values():
        if accountant.proved.issuperset((type(r.sampler), neighbours) for r in releases):
            return accountant
    raise ValueError(
        f"No accountant covers sampling {sorted({r.sampler.name for r in releases})} together "
        f"under neighbours={neighbours.value!r}: add up the epsilons and deltas, or use a ledger "
        "with filter='sum'."
    )


def _number_of_records(plans: Sequence[Plan]) -> int | None:
    """Return the exact number of records, where batches of fixed size depend on it."""
    exact = {plan.num_records for plan in plans if plan.needs_exact_number}
    if len(exact) > 1:
        raise ValueError(
            f"The results have {sorted(map(str, exact))} records: compose is for fits on one data "
            "set."
        )
    return exact.pop() if exact else None


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
