"""Everything that is settled before any budget is spent."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_dp.accounting.arguments import check_count
from pymc_dp.accounting.neighbours import Neighbours
from pymc_dp.accounting.plan import Plan
from pymc_dp.calibration.budget import Budget
from pymc_dp.contributions.absent_components import with_absent_components
from pymc_dp.driver.bad_priors import (
    refuse_bad_priors,
    refuse_bad_start,
    refuse_scores_that_are_nan,
    refuse_unfit,
)
from pymc_dp.errors import PosteriorWarning, PrivacyWarning
from pymc_dp.methods.method import Method, OnRealLine
from pymc_dp.methods.options import MethodSpec, Options
from pymc_dp.methods.registry import method_named
from pymc_dp.model import PrivateData, Records, constrained, separate_unread
from pymc_dp.model.tables import read_tables
from pymc_dp.model.unit_column import read_units
from pymc_dp.privacy.partitions import number_of_records
from pymc_dp.tables.formula import (
    check_formula,
    factors_left_out,
    formula_of,
    pymc_model,
    refuse_weights,
)
from pymc_dp.tables.given import read_numbers
from pymc_dp.tables.impossible import impossible_outcomes
from pymc_dp.tables.indices import refuse_bad_indices
from pymc_dp.tables.lags import refuse_lags
from pymc_dp.tables.predictors import (
    infinite_values,
    missing_values,
    more_columns_than_records,
    numbers_of_records,
    rare_levels,
)
from pymc_dp.tables.weights import (
    SurveyWeights,
    normalised_weights,
    read_weights,
    without_factors,
)

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
TERMS = frozenset(field.name for field in dataclasses.fields(Budget))


class Setup(NamedTuple):
    """A model split into records, the method built for it and the plan that it must obey."""

    name: str
    records: Records
    data: PrivateData
    method: Method
    plan: Plan


def model_in_use(model: pm.Model | None) -> pm.Model:
    """Return a model, that of a formula, or the one of the context."""
    model = pymc_model(model)
    if model is not None and not isinstance(model, pm.Model):
        raise TypeError(
            f"model= must be a pm.Model, not an object of type {type(model).__name__}: build the "
            "model inside `with pm.Model() as model:`, and give that, or give one of bambi."
        )
    in_use = pymc_model(pm.Model.get_context(error_if_none=False)) if model is None else model
    if in_use is None:
        raise TypeError("There is no model: give model=, or call this inside `with model:`.")
    return in_use


def set_up(model: pm.Model | None, method: str, n: int | None, **keywords: Any) -> Setup:
    """Check every input of a fit, and settle its plan by the releases that its method asks for."""
    setup, budget = set_up_method(model, method, n, **keywords)
    return setup._replace(plan=budget.settle(setup.method.releases))


@np.errstate(all="ignore")  # sums over records may overflow
def set_up_method(
    model: pm.Model | None,
    method: str,
    n: int | None,
    *,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    public_start: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> tuple[Setup, Budget]:
    """Check every input of a fit; the plan has its terms and no releases yet."""
    spec = method_named(method)
    terms = {name: x for name, x in keywords.items() if name in TERMS}
    own = {name: x for name, x in keywords.items() if name not in TERMS}
    _check_keywords(spec, own)
    budget = _budget(spec, terms)
    formula, public = formula_of(model), [*public]
    doubtful = check_formula(formula, budget.unit, public) if formula and budget.noisy else []
    model = model_in_use(model)
    options = _options(spec, budget, n, own)
    weights = getattr(options, "weights", None)
    refuse_weights(formula, weights is not None)
    public = factors_left_out(formula, public)
    model = without_factors(model, weights) if weights else model
    separated = separation(
        model, budget, public=tuple(public), data=data, start=public_start, weights=weights
    )
    records, checked = separated(constrained(model) if spec.constrained else model)
    built = spec.build(records, options)
    while not isinstance(built, Method):
        as_written = isinstance(built, OnRealLine)
        records, checked = separated(model if as_written else constrained(model))
        built = built.build(records)
    with warnings.catch_warnings():
        if not budget.noisy:  # what privacy alone would break is no reason to warn
            warnings.simplefilter("ignore", PrivacyWarning)
            warnings.simplefilter("ignore", PosteriorWarning)
        for text in doubtful:
            warnings.warn(text, PrivacyWarning, stacklevel=5)
        private = checked()
    return Setup(spec.name, records, private, built, budget.terms), budget


def separation(
    model: pm.Model,
    budget: Budget,
    *,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    start: Mapping[str, Any] | None = None,
    weights: SurveyWeights | None = None,
    numbers: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
) -> Callable[[pm.Model], tuple[Records, Callable[[], PrivateData]]]:
    """Read a model's data, units and weights; return what splits the model, on any scale.

    ``numbers`` are public ones, by what they are, beside those of the model, the weights and the
    budget. What splits the model warns of outcomes that cannot occur; all other checks of values
    wait until these are asked for.
    """
    refuse_unfit(model)
    data = read_tables(read_numbers(data))
    refuse_bad_indices(model, data, budget.unit)
    for text in [*infinite_values(model, data), *missing_values(model)]:
        warnings.warn(text, PosteriorWarning, stacklevel=6)
    units = None if budget.unit is None else read_units(model, budget.unit, data, public)
    refuse_lags(model, data, budget.unit)
    as_given, given = model, data
    beside = {weights.name: read_weights(model, weights, data, public)} if weights else {}
    if data is not None and (units is not None or beside):
        data = {key: value for key, value in data.items() if key not in {budget.unit, *beside}}
    known = budget.terms.neighbours is not Neighbours.ADD_REMOVE or not budget.noisy
    settings: dict[str, Any] = {
        "data": data,
        "public": public,
        "start": start,
        "units": units,
        "beside": beside,
    }

    def separated(model: pm.Model) -> tuple[Records, Callable[[], PrivateData]]:
        refuse_bad_start(model, start or {})
        records, checked = separate_unread(model, number_is_public=known, **settings)
        refuse_bad_priors(model, records)
        refuse_scores_that_are_nan(model, records)
        for text in impossible_outcomes(model, records, given):
            warnings.warn(text, PosteriorWarning, stacklevel=6)

        def checked_and_warned() -> PrivateData:
            private = checked()
            weighed = {name: column.values for name, column in beside.items()}
            texts = rare_levels(as_given, given, budget.unit)
            texts += more_columns_than_records(as_given, given)
            for name, values in weighed.items():
                texts += normalised_weights(name, values)
            if budget.noisy:
                of_rows = set() if known and units is None else {number_of_records(private)}
                texts += numbers_of_records(
                    {**numbers, **_public_numbers(records, budget, weights)},
                    as_given,
                    given,
                    public=public,
                    weights=weighed,
                    counts=of_rows if known or units is None else of_rows | {units.number},
                )
            for text in texts:
                warnings.warn(text, PrivacyWarning, stacklevel=6)
            return private

        return with_absent_components(records), checked_and_warned

    return separated


def _public_numbers(
    records: Records, budget: Budget, weights: SurveyWeights | None
) -> dict[str, tuple[float, ...]]:
    """Return numbers that a caller says are public, by what they are."""
    named = {f"A number in the {x.kind} `{x.name}`": found for x, found in records.trusted.items()}
    if weights is not None:
        named[f"upper= of weights=`{weights.name}`"] = (weights.upper,)
    if budget.num_records is not None:
        named["num_records="] = (budget.num_records,)
    return named


def _check_keywords(spec: MethodSpec, keywords: Iterable[str]) -> None:
    """Refuse what the method does not know, and what would carry data."""
    known = sorted({*spec.options.keywords(), *TERMS})
    for name in keywords:
        if name in REFUSED:
            raise ValueError(f"{name}= is refused in a private fit: {REFUSED[name]}.")
        if name == "weights" and name not in known:
            raise TypeError(
                f"{spec.name} takes no weights=: method='dp_advi' fits any model by them."
            )
        if name not in known:
            from pymc_dp.driver.fit import fit  # it imports this module

            of_all = sorted(signature(fit).parameters.keys() - {*known, "options"})
            raise TypeError(
                f"{name!r} is an unknown keyword; {spec.name} takes {known}, and pymc_dp.fit with "
                f"any method {of_all}."
            )


def _budget(spec: MethodSpec, terms: Mapping[str, Any]) -> Budget:
    """Read the budget; that of a method without privacy is infinite, and must not be given."""
    if spec.private:
        return Budget(**terms)
    for term in ("epsilon", "delta", "noise_multiplier"):
        if terms.get(term) is not None:
            raise ValueError(
                f"method={spec.name!r} is not private and takes no {term}=: use "
                f"method='dp_{spec.name}', or leave {term}= out."
            )
    return Budget(**{**terms, "epsilon": math.inf})


def _options(
    spec: MethodSpec, budget: Budget, n: int | None, keywords: Mapping[str, Any]
) -> Options:
    if n is not None:
        check_count("n", n)
    return spec.options(
        sampling=budget.sampler,
        num_records=budget.num_records,
        noise=budget.noise_of_one,
        n=n,
        of_units=budget.unit is not None,
        **keywords,
    )
