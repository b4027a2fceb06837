"""Predictions for new records, and nothing else.

PyMC's own posterior predictive sampling works on a private result too, but puts the observed data,
the constants and the record coords of the model back into the tree.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.pytensorf import compile as compile_random
from pytensor.graph.traversal import ancestors
from scipy.sparse import issparse

from pymc_dp.driver.setup import model_in_use
from pymc_dp.errors import PrivacyWarning
from pymc_dp.model.columns import column
from pymc_dp.model.compile import PYTHON, without_c
from pymc_dp.model.dims import named_dims
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.harden import HardenedModel, harden
from pymc_dp.model.operations import unproved_in
from pymc_dp.model.terms import declare_public
from pymc_dp.postprocess.new_records import NewRecords, for_new_records, with_given


def predict(
    idata: xr.DataTree,
    model: pm.Model,
    data: Mapping[str, Any] | None = None,
    *,
    rows: int | None = None,
    var_names: str | Sequence[str] | None = None,
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
        that goes by records, except what is predicted. An observed variable that others read, such
        as a predictor with a distribution, may be given too: they then read these values, and draws
        of it where they are nan or not given.
    rows : int, optional
        The number of new records of a model without such arrays.
    var_names : str or sequence of str, optional
        Observed variables, and deterministics that go by records. By default all observed
        variables, and all such deterministics that can be computed from ``data`` and hold no number
        that may come from the fitted records.
    random_seed : int, optional

    Returns
    -------
    DataTree
        One group, ``predictions``: (chain, draw, ...) for every variable, on the model's own
        dimensions. New records have no labels; of other dimensions those of the posterior are
        kept. Latents of single records or units are drawn from their priors, anew for every draw;
        records of one unit share them where ``data`` has the codes that ``unit=`` named, and else
        every new record is of another unit.

    Raises
    ------
    ValueError
        An array is missing, unknown, or differs in its number of rows; a name is none of those
        above; or draws are made by a Python function that was not declared public.

    Warns
    -----
    PrivacyWarning
        The new records are as many as those of the model: they may be the fitted ones.

    Notes
    -----
    **Privacy.** Post-processing, for records that were not fitted. Predictions for records that
    were fitted are computed from those records again and are not covered by the guarantee.

    Examples
    --------
    >>> pymc_dp.predict(idata, model, data={"X": X_new})  # doctest: +SKIP
    """
    model = model_in_use(model)
    attrs = idata["privacy"].attrs if "privacy" in idata.children else {}
    public, unit = {*json.loads(attrs.get("declared_public", "[]"))}, attrs.get("unit")
    # a data frame is no mapping, and its columns are
    data = {} if data is None else {name: data[name] for name in getattr(data, "columns", data)}
    hardened = declare_public(harden(model), public)
    new = with_given(for_new_records(hardened, unit), hardened, data)
    codes = None if unit is None else data.pop(unit, None)
    predicted = _chosen(hardened, new, var_names, data)
    _refuse_own_functions(list(predicted.values()), public)
    number = _put_new_data(hardened, new, list(predicted.values()), data, rows)
    _put_units(hardened, unit, codes, number)
    with without_c():
        draw = compile_random(
            [new.rows, *new.latents.values()],
            list(predicted.values()),
            random_seed=random_seed,
            mode=PYTHON,
            on_unused_input="ignore",
        )
    posterior = idata["posterior"].to_dataset()
    points = posterior[[*new.latents]].stack(point=("chain", "draw")).transpose("point", ...)
    values = (points[name].to_numpy() for name in new.latents)
    try:
        draws = zip(*(draw(number, *point) for point in zip(*values, strict=True)), strict=True)
    except IndexError:  # its text quotes a value
        raise ValueError(
            "data= holds an index beyond the array that it indexes. A level that was not in the "
            "fitted model has no posterior: leave its rows out."
        ) from None
    arrays = {name: np.stack(each) for name, each in zip(predicted, draws, strict=True)}
    return xr.DataTree.from_dict({"predictions": _labelled(model, posterior, arrays)})


def _labelled(
    model: pm.Model, posterior: xr.Dataset, arrays: Mapping[str, np.ndarray]
) -> xr.Dataset:
    """Lay draws, shape (points, ...), out on the model's dims, with the posterior's coords."""
    variables = {}
    for name, array in arrays.items():
        own = named_dims(model.named_vars_to_dims.get(name), name, array.ndim - 1)
        dims = ("chain", "draw", *own)
        shape = posterior.sizes["chain"], posterior.sizes["draw"], *array.shape[1:]
        variables[name] = (dims, array.reshape(shape))
    found = xr.Dataset(variables)
    kept = {
        dim: posterior[dim]
        for dim, size in found.sizes.items()
        if dim in posterior.coords and dim not in ("chain", "draw") and posterior.sizes[dim] == size
    }
    return found.assign_coords(kept)


