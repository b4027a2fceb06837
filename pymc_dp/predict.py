"""Predictions for new records, and nothing else.

PyMC's own posterior predictive sampling works on a private result too, but puts the observed data,
the constants and the record coords of the model back into the tree.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.distributions.shape_utils import change_dist_size
from pymc.pytensorf import compile as compile_random
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.shape import SpecifyShape
from scipy.sparse import issparse

from pymc_dp.compile import PYTHON, without_c
from pymc_dp.records.axis import find_record_axes
from pymc_dp.records.batch import remake
from pymc_dp.records.columns import column
from pymc_dp.records.harden import HardenedModel, harden
from pymc_dp.records.terms import likelihood_terms, without_lengths


def predict(
    idata: xr.DataTree,
    model: pm.Model,
    data: Mapping[str, Any] | None = None,
    *,
    rows: int | None = None,
    random_seed: int | None = None,
) -> xr.DataTree:
    """Draw new observations from the posterior predictive distribution.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    model : pymc.Model
        The model that was fitted; its own data are not used.
    data : mapping, optional
        New values, one row a new record, for every array of the model that goes by records,
        except what is predicted.
    rows : int, optional
        The number of new records of a model without such arrays.
    random_seed : int, optional

    Returns
    -------
    DataTree
        One group, ``predictions``: (chain, draw, ...) for every observed variable.

    Raises
    ------
    ValueError
        An array is missing, unknown, or differs in its number of rows.

    Notes
    -----
    **Privacy.** Post-processing, for records that were not fitted. Predictions for records that
    were fitted are computed from those records again and are not covered by the guarantee.

    Examples
    --------
    >>> import pymc_dp
    >>> pymc_dp.predict(idata, model, data={"X": X_new})  # doctest: +SKIP
    """
    hardened = harden(model)
    latents, observed = hardened.model.free_RVs, hardened.model.observed_RVs
    count = pt.lscalar("count")
    sources = without_lengths([_behind_minibatch(rv) for rv in observed])
    predicted = [_resized(rv, count) for rv in _remade(sources, latents)]
    number = _put_new_data(hardened, predicted, dict(data or {}), rows)
    with without_c():
        draw = compile_random(
            [count, *latents],
            predicted,
            random_seed=random_seed,
            mode=PYTHON,
            on_unused_input="ignore",
        )
    posterior = idata["posterior"].to_dataset()
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    stacked = [
        posterior[rv.name].values.reshape(-1, *posterior[rv.name].shape[2:]) for rv in latents
    ]
    draws = [draw(number, *values) for values in zip(*stacked, strict=True)]
    predictions = {}
    for rv, values in zip(observed, zip(*draws, strict=True), strict=True):
        array = np.reshape(values, (*shape, *np.shape(values[0])))
        dims = [f"{rv.name}_dim_{k}" for k in range(array.ndim - 2)]
        predictions[rv.name] = (("chain", "draw", *dims), array)
    return xr.DataTree.from_dict({"predictions": xr.Dataset(predictions)})


def _behind_minibatch(rv: Variable) -> Variable:
    """Return the variable itself behind ``total_size=``."""
    return rv.owner.inputs[0] if isinstance(rv.owner.op, MinibatchRandomVariable) else rv


def _remade(variables: list[Variable], latents: list[Variable]) -> list[Variable]:
    """Make every node anew, so that no static length of the fitted data remains."""
    renewed: dict[Variable, Variable] = {}
    for node in toposort(variables, blockers=latents):
        operands = [renewed.get(x, x) for x in node.inputs]
        if isinstance(node.op, SpecifyShape):
            renewed[node.outputs[0]] = operands[0]
        else:
            renewed.update(zip(node.outputs, remake(node, operands), strict=True))
    return [renewed.get(variable, variable) for variable in variables]


def _resized(rv: Variable, count: Variable) -> Variable:
    """Return the variable for ``count`` records, whatever size it was built with."""
    batch = [rv.shape[k] for k in range(1, rv.ndim - rv.owner.op.ndim_supp)]
    return change_dist_size(rv, (count, *batch))


def _put_new_data(
    hardened: HardenedModel, predicted: list[Variable], data: dict[str, Any], rows: int | None
) -> int:
    """Put new rows in place of the model's records; return their number."""
    leaves = {leaf.variable: leaf for leaf in hardened.leaves}
    axes = find_record_axes(likelihood_terms(hardened.model, set(leaves))[0])
    records = {leaf.name: leaf for v, leaf in leaves.items() if v in axes.axis}
    read = set(ancestors(predicted))
    for name in data.keys() - records.keys():
        raise ValueError(f"data= names `{name}`, but the model's records are {sorted(records)}.")
    for name, leaf in records.items():
        if leaf.variable in read and name not in data:
            raise ValueError(
                f"data= lacks `{name}`, which the predictions depend on. Make it a pm.Data, and "
                "give its values for the new records."
            )
    columns = {name: column(records[name], axes, values) for name, values in data.items()}
    counts = {new.rows for new in columns.values()} | (set() if rows is None else {rows})
    if len(counts) != 1:
        raise ValueError(
            "The new records differ in number." if counts else "Say how many rows= to predict."
        )
    for name, new in columns.items():
        variable = records[name].variable
        values = new.values.toarray() if issparse(new.values) else new.values
        variable.set_value(np.asarray(values, dtype=variable.type.dtype))
    return counts.pop()
