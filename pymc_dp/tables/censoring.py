"""Limits of censoring that every record had before its outcome was known."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pymc.model.fgraph import ModelObservedRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph

from pymc_dp.model.graph_types import AnyVariable, Node, stored_value
from pymc_dp.tables.formula import changed_copy, copy_of_formula, pymc_model

SIDES = ("lower", "upper")


def censored_at(model: Any, *, lower: Any = None, upper: Any = None) -> pm.Model:
    """Give every record of a censored outcome the limit that it had before it was observed.

    A formula such as ``censored(time, status) ~ age`` knows a limit only where the outcome was
    censored, and takes infinity elsewhere. Such limits follow from the outcomes, and a private fit
    that draws outcomes beside them is biased. Mostly every record has a limit of its own: the end
    of the study less its entry, or a largest value that the instrument shows.

    Parameters
    ----------
    model : bambi.Model or pymc.Model
        With one observed variable that is censored.
    lower, upper : float or array_like, optional
        The limit of all records, or one for each. What is left out stays as it is.

    Returns
    -------
    pymc.Model
        A copy with these limits, for every function that takes a model. Its likelihood of the
        records is the same.

    Raises
    ------
    ValueError
        No outcome, or more than one, is censored; a limit is no number; a censored outcome does not
        lie at its new limit, or another one does not lie within.

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

    return copy_of_formula(changed_copy(pymc_model(model), with_limits), model)


def _censored(fgraph: FunctionGraph) -> tuple[str, Node, np.ndarray]:
    """Return the name of the censored variable, what draws it and what was observed."""
    observed = [x.owner for x in fgraph.outputs if isinstance(x.owner_op, ModelObservedRV)]
    found = [node for node in observed if isinstance(node.inputs[0].owner_op, CensoredRV)]
    if len(found) != 1:
        raise ValueError(
            f"The model has {len(found)} censored outcomes, and censored_at changes the limits of "
            "one: write it as censored(time, status) in a formula, or as pm.Censored in PyMC."
        )
    rv, value = found[0].inputs
    return found[0].op.name, rv.owner, _number(value)


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
            f"{side}= must be one number, or one for each of the outcomes of `{name}`, and none "
            "may be missing."
        )
    limits = np.broadcast_to(limits, value.shape)
    censored = value == _number(old)
    within = value < limits if side == "upper" else value > limits
    if (censored & (value != limits)).any() or (~censored & ~within).any():
        raise ValueError(
            f"Some outcomes of `{name}` do not fit {side}=: where an outcome was censored on this "
            "side, the limit is the outcome itself, and elsewhere the outcome lies within."
        )
    return np.array(limits)
