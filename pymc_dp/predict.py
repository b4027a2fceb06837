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
from pytensor.tensor.random.basic import MultinomialRV
from pytensor.tensor.shape import SpecifyShape
from scipy.sparse import issparse

from pymc_dp.compile import PYTHON, without_c
from pymc_dp.prepare import model_of
from pymc_dp.records.axis import RecordAxes
from pymc_dp.records.batch import remake
from pymc_dp.records.columns import column
from pymc_dp.records.harden import HardenedModel, harden
from pymc_dp.records.priors import prior_graphs, with_local_priors
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
        A result of `pymc_dp.fit`; every draw of its posterior gives one prediction.
    model : pymc.Model
        The model that was fitted; its own data are not used.
    data : mapping, optional
        New values by the names of ``pm.Data``, one row a new record, for every array of the model
        that goes by records, except what is predicted.
    rows : int, optional
        The number of new records of a model without such arrays.
    random_seed : int, optional

    Returns
    -------
    DataTree
        One group, ``predictions``: (chain, draw, ...) for every observed variable. Latents of
        single records are drawn from their priors, anew for every draw.

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
    hardened = harden(model_of(model))
    observed, count = hardened.model.observed_RVs, pt.lscalar("count")
    axes, own = _record_axes(hardened)
    shared = [rv for rv in hardened.model.free_RVs if rv not in own]
    by_record = dict.fromkeys(map(_behind_minibatch, observed), 0) | own
    cloned = without_lengths([*by_record, *shared])  # all at once: a clone of one clones its kin
    along = dict(zip(cloned, by_record.values(), strict=False))
    latents = cloned[len(along) :]
    predicted = _resized(cloned[: len(observed)], latents, along, count)
    number = _put_new_data(hardened, axes, predicted, dict(data or {}), rows)
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
        posterior[rv.name].values.reshape(-1, *posterior[rv.name].shape[2:]) for rv in shared
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


def _record_axes(hardened: HardenedModel) -> tuple[RecordAxes, dict[Variable, int]]:
    """Find the axes of the records, also those of latents that belong to single records."""
    model, leaves = hardened.model, {leaf.variable for leaf in hardened.leaves}
    terms = likelihood_terms(model, leaves)[0]
    for rv in model.observed_RVs:  # a multinomial draws as many trials as it is told
        trials = _trials(rv)
        if trials is not None:
            terms[f"trials of {rv.name}"] = trials
    of_latent = dict(zip(model.free_RVs, model.value_vars, strict=True))
    axes, local = with_local_priors(terms, prior_graphs(model, {}), of_latent)
    return axes, {rv: axes.axis[value] for rv, value in local.items()}


def _trials(rv: Variable) -> Variable | None:
    """Return a multinomial's numbers of trials, where every record has its own."""
    if not isinstance(rv.owner.op, MultinomialRV):
        return None
    trials = rv.owner.inputs[-2]
    return trials if trials.ndim and not trials.type.broadcastable[0] else None


def _resized(
    variables: list[Variable],
    latents: list[Variable],
    along: Mapping[Variable, int],
    count: Variable,
) -> list[Variable]:
    """Make every node anew, for ``count`` records, so that nothing remains of the old lengths.

    ``along`` maps the random variables that go by records to the axis along which they do.
    """
    renewed: dict[Variable, Variable] = {}
    for node in toposort(variables, blockers=latents):
        operands = [renewed.get(x, x) for x in node.inputs]
        if isinstance(node.op, SpecifyShape):
            renewed[node.outputs[0]] = operands[0]
        else:
            renewed.update(zip(node.outputs, remake(node, operands), strict=True))
        for rv in along.keys() & set(node.outputs):
            renewed[rv] = _with_rows(renewed[rv], along[rv], count)
    return [renewed.get(variable, variable) for variable in variables]


def _with_rows(rv: Variable, axis: int, count: Variable) -> Variable:
    """Return the variable for ``count`` records, whatever size it was built with."""
    size = [rv.shape[k] for k in range(rv.ndim - rv.owner.op.ndim_supp)]
    size[axis] = count
    return change_dist_size(rv, size)


def _put_new_data(
    hardened: HardenedModel,
    axes: RecordAxes,
    predicted: list[Variable],
    data: dict[str, Any],
    rows: int | None,
) -> int:
    """Put new rows in place of the model's records; return their number."""
    records = {leaf.name: leaf for leaf in hardened.leaves if leaf.variable in axes.axis}
    read = set(ancestors(predicted))
    for name in data.keys() - records.keys():
        raise ValueError(f"data= names `{name}`, but the model's records are {sorted(records)}.")
    for name, leaf in records.items():
        if leaf.variable in read and name not in data:
            raise ValueError(
                f"data= lacks `{name}`, which the predictions depend on: give its values for the "
                "new records under this name, or make it a pm.Data with a name of your own."
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
