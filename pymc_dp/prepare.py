"""Everything that is settled before any budget is spent."""

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_dp.budget import Budget, refuse_text
from pymc_dp.compile import choose_backend
from pymc_dp.contributions import Contribution
from pymc_dp.contributions.padding import padded
from pymc_dp.methods import advi, posterior_sampling, sep, vips
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.plans import Plan
from pymc_dp.query import Noisy
from pymc_dp.records import Column, Records, constrained, separate
from pymc_dp.records.unit_column import read_units
from pymc_dp.release import check_count
from pymc_dp.units import Units

METHODS: dict[str, Callable[..., Method]] = {
    **advi.METHODS,
    **vips.METHODS,
    **sep.METHODS,
    **posterior_sampling.METHODS,
}
# methods that take every latent on its own scale instead of the whole real line
ON_OWN_SCALE = {*vips.METHODS, *sep.METHODS}

# keywords of pm.fit that would carry data into a fit, or out of it
REFUSED = {
    "start": "a start can be computed from data: give public_start= if it is public",
    "start_sigma": "a start can be computed from data",
    "inf_kwargs": "they can carry a start that was computed from data",
    "score": "the loss is a sum over private records",
    "more_updates": "they would be computed from private gradients",
    "more_obj_params": "they would be fitted to private gradients",
    "total_grad_norm_constraint": "clipping is per record here: give clip_norm=",
}
# options that read a number
NUMBERS = {"clip_norm", "sample_rate", "step", "feature_bound", "tau0", "kappa"}
# what a method's builder gets from the driver; the rest of its keywords are the user's
FROM_DRIVER = {"records", "family", "sampling", "num_records", "noise", "n"}


# rows that an undeclared data set is taken to have where only speed depends on it
NOMINAL_RECORDS = 10_000


class Prepared(NamedTuple):
    """A model split into records, the method built for it and the plan that it must obey."""

    name: str
    records: Records
    columns: dict[str, Column]
    method: Method
    plan: Plan
    units: Units | None


def model_of(model: pm.Model | None) -> pm.Model:
    """Return a model, or the one of the context."""
    if model is not None and not isinstance(model, pm.Model):
        raise TypeError(
            f"model= must be a pm.Model, not an object of type {type(model).__name__}: build the "
            "model inside `with pm.Model() as model:`, and give that."
        )
    found = pm.Model.get_context(error_if_none=False) if model is None else model
    if found is None:
        raise TypeError("There is no model: give model=, or call this inside `with model:`.")
    return found


def prepare(
    model: pm.Model | None,
    method: str,
    n: int | None,
    *,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    public_start: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Prepared:
    """Check every input of a fit and settle its plan.

    ``settings`` are those of the budget and of the method, as `pymc_dp.fit` takes them.
    """
    model = model_of(model)
    of_budget = {field.name for field in dataclasses.fields(Budget)}
    options = {key: value for key, value in settings.items() if key not in of_budget}
    name = _known(method)
    _refuse_options(name, options)
    terms = {key: value for key, value in settings.items() if key in of_budget}
    budget = Budget(**(_without_privacy(name, terms) if name in sep.NOT_PRIVATE else terms))
    if n is not None:
        check_count("n", n)
    seen = constrained(model) if name in ON_OWN_SCALE else model
    units = None if budget.unit is None else read_units(model, budget.unit, data, public)
    if units is not None and data is not None:
        data = {key: value for key, value in data.items() if key != units.name}
    records, columns = separate(seen, data=data, public=public, start=public_start, units=units)
    built = METHODS[name](
        records,
        sampling=budget.sampling,
        num_records=budget.num_records,
        noise=budget.relative_noise,
        n=n,
        **options,
    )
    return Prepared(name, records, columns, built, budget.settle(built.releases), units)


def _known(method: str) -> str:
    name = method.lower() if isinstance(method, str) else method
    if name not in METHODS:
        raise ValueError(f"method={method!r} is unknown: use one of {sorted(METHODS)}.")
    return name


def _without_privacy(name: str, terms: dict[str, Any]) -> dict[str, Any]:
    """Replace a budget that must not be given by an infinite one."""
    for term in ("epsilon", "delta", "noise_multiplier"):
        if terms.get(term) is not None:
            raise ValueError(
                f"method={name!r} is not private and takes no {term}=: use method='dp_{name}', or "
                f"leave {term}= out."
            )
    return terms | {"epsilon": math.inf}


def _refuse_options(name: str, options: Mapping[str, Any]) -> None:
    known = sorted(set(inspect.signature(METHODS[name]).parameters) - FROM_DRIVER)
    for option, value in options.items():
        if option in REFUSED:
            raise ValueError(f"{option}= is refused in a private fit: {REFUSED[option]}.")
        if option not in known:
            raise TypeError(f"{option!r} is an unknown keyword; {name} takes {known}.")
        if option in NUMBERS:
            refuse_text(option, value)


def compile_prepared(prepared: Prepared, backend: str | None) -> Compiled:
    """Compile a method for the backend that suits the expected work."""
    _, records, columns, method, plan, _ = prepared
    drawn = sum(release.count * release.sample_rate for release in plan.releases)
    rows = drawn / plan.total * (plan.num_records or NOMINAL_RECORDS)
    backend = choose_backend(backend, plan.total, rows, records.size + len(columns))
    compiled = method.compile(backend)
    if backend == "jax":
        axes = {name: column.axis for name, column in columns.items()}
        contributions = {
            name: padded(c, axes) if isinstance(c, Contribution) else c  # a draw reads all rows
            for name, c in compiled.contributions.items()
        }
        compiled = compiled._replace(contributions=contributions)
    for state in method.trials(np.random.default_rng(0)):
        _rehearse(prepared, compiled, state)
    return compiled


def _rehearse(prepared: Prepared, compiled: Compiled, state: Any) -> None:
    """Try the compiled graphs on made-up rows: what cannot run must not cost a release."""
    query = prepared.method.query(state, rng=np.random.default_rng(0))
    contribution = compiled.contributions[query.name]
    batch = {name: column.dummy(2) for name, column in prepared.columns.items()}
    try:
        with np.errstate(all="ignore"):
            value = contribution.rehearse(batch, query.context)
            if prepared.units is not None and isinstance(contribution, Contribution):
                at = contribution.prepare(batch, query.context)
                sums = contribution.unit_sums(at, query.context, np.arange(2), np.ones(2, bool))
                contribution.unit_vectors(sums)
            # made-up rows may lie outside the likelihood's support; noise there always is
            compiled.update(state, query, Noisy(np.nan_to_num(value, posinf=0.0), 1.0, 1.0))
    except Exception as error:
        raise NotImplementedError(
            f"The model's graph does not run on this backend ({type(error).__name__}: {error}). "
            "Nothing was released; try backend='python'."
        ) from error