def _chosen(
    hardened: HardenedModel,
    new: NewRecords,
    var_names: str | Sequence[str] | None,
    given: Mapping[str, Any],
) -> dict[str, AnyVariable]:
    """Return the graphs of the variables that are asked for, or of all that can be computed."""
    free = {name: g for name, g in new.deterministics.items() if name not in new.withheld}
    if var_names is None:
        leaves = [leaf for leaf in hardened.leaves.values() if leaf.variable in new.axes.axis]
        lacking = {leaf.variable for leaf in leaves if leaf.name not in given}
        return new.observed | {
            name: graph for name, graph in free.items() if lacking.isdisjoint(ancestors([graph]))
        }
    names = [var_names] if isinstance(var_names, str) else list(var_names)
    for name in names:
        if name in new.withheld:
            raise ValueError(
                f"var_names= names `{name}`, which holds a number or an operation that may come "
                "from the fitted records. Compute it from the posterior, or make the number a "
                "pm.Data and declare it public in the fit."
            )
        if name not in (new.observed | free):
            raise ValueError(
                f"var_names= names `{name}`, but what can be predicted for new records is "
                f"{sorted(new.observed | free)}; all else that may leave is in idata['posterior']."
            )
    return {name: (new.observed | free)[name] for name in names}


def _refuse_own_functions(predicted: list[AnyVariable], public: set[str]) -> None:
    """Refuse draws by a Python function that may hold data, unless it was declared public."""
    for name in sorted(unproved_in(predicted) - public):
        raise ValueError(
            f"The predictions are drawn by `{name}`, which may hold the fitted records (random= of "
            "a pm.CustomDist is such a function). Write the distribution with dist=, or declare "
            f"public=[{name!r}] in the fit if it holds no data."
        )


def _put_new_data(
    hardened: HardenedModel,
    new: NewRecords,
    predicted: list[AnyVariable],
    data: dict[str, Any],
    rows: int | None,
) -> int:
    """Put new rows in place of the model's records; return their number."""
    axes = new.axes
    masks = {mask.leaf for mask in hardened.masks}
    records = {
        leaf.name: leaf
        for leaf in hardened.leaves.values()
        if leaf.variable in axes.axis and leaf.name not in masks
    }
    read = set(ancestors(predicted))
    for name in data.keys() - records.keys():
        raise ValueError(f"data= names `{name}`, but the model's records are {sorted(records)}.")
    for name, leaf in records.items():
        if leaf.variable in read and name not in data:
            unnamed = "" if leaf.declared else f" It is {leaf}: make it pm.Data('x', ...)."
            raise ValueError(
                f"data= lacks `{name}`, which the predictions depend on: give its values for the "
                f"new records under this name.{unnamed}"
            )
    columns = {name: column(records[name], axes, values) for name, values in data.items()}
    counts = {each.rows for each in columns.values()} | (set() if rows is None else {rows})
    if len(counts) != 1:
        raise ValueError(
            "The new records differ in number." if counts else "Say how many rows= to predict."
        )
    shapes = [(np.shape(new.values), np.shape(records[n].value)) for n, new in columns.items()]
    if shapes and all(given == own for given, own in shapes):
        warnings.warn(
            f"The new values of {', '.join(f'`{name}`' for name in columns)} have the shapes of "
            "those that the model holds. If they are the fitted records, the predictions are "
            "computed from them again and are not covered by the guarantee: do not publish them.",
            PrivacyWarning,
            stacklevel=3,
        )
    for name, new_column in columns.items():
        variable: Any = records[name].variable
        values = new_column.values
        values = values.toarray() if issparse(values) else values
        variable.set_value(np.asarray(values, dtype=variable.type.dtype))
    [count] = counts
    for mask in hardened.masks:  # of new records nothing is observed: all is drawn
        held: Any = mask.variable
        held.set_value(np.zeros((count, *mask.values.shape[1:]), bool))
    return count


def _put_units(hardened: HardenedModel, unit: str | None, codes: Any, number: int) -> None:
    """Say which unit each new record belongs to: by default each to one of its own."""
    own = np.arange(number) if codes is None else np.unique(codes, return_inverse=True)[1]
    if np.shape(own) != (number,):
        raise ValueError(f"data=`{unit}` must be one code for each of the {number} new records.")
    for leaf in hardened.leaves.values():
        if leaf.name == unit:
            leaf.variable.set_value(own.astype(leaf.variable.type.dtype))
