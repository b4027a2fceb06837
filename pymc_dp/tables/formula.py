"""Models that bambi writes from a formula, as models whose grouping factors have names.

Bambi hands PyMC bare arrays. What follows names those that say which level of a factor a record
has, after the factor: in ``(1|person)`` they become a `pm.Data` called ``person``, which ``unit=``
can name.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pymc as pm
from pymc.model.fgraph import ModelVar, fgraph_from_model, model_from_fgraph, model_named
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.model.graph_types import AnyVariable, shared
from pymc_dp.model.harden import copied

FACTOR_DIM = "__factor_dim"  # ends the names of bambi's dimensions of levels


def is_bambi(model: object) -> bool:
    """Whether an object is a model of bambi, which need not be installed."""
    return type(model).__module__.partition(".")[0] == "bambi" and hasattr(model, "backend")


def pymc_model(model: Any) -> Any:
    """Return the PyMC model of a bambi model, with its factors named; all else as it is."""
    if is_bambi(model):
        if not model.built:
            model.build()
        model = model.backend.model
    return with_named_factors(model) if isinstance(model, pm.Model) else model


def with_named_factors(model: pm.Model) -> pm.Model:
    """Return a copy in which the level of each record is a `pm.Data` called as its factor.

    Without such factors it is the model itself.
    """
    dims = {dim for every in model.named_vars_to_dims.values() for dim in every if dim}
    factors = {dim.removesuffix(FACTOR_DIM) for dim in dims if dim.endswith(FACTOR_DIM)}
    factors -= model.named_vars.keys()
    if not factors:
        return model
    initial = {rv.name: value for rv, value in model.rvs_to_initial_values.items()}
    (fgraph, _), partly_named = copied(model, fgraph_from_model)
    columns = _name_factors(fgraph, factors)
    for name, column in columns.items():
        fgraph.add_output(model_named(column, name), import_missing=True)
    named = model_from_fgraph(fgraph, mutate_fgraph=True)
    named.named_vars_to_dims.update(partly_named)
    named.rvs_to_initial_values.update({rv: initial[rv.name] for rv in named.free_RVs})
    order = list(model.named_vars)
    for variables in (named.free_RVs, named.observed_RVs, named.deterministics):
        variables.sort(key=lambda variable: order.index(variable.name))
    return named


def _name_factors(fgraph: FunctionGraph, factors: set[str]) -> dict[str, AnyVariable]:
    """Put one column in place of all arrays that index effects of one factor."""
    columns: dict[str, AnyVariable] = {}
    for node in fgraph.toposort():
        if not isinstance(node.op, AdvancedSubtensor) or not isinstance(node.inputs[1], Constant):
            continue
        effects, levels, *others = node.inputs
        for name in factors.intersection(_factors(effects)):
            own = shared(np.asarray(levels.data, "int64"), name=name, shape=(None,))
            column = columns.setdefault(name, own)
            picked = node.op(effects, column, *others)
            fgraph.replace(node.outputs[0], picked, import_missing=True)
    return columns


def _factors(effects: AnyVariable) -> Iterator[str]:
    """Name the factors along whose levels an array of effects lies."""
    for variable in ancestors([effects]):
        dims = variable.owner_op.dims if isinstance(variable.owner_op, ModelVar) else ()
        if dims and dims[0].endswith(FACTOR_DIM):
            yield dims[0].removesuffix(FACTOR_DIM)
