"""Models that bambi writes from a formula: what they take from all records, and copies of them.

Bambi hands PyMC bare arrays. What these were computed from, its own objects say: the model, its
terms, and the functions that terms call. Copies have factors named, no weights, other limits of
censoring, or the rows of another data frame.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from copy import copy
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from pandas.api.types import is_numeric_dtype
from pymc.distributions.censored import CensoredRV
from pymc.distributions.custom import CustomSymbolicDistRV
from pymc.model.fgraph import ModelObservedRV, ModelVar, model_named
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.errors import NotSeparableError, PrivacyWarning
from pymc_dp.model.graphs import AnyVariable, Node, Tensor, shared, stored_value
from pymc_dp.model.harden import changed
from pymc_dp.tables.given import refuse_given

FACTOR_DIM = "__factor_dim"  # ends the names of bambi's dimensions of levels
RECORD_DIM = "__obs__"  # names bambi's dimension of records
SIDES = ("lower", "upper")
# {model: bambi's, whose copy it is}, of copies that are handed to the user
_FORMULAS: WeakKeyDictionary[pm.Model, Any] = WeakKeyDictionary()


# {function that reads all records: (what to write, arguments that make it public, if any)}
OF_ALL: dict[str, tuple[str, tuple[str, ...]]] = {
    "formulae.transforms.Polynomial": ("say raw=True", ("raw",)),
    "formulae.transforms.binary": ("name the level that counts in success=", ("success",)),
    "formulae.transforms.BSpline": (
        "give public numbers in knots=, lower_bound= and upper_bound=",
        ("knots", "lower_bound", "upper_bound"),
    ),
    "bambi.transformations.HSGP": (
        "its basis is centred by them even with L=: write pm.gp.HSGP in PyMC, with a public L= and "
        "prior_linearized of a public grid",
        (),
    ),
}
OF_OTHERS = (
    "compute the column before the formula, from one record each and public numbers, such as "
    "(age - 50) / 20"
)
# what makes a factor of a column, of which the levels are checked
FACTORS = {f"formulae.transforms.{name}" for name in "CST"}
# what takes one record at a time, beside NumPy's functions of numbers
ELEMENTWISE = {f"numpy.{name}" for name in ("clip", "where", "round", "around")} | FACTORS
ELEMENTWISE |= {f"formulae.transforms.{name}" for name in ("I", "offset", "proportion")}
OUTCOMES = ("c", "censored", "constrained", "counts", "truncated", "weighted")
ELEMENTWISE |= {f"bambi.transformations.{name}" for name in OUTCOMES}


def is_bambi(model: object) -> bool:
    """Whether an object is a model of bambi, which need not be installed."""
    return type(model).__module__.partition(".")[0] == "bambi" and hasattr(model, "backend")


def pymc_model(model: Any) -> Any:
    """Return the PyMC model of a bambi model, with its factors named; all else as it is."""
    if is_bambi(model):
        if not model.built:
            model.build()
        _refuse_disorder(model)
        model = without_weights(model)
    if not isinstance(model, pm.Model):
        return model
    refuse_given(model)
    return with_named_factors(model)


def _refuse_disorder(model: Any) -> None:
    """Refuse thresholds that nothing keeps in order, as bambi makes them with auto_scale=False."""
    built = model.backend.model
    thresholds = [x for x in built.free_RVs if x.name.rpartition("_")[2] == "threshold"]
    loose = [x for x in thresholds if built.rvs_to_transforms[x] is None]
    if model.family.name == "cumulative" and loose:
        raise ValueError(
            "Nothing keeps the thresholds of family='cumulative' in order. Give a prior that does, "
            "with a public mu for each: priors={'threshold': bmb.Prior('Normal', mu=[-2, 0, 2], "
            "sigma=2, transform=pm.distributions.transforms.ordered)}."
        )


def formula_of(model: Any) -> Any:
    """Return the model of bambi that a model is, or comes from; None if no formula made it."""
    model = pm.Model.get_context(error_if_none=False) if model is None else model
    if is_bambi(model) or not isinstance(model, pm.Model):
        return model if is_bambi(model) else None
    if model not in _FORMULAS and RECORD_DIM in model.coords:
        raise ValueError(
            f"The model has the dimension `{RECORD_DIM}` of bambi, and what it takes from the "
            "records cannot be read from it: give bambi's own model, not its backend.model."
        )
    return _FORMULAS.get(model)


def refuse_weights(formula: Any, is_weighted: bool) -> None:
    """Refuse the weights of a formula of which ``weights=`` says no largest one."""
    if formula and formula.response_term.is_weighted and not is_weighted:
        raise NotSeparableError(
            f"`{formula.response_term.name}` has weights of records, and nothing says how large "
            f"one can be: give weights=pymc_dp.SurveyWeights({_weights(formula)!r}, upper=...), "
            "and method='dp_advi'; or leave weighted() out."
        )


def factors_left_out(formula: Any, public: Iterable[str]) -> list[str]:
    """Leave factors of a formula, of which the levels are public, out of what is declared so."""
    columns = formula.data.dtypes if formula else {}
    return [x for x in public if x not in columns or is_numeric_dtype(columns[x])]


def check_formula(formula: Any, unit: str | None, public: Collection[str]) -> list[str]:
    """Refuse what a formula takes from all records; say which levels may be taken from them."""
    _refuse_defaults(formula)
    doubtful = []
    for part, groups in (*_predictors(formula), *_parts(formula.response_term.term)):
        if hasattr(part, "call"):
            _refuse_of_all(part.name, part.call, part.env, formula)
        # of an outcome such as y['yes'] no levels are released
        names_one = part.is_response and getattr(part, "reference", None) is not None
        is_factor = groups or (part.kind == "categoric" and not names_one)
        if is_factor and not (groups and part.name == unit):
            name = _listed_factor(part, formula)
            doubtful += [name] if name and name not in public else []
    return [
        f"The ordered categories of `{name}` are those that occur, in pandas' own order. If they "
        "come from the records, a level that one record has would show it: list all of a public "
        f"list in categories=. If they do come from a public list, say so by public=[{name!r}]."
        for name in dict.fromkeys(doubtful)
    ]


def _refuse_defaults(formula: Any) -> None:
    """Refuse priors and predictors that bambi has made of all records."""
    conditional = formula.conditional_parameters.values()
    built = formula.backend.components.values() if formula.built else ()
    # what was made by a default stays so where the keyword is changed afterwards
    scales = formula.auto_scale or hasattr(formula, "scaler")
    centres = formula.center_predictors or any(
        getattr(part, "design_matrix_without_intercept", None) is not None for part in built
    )
    priors = {name: part.prior for name, part in formula.marginal_parameters.items()}
    priors |= {x.name: x.prior for part in conditional for x in part.terms.values()}
    scaled = [f"`{name}`" for name, x in priors.items() if getattr(x, "auto_scale", False)]
    faults = {}
    if scales and scaled:
        what = f"scales the priors of {', '.join(scaled)}"
        faults[what] = "auto_scale=False and a prior of public numbers in priors= for each"
    if centres and any(part.intercept_term and part.common_terms for part in conditional):
        faults["centres the predictors by their means"] = "center_predictors=False"
    if faults:
        raise ValueError(
            f"By its defaults bambi {' and '.join(faults)}, which are numbers of all records that "
            f"no noise hides. Make the model with {', and '.join(faults.values())}."
        )


def _refuse_of_all(term: str, lazy: Any, env: Any, formula: Any) -> None:
    """Refuse a call of a term whose function may read more than one record at a time."""
    if not _reads(lazy, env, formula):
        return  # of public numbers any function may be taken
    if hasattr(lazy, "callee") and (instead := _instead_of(lazy, env, formula)):
        raise NotSeparableError(
            f"In the term `{term}` of the formula {lazy.callee}() takes what may be of all "
            f"records, so that each moves what is computed of all others: {instead}."
        )
    for argument in _arguments(lazy):
        _refuse_of_all(term, argument, env, formula)


def _arguments(lazy: Any) -> list[Any]:
    return [*getattr(lazy, "args", ()), *getattr(lazy, "kwargs", {}).values()]


def _reads(lazy: Any, env: Any, formula: Any) -> bool:
    """Whether an expression reads a column of the data, or an array as long as one."""
    if hasattr(lazy, "name"):
        value = () if lazy.name in formula.data else env.namespace.get(lazy.name, ())
        return lazy.name in formula.data or (
            hasattr(value, "__len__") and len(value) == formula.response_term.shape[0]
        )
    return any(_reads(x, env, formula) for x in _arguments(lazy))


def _instead_of(call: Any, env: Any, formula: Any) -> str:
    """Say what to write for a call that may read all records, by its function and arguments."""
    function, name = _function(call, env)
    of_numbers = isinstance(function, np.ufunc) and function.signature is None
    if of_numbers or name in ELEMENTWISE:
        return ""
    instead, arguments = OF_ALL.get(name, (OF_OTHERS, ()))
    given = {x: _public_value(call.kwargs.get(x), env, formula) for x in arguments}
    is_public = all(value is not None and (x != "raw" or value) for x, value in given.items())
    return "" if given and is_public else instead


def _public_value(lazy: Any, env: Any, formula: Any) -> Any:
    """Return the value of an argument; None if it is not given, or reads records."""
    if lazy is None or _reads(lazy, env, formula):
        return None
    return lazy.eval(formula.data.head(0), env)


def _function(call: Any, env: Any) -> tuple[Any, str]:
    from formulae.terms.call_resolver import get_function_from_module  # bambi brings it

    function = get_function_from_module(call.callee, env)
    module, name = (getattr(function, x, "") for x in ("__module__", "__qualname__"))
    return function, f"{module}.{name}"


def _listed_factor(part: Any, formula: Any) -> str:
    """Refuse a factor without a list of levels; name the column whose list may be of records."""
    name, call = part.name, getattr(part, "call", None)
    if call is not None and _function(call, part.env)[1] in FACTORS:
        if _public_value(call.kwargs.get("levels"), part.env, formula) is not None:
            return ""
        name = str(_arguments(call)[0])
    column: Any = formula.data.get(name)
    if not getattr(getattr(column, "dtype", None), "ordered", False):
        may_name_one = part.is_response and formula.family.name == "bernoulli"
        instead = f", or name the level that counts, {name}['...'] ~ ..." if may_name_one else ""
        raise ValueError(
            f"The levels of `{name}` are those that occur among the records, and a result shows "
            "them. Give by its name alone a column with all levels of a public list, "
            f"pd.Categorical(x, categories=[...], ordered=True){instead}."
        )
    levels = column.cat.categories
    may_be_of_records = column.nunique() == len(levels) and levels.is_monotonic_increasing
    return name if may_be_of_records else ""


def _predictors(formula: Any) -> Iterator[tuple[Any, bool]]:
    for part in formula.conditional_parameters.values():
        for term in part.terms.values():
            yield from _parts(term.term)


def _parts(term: Any) -> Iterator[tuple[Any, bool]]:
    """Yield the variables and calls of a term, and whether their levels are groups."""
    yield from ((x, False) for x in getattr(getattr(term, "expr", term), "components", ()))
    yield from ((x, True) for x in getattr(getattr(term, "factor", None), "components", ()))


def _weights(formula: Any) -> str:
    """Name the column of weights that the outcome of a formula has."""
    [outcome] = formula.response_term.term.components
    return str(_arguments(outcome.call)[1])


def without_weights(formula: Any) -> pm.Model:
    """Return a model of PyMC whose outcome has no weights, and a `pm.Data` with them beside it."""
    model: pm.Model = formula.backend.model
    if not formula.response_term.is_weighted:
        return model
    weights, name = np.asarray(formula.response_term.data)[:, 1], _weights(formula)

    def part(fgraph: FunctionGraph) -> None:
        [weighted] = [x for x in fgraph.toposort() if isinstance(x.op, CustomSymbolicDistRV)]
        own = weighted.op.fgraph.bind(weighted.inputs)
        for old, new in zip(weighted.outputs, own, strict=True):
            fgraph.replace(old, new, import_missing=True)
        column: Tensor = shared(weights.astype("float64"), name=name, shape=(None,))
        fgraph.add_output(model_named(column, name), import_missing=True)

    return changed_copy(model, part)


def with_named_factors(model: pm.Model) -> pm.Model:
    """Return a copy in which the level of each record is a `pm.Data` called as its factor."""
    dims = {dim for every in model.named_vars_to_dims.values() for dim in every if dim}
    factors = {dim.removesuffix(FACTOR_DIM) for dim in dims if dim.endswith(FACTOR_DIM)}
    factors -= model.named_vars.keys()
    if not factors:
        return model

    def name_factors(fgraph: FunctionGraph) -> None:
        columns: dict[str, Tensor] = {}
        for node in fgraph.toposort():
            if isinstance(node.op, AdvancedSubtensor) and isinstance(node.inputs[1], Constant):
                levels: Tensor
                effects, levels, *others = node.inputs
                owners = [v.owner_op for v in ancestors([effects])]
                dims = {x.dims[0] for x in owners if isinstance(x, ModelVar) and x.dims}
                for name in (x for x in factors if f"{x}{FACTOR_DIM}" in dims):
                    own = shared(np.asarray(levels.data, "int64"), name=name, shape=(None,))
                    picked: Tensor = node.op(effects, columns.setdefault(name, own), *others)
                    fgraph.replace(node.outputs[0], picked, import_missing=True)
        for name, column in columns.items():  # one in place of all that index one factor's effects
            fgraph.add_output(model_named(column, name), import_missing=True)

    return changed_copy(model, name_factors)


def changed_copy(model: pm.Model, change: Callable[[FunctionGraph], None]) -> pm.Model:
    """Copy a model with a change of its graph; the order of its variables stays."""
    order, made = list(model.named_vars), changed(model, change)
    for variables in (made.free_RVs, made.observed_RVs, made.deterministics):
        variables.sort(key=lambda variable: order.index(variable.name))
    return made


def censored_at(model: Any, *, lower: Any = None, upper: Any = None) -> pm.Model:
    """Give every record of a censored outcome the limit that it had before it was observed.

    A formula such as ``censored(time, status) ~ age`` knows a limit only where the outcome was
    censored, and a private fit that draws outcomes beside such limits is biased. A limit is the
    end of the study less the entry, say.

    Parameters
    ----------
    model : bambi.Model or pymc.Model
        With one observed variable that is censored.
    lower, upper : float or array_like, optional
        The limit of all records, or one for each. What is left out stays as it is.

    Returns
    -------
    pymc.Model
        A copy with these limits, and the same likelihood of the records.

    Raises
    ------
    ValueError
        Other than one outcome is censored, or a limit does not fit the outcomes.

    Notes
    -----
    **Privacy.** Reads outcomes to refuse limits that do not fit them, and releases nothing.

    Examples
    --------
    >>> fitted = pymc_dp.censored_at(bambi_model, upper=end - entry)  # doctest: +SKIP
    >>> idata = pymc_dp.fit(model=fitted, epsilon=1, delta=1e-5)  # doctest: +SKIP
    """
    given = {side: x for side, x in zip(SIDES, (lower, upper), strict=True) if x is not None}

    def with_limits(fgraph: FunctionGraph) -> None:
        name, node, value = _censored(fgraph)
        limits = dict(zip(SIDES, node.inputs[1:3], strict=True))
        for side, new in given.items():
            limits[side] = pt.as_tensor_variable(_limit(name, side, new, limits[side], value))
        renewed = CensoredRV.rv_op(node.inputs[0], *limits.values())
        fgraph.replace(node.outputs[0], renewed, import_missing=True)

    limited = changed_copy(pymc_model(model), with_limits)
    if formula := formula_of(model):
        _FORMULAS[limited] = formula
    return limited


def _censored(fgraph: FunctionGraph) -> tuple[str, Node, np.ndarray]:
    """Return the name of the censored variable, what draws it and what was observed."""
    observed = [x.owner for x in fgraph.outputs if isinstance(x.owner_op, ModelObservedRV)]
    censored = [node for node in observed if isinstance(node.inputs[0].owner_op, CensoredRV)]
    if len(censored) != 1:
        raise ValueError(
            f"The model has {len(censored)} censored outcomes and needs one: censored(time, "
            "status) in a formula, or pm.Censored in PyMC."
        )
    rv, value = censored[0].inputs
    return censored[0].op.name, rv.owner, _number(value)


def _number(variable: AnyVariable) -> np.ndarray:
    """Return the numbers of a variable that holds them, and nan for another."""
    if isinstance(variable, SharedVariable):
        return np.asarray(stored_value(variable))
    return np.asarray(variable.data if isinstance(variable, Constant) else np.nan)


def _limit(name: str, side: str, new: Any, old: AnyVariable, value: np.ndarray) -> np.ndarray:
    """Check new limits against the old ones, which say which outcomes were censored."""
    limits = np.asarray(new, "float64")
    if limits.shape not in ((), value.shape) or np.isnan(limits).any():
        raise ValueError(
            f"{side}= must be one number, or one for each outcome of `{name}`; none may be missing."
        )
    limits = np.broadcast_to(limits, value.shape)
    within = value < limits if side == "upper" else value > limits
    if not np.where(value == _number(old), value == limits, within).all():
        raise ValueError(
            f"Some outcomes of `{name}` do not fit {side}=: where an outcome was censored on this "
            "side, the limit is the outcome itself, and elsewhere the outcome lies within."
        )
    return np.array(limits)


def on_rows(model: Any, data: Any, unit: str | None) -> tuple[pm.Model, pd.DataFrame]:
    """Build the PyMC model of a formula on new rows, whose `unit` may be new; return both."""
    _check_rows(model, data, unit)
    # one row alone looks like what all records share
    frame = pd.concat([data, data.head(1)], ignore_index=True)
    made = copy(model)
    made._components = dict(model.parameters)  # those of the outcome's distribution
    for name, part in model.conditional_parameters.items():
        made._components[name] = copy(part)
        terms = {n: _term_on_rows(term, frame, unit) for n, term in part.terms.items()}
        made._components[name].terms = terms
    made._response_component = copy(model._response_component)
    made._response_component.term = _outcome_on_rows(model.response_term, frame)
    made.build()
    return pymc_model(made), frame


def _check_rows(model: Any, frame: Any, unit: str | None) -> None:
    """Refuse rows that lack a predictor, or a value of one; warn where they may be the fitted."""
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(
            f"data= is a {type(frame).__name__}, and a formula reads the columns of a pandas "
            "DataFrame: give one with a row for each new record."
        )
    parts = model.conditional_parameters.values()
    if model.center_predictors and any(x.intercept_term and x.common_terms for x in parts):
        raise ValueError(
            "bambi would centre the predictors of this model anew on the rows that it is given: "
            "make and fit the model with center_predictors=False."
        )
    response = model.response_term
    if response.is_truncated or response.is_constrained:
        raise ValueError(
            "The outcome of this formula is truncated() or constrained(), and bambi would take the "
            "limits of the fitted records for those of the new rows: predict with a model of PyMC."
        )
    if frame.empty:
        raise ValueError("data= has no rows: give one for each new record.")
    read = set().union(*(part.var_names for part, _ in _predictors(model)))
    for name in sorted(read & set(model.data.columns) - {unit}):
        if name not in frame:
            raise ValueError(f"data= lacks the column `{name}`, which the formula reads.")
        if frame[name].isna().any():
            raise ValueError(f"data= has missing values in the column `{name}`: leave them out.")
    if len(frame) == len(model.data):
        warnings.warn(
            "data= has as many rows as the fitted records. If it holds them, the predictions are "
            "computed from them again and are not covered by the guarantee: do not publish them.",
            PrivacyWarning,
            stacklevel=4,
        )


def _term_on_rows(term: Any, frame: pd.DataFrame, unit: str | None) -> Any:
    made = copy(term)
    if not hasattr(term, "group_index"):
        made.data = np.squeeze(_evaluated(term.term, frame))
        return made
    factor = term.term.factor
    made.term = copy(term.term)
    made.term.expr = copy(term.term.expr)
    made.term.expr.data = np.squeeze(_evaluated(term.term.expr, frame))
    new = np.zeros(len(frame), int)  # of new persons: which each is, predictions say themselves
    made.group_index = new if factor.name == unit else _evaluated(factor, frame).argmax(1)
    return made


def _evaluated(term: Any, frame: pd.DataFrame) -> np.ndarray:
    """Compute the columns of a term for new rows, with the levels of the fitted ones."""
    try:
        return np.asarray(term.eval_new_data(frame))
    except Exception as error:  # its text may quote values
        raise ValueError(
            f"data= has rows for which `{term.name}` cannot be computed ({type(error).__name__}). "
            "A level that was not in the fitted model has no posterior: leave its rows out."
        ) from None


def _outcome_on_rows(outcome: Any, frame: pd.DataFrame) -> Any:
    """Copy an outcome for new rows; only its number of trials is read, and no censoring is."""
    made = copy(outcome)
    made.term = copy(outcome.term)
    made.term.data = np.repeat(np.asarray(outcome.term.data)[:1], len(frame), axis=0)
    if outcome.term.kind == "proportion":
        made.term.data[:, 1] = np.squeeze(_evaluated(outcome.term, frame))
    if outcome.is_censored:
        made.term.data[:, 1] = 0
    return made
