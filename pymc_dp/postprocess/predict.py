"""Predictions for new records, and nothing else.

PyMC's own posterior predictive sampling works on a private result too, but puts the observed data,
the constants and the record coords of the model back into the tree.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.distributions.shape_utils import change_dist_size
from pymc.pytensorf import compile as compile_random
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.random.basic import MultinomialRV
from pytensor.tensor.shape import SpecifyShape
from scipy.sparse import issparse

from pymc_dp.driver.setup import model_in_use
from pymc_dp.model.axis import RecordAxes
from pymc_dp.model.batch import remake
from pymc_dp.model.columns import column
from pymc_dp.model.compile import PYTHON, without_c
from pymc_dp.model.dims import default_dims
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.harden import HardenedModel, harden
from pymc_dp.model.operations import unproved_in
from pymc_dp.model.priors import prior_graphs
from pymc_dp.model.split import split_by_record
from pymc_dp.model.terms import declare_public, likelihood_terms, log_densities, without_lengths


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
        An array is missing, unknown, or differs in its number of rows; or draws are made by a
        Python function that was not declared public.

    Notes
    -----
    **Privacy.** Post-processing, for records that were not fitted. Predictions for records that
    were fitted are computed from those records again and are not covered by the guarantee.

    Examples
    --------
    >>> import pymc_dp
    >>> pymc_dp.predict(idata, model, data={"X": X_new})  # doctest: +SKIP
    """
    model = model_in_use(model)
    public = _declared_public(idata)
    hardened = declare_public(harden(model), public)
    count = pt.lscalar("count")
    predicted, latents, axes = _for_new_records(hardened, count)
    _refuse_own_functions(list(predicted.values()), public)
    number = _put_new_data(hardened, axes, list(predicted.values()), dict(data or {}), rows)
    with without_c():
        draw = compile_random(
            [count, *latents.values()],
            list(predicted.values()),
            random_seed=random_seed,
            mode=PYTHON,
            on_unused_input="ignore",
        )
    posterior = idata["posterior"].to_dataset()
    points = posterior[[*latents]].stack(point=("chain", "draw")).transpose("point", ...)
    values = (points[name].to_numpy() for name in latents)
    draws = zip(*(draw(number, *point) for point in zip(*values, strict=True)), strict=True)
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    predictions = {}
    for name, each in zip(predicted, draws, strict=True):
        array = np.reshape(each, (*shape, *np.shape(each[0])))
        dims = default_dims(name, array.ndim - 2)
        predictions[name] = (("chain", "draw", *dims), array)
    return xr.DataTree.from_dict({"predictions": xr.Dataset(predictions)})


def _declared_public(idata: xr.DataTree) -> set[str]:
    attrs = idata["privacy"].attrs if "privacy" in idata.children else {}
    return {*json.loads(attrs.get("declared_public", "[]"))}


def _for_new_records(
    hardened: HardenedModel, count: AnyVariable
) -> tuple[dict[str, AnyVariable], dict[str, AnyVariable], RecordAxes]:
    """Return graphs of the observed variables for ``count`` records, and the latents they share."""
    observed = [rv for rv in hardened.model.observed_RVs if rv.name not in hardened.public]
    axes, own = _record_axes(hardened)
    shared = [rv for rv in hardened.model.free_RVs if rv not in own]
    by_record = dict.fromkeys(map(_behind_minibatch, observed), 0) | own
    # all at once: cloning one variable clones those that it depends on
    cloned = without_lengths([*by_record, *shared])
    along = dict(zip(cloned, by_record.values(), strict=False))
    latents = cloned[len(along) :]
    predicted = _resized(cloned[: len(observed)], latents, along, count)
    outputs = {rv.name: graph for rv, graph in zip(observed, predicted, strict=True)}
    return outputs, {rv.name: each for rv, each in zip(shared, latents, strict=True)}, axes


def _refuse_own_functions(predicted: list[AnyVariable], public: set[str]) -> None:
    """Refuse draws by a Python function that may hold data, unless it was declared public."""
    for name in sorted(unproved_in(predicted) - public):
        raise ValueError(
            f"The predictions are drawn by `{name}`, which may hold the fitted records (random= of "
            "a pm.CustomDist is such a function). Write the distribution with dist=, or declare "
            f"public=[{name!r}] in the fit if it holds no data."
        )


def _behind_minibatch(rv: AnyVariable) -> AnyVariable:
    """Return the variable itself behind ``total_size=``."""
    return rv.owner.inputs[0] if isinstance(rv.owner.op, MinibatchRandomVariable) else rv


def _record_axes(hardened: HardenedModel) -> tuple[RecordAxes, dict[AnyVariable, int]]:
    """Find the axes of the records, also those of latents that belong to single records."""
    model = hardened.model
    densities = log_densities(model)
    terms = likelihood_terms(hardened, densities)[0]
    for rv in model.observed_RVs:  # a multinomial draws as many trials as its input says
        trials = _trials(rv)
        if trials is not None:
            terms[f"trials of {rv.name}"] = trials
    split = split_by_record(hardened, terms, {}, prior_graphs(model, {}, densities))
    return split.axes, {model[name]: split.axes.axis[value] for name, value in split.local.items()}


def _trials(rv: AnyVariable) -> AnyVariable | None:
    """Return a multinomial's numbers of trials, where every record has its own."""
    if not isinstance(rv.owner.op, MultinomialRV):
        return None
    trials = rv.owner.inputs[-2]
    return trials if trials.ndim and not trials.type.broadcastable[0] else None


def _resized(
    variables: list[AnyVariable],
    latents: list[AnyVariable],
    along: Mapping[AnyVariable, int],
    count: AnyVariable,
) -> list[AnyVariable]:
    """Make every node anew, for ``count`` records, so that nothing remains of the old lengths.

    ``along`` maps the random variables that go by records to the axis along which they do.
    """
    renewed: dict[AnyVariable, AnyVariable] = {}
    for node in toposort(variables, blockers=latents):
        operands = [renewed.get(x, x) for x in node.inputs]
        if isinstance(node.op, SpecifyShape):
            renewed[node.outputs[0]] = operands[0]
        else:
            renewed.update(zip(node.outputs, remake(node, operands), strict=True))
        for rv in along.keys() & set(node.outputs):
            renewed[rv] = _with_rows(renewed[rv], along[rv], count)
    return [renewed.get(variable, variable) for variable in variables]


def _with_rows(rv: Any, axis: int, count: AnyVariable) -> AnyVariable:
    """Return the variable for ``count`` records, whatever size it was built with."""
    size = [rv.shape[k] for k in range(rv.ndim - rv.owner.op.ndim_supp)]
    size[axis] = count
    resized: AnyVariable = change_dist_size(rv, size)
    return resized


def _put_new_data(
    hardened: HardenedModel,
    axes: RecordAxes,
    predicted: list[AnyVariable],
    data: dict[str, Any],
    rows: int | None,
) -> int:
    """Put new rows in place of the model's records; return their number."""
    records = {leaf.name: leaf for leaf in hardened.leaves.values() if leaf.variable in axes.axis}
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
        variable: Any = records[name].variable
        values = new.values.toarray() if issparse(new.values) else new.values
        variable.set_value(np.asarray(values, dtype=variable.type.dtype))
    return counts.pop()
