"""Models that bambi writes from a formula, as models whose grouping factors have names.

Bambi hands PyMC bare arrays. What follows names those that say which level of a factor a record
has, after the factor: in ``(1|person)`` they become a `pm.Data` called ``person``, which ``unit=``
can name.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pymc as pm
from pandas.api.types import is_numeric_dtype
from pymc.distributions.custom import CustomSymbolicDistRV
from pymc.model.fgraph import ModelVar, fgraph_from_model, model_from_fgraph, model_named
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.model.graph_types import AnyVariable, Tensor, shared
from pymc_dp.model.harden import copied
from pymc_dp.tables.given import refuse_given

FACTOR_DIM = "__factor_dim"  # ends the names of bambi's dimensions of levels


def is_bambi(model: object) -> bool:
    """Whether an object is a model of bambi, which need not be installed."""
    return type(model).__module__.partition(".")[0] == "bambi" and hasattr(model, "backend")


def pymc_model(model: Any) -> Any:
    """Return the PyMC model of a bambi model, with its factors named; all else as it is."""
    if is_bambi(model):
        _refuse_objects(model)
        if not model.built:
            model.build()
        _refuse_disorder(model)
        model = without_weights(model.backend.model, model.response_term)
    if not isinstance(model, pm.Model):
        return model
    refuse_given(model)
    return with_named_factors(model)


def _refuse_objects(model: Any) -> None:
    """Refuse numbers that bambi takes for levels, one for each that occurs."""
    for name in sorted(columns_read(model, "expr")):  # factors have levels of any kind
        column = model.data[name]
        if is_numeric_dtype(column) or getattr(column.dtype, "ordered", False):
            continue
        levels = getattr(column.dtype, "categories", column.unique())
        if len(levels) and all(isinstance(level, Real | Decimal) for level in levels):
            raise ValueError(
                f"The column `{name}` holds numbers as objects or as categories without an order, "
                "and bambi takes for levels those that occur. If they are numbers, convert them by "
                "astype(float); if they are levels, list all: pd.Categorical(x, categories=[...], "
                "ordered=True)."
            )


def _refuse_disorder(model: Any) -> None:
    """Refuse thresholds that nothing keeps in order, as bambi makes them with auto_scale=False."""
    built = model.backend.model
    thresholds = {x for x in built.free_RVs if x.name.rpartition("_")[2] == "threshold"}
    if model.family.name == "cumulative" and any(
        built.rvs_to_transforms[x] is None for x in thresholds
    ):
        raise ValueError(
            "Nothing keeps the thresholds of family='cumulative' in order: with auto_scale=False "
            "bambi leaves that to their prior. Give one such as priors={'threshold': bmb.Prior("
            "'Normal', mu=[-2, 0, 2], sigma=2, transform=pm.distributions.transforms.ordered)}, "
            "with a public mu for each threshold."
        )


def levels_of_records(model: Any, unit: str | None) -> list[str]:
    """Name the factors of a formula whose levels are those that occur among the records.

    So bambi takes them, unless categories are ordered. The levels of a ``unit`` are not released.
    """
    found = []
    for name in sorted(columns_read(model) - {str(unit)}) if is_bambi(model) else ():
        dtype = model.data[name].dtype
        if not is_numeric_dtype(dtype) and not getattr(dtype, "ordered", False):
            found.append(name)
    return [
        f"The levels of the factor `{name}` are those that occur among the records, and the result "
        "lists them: a level that one record has would show it. Give all of a public list: "
        "pd.Categorical(x, categories=[...], ordered=True)."
        for name in found
    ]


def columns_read(model: Any, part_of_term: str = "term") -> set[str]:
    """Name the columns of its data that the predictors of a formula read."""
    terms = [x.term for part in model.conditional_parameters.values() for x in part.terms.values()]
    read = [getattr(getattr(x, part_of_term, x), "var_names", ()) for x in terms]
    return set().union(*read) & set(model.data.columns)


def without_weights(model: pm.Model, response: Any) -> pm.Model:
    """Return a copy whose outcome has no weights, and a `pm.Data` with them beside it.

    Bambi multiplies a density by weights that it keeps inside a Python function. The `pm.Data` is
    called as the formula calls them. Without ``weighted()`` it is the model itself.
    """
    if not response.is_weighted:
        return model
    weights = np.asarray(response.data)[:, 1].astype("float64")
    name = response.name.removeprefix("weighted(").removesuffix(")").rpartition(",")[2].strip()

    def part(fgraph: FunctionGraph) -> None:
        [weighted] = [x for x in fgraph.toposort() if isinstance(x.op, CustomSymbolicDistRV)]
        own = weighted.op.fgraph.bind(weighted.inputs)
        for old, new in zip(weighted.outputs, own, strict=True):
            fgraph.replace(old, new, import_missing=True)
        column: Tensor = shared(weights, name=name, shape=(None,))
        fgraph.add_output(model_named(column, name), import_missing=True)

    return changed_copy(model, part)


def with_named_factors(model: pm.Model) -> pm.Model:
    """Return a copy in which the level of each record is a `pm.Data` called as its factor.

    Without such factors it is the model itself.
    """
    dims = {dim for every in model.named_vars_to_dims.values() for dim in every if dim}
    factors = {dim.removesuffix(FACTOR_DIM) for dim in dims if dim.endswith(FACTOR_DIM)}
    factors -= model.named_vars.keys()
    if not factors:
        return model

    def name_factors(fgraph: FunctionGraph) -> None:
        for name, column in _columns_of(fgraph, factors).items():
            fgraph.add_output(model_named(column, name), import_missing=True)

    return changed_copy(model, name_factors)


def changed_copy(model: pm.Model, change: Callable[[FunctionGraph], None]) -> pm.Model:
    """Copy a model with a change of its graph; the order of its variables stays."""
    initial = {rv.name: value for rv, value in model.rvs_to_initial_values.items()}
    order = list(model.named_vars)
    (fgraph, _), partly_named = copied(model, fgraph_from_model)
    change(fgraph)
    copy = model_from_fgraph(fgraph, mutate_fgraph=True)
    copy.named_vars_to_dims.update(partly_named)
    copy.rvs_to_initial_values.update({rv: initial[rv.name] for rv in copy.free_RVs})
    for variables in (copy.free_RVs, copy.observed_RVs, copy.deterministics):
        variables.sort(key=lambda variable: order.index(variable.name))
    return copy


def _columns_of(fgraph: FunctionGraph, factors: set[str]) -> dict[str, AnyVariable]:
    """Put one column in place of all arrays that index effects of one factor."""
    columns: dict[str, AnyVariable] = {}
    for node in fgraph.toposort():
        if not isinstance(node.op, AdvancedSubtensor) or not isinstance(node.inputs[1], Constant):
            continue
        levels: Tensor
        effects, levels, *others = node.inputs
        for name in factors.intersection(_factors(effects)):
            own = shared(np.asarray(levels.data, "int64"), name=name, shape=(None,))
            column = columns.setdefault(name, own)
            picked: Tensor = node.op(effects, column, *others)
            fgraph.replace(node.outputs[0], picked, import_missing=True)
    return columns


def _factors(effects: AnyVariable) -> Iterator[str]:
    """Name the factors along whose levels an array of effects lies."""
    for variable in ancestors([effects]):
        dims = variable.owner_op.dims if isinstance(variable.owner_op, ModelVar) else ()
        if dims and dims[0].endswith(FACTOR_DIM):
            yield dims[0].removesuffix(FACTOR_DIM)
