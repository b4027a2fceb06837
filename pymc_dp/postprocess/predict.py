"""Predictions for new records, and nothing else.

PyMC's own posterior predictive sampling works on a private result too, but puts the observed data,
the constants and the record coords of the model back into the tree.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.pytensorf import compile as compile_random
from pytensor.graph.traversal import ancestors

from pymc_dp.driver.setup import model_in_use
from pymc_dp.model.graph_types import AnyVariable
from pymc_dp.model.graphs import unproved_in
from pymc_dp.model.harden import HardenedModel, harden
from pymc_dp.model.modes import PYTHON, without_c
from pymc_dp.model.split import declare_public, named_dims
from pymc_dp.postprocess.new_data import put_new_data, put_units, warn_if_fitted
from pymc_dp.postprocess.new_indices import refuse_missing_levels
from pymc_dp.postprocess.new_records import NewRecords, for_new_records, with_declared, with_given
from pymc_dp.tables.formula import is_bambi, on_rows


def predict(
    idata: xr.DataTree,
    model: pm.Model,
    data: Mapping[str, Any] | None = None,
    *,
    rows: int | None = None,
    var_names: str | Sequence[str] | None = None,
    public: str | Sequence[str] = (),
    random_seed: int | None = None,
) -> xr.DataTree:
    """Draw new observations from the posterior predictive distribution.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`; every draw of its posterior gives one prediction.
    model : pymc.Model or bambi.Model
        The model that was fitted; its own data are not used.
    data : mapping, optional
        Of a model of bambi: a data frame with the columns that its formula reads. Else:
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
    public : str or sequence of str, optional
        Deterministics that go by records whose numbers do not come from the fitted records, such as
        ``170 + b * x``: they return these numbers exactly. What is declared is trusted, as in the
        fit, and listed in the attributes of the group.
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
        An array is missing, unknown, or differs in its number of rows; codes pick no entry of the
        fitted model; a name is none of those above; or draws are made by a Python function that
        was not declared public.

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
    of_formula = data is not None and is_bambi(model)
    model = model if of_formula else model_in_use(model)
    declared, unit = declared_in(idata)
    own = sorted({public} if isinstance(public, str) else set(public))
    model, data = on_rows(model, data, unit) if of_formula else (model, data)
    # a data frame is no mapping, and its columns are
    data = {} if data is None else {name: data[name] for name in getattr(data, "columns", data)}
    hardened = declare_public(harden(model), declared)
    new = with_declared(for_new_records(hardened, unit), hardened, own)
    codes = None if unit is None else data.pop(unit, None)
    data = _of_new_rows(hardened, new, unit) if of_formula else data
    new = with_given(new, hardened, data)
    predicted = _chosen(hardened, new, var_names, data)
    refuse_own_functions(list(predicted.values()), declared)
    number = put_new_data(hardened, new, list(predicted.values()), data, rows)
    if not of_formula:
        warn_if_fitted(hardened, data)
    put_units(hardened, unit, codes, number)
    posterior = idata["posterior"].to_dataset()
    points = posterior[[*new.latents]].stack(point=("chain", "draw")).transpose("point", ...)
    latents = [points[name].to_numpy() for name in new.latents]
    given = [leaf.variable for leaf in hardened.leaves.values() if leaf.name in data]
    inputs, first = [new.rows, *new.latents.values()], [number, *(x[0] for x in latents)]
    refuse_missing_levels([*predicted.values()], given, inputs, first)
    arrays = drawn(predicted, inputs, number, latents, random_seed)
    if of_formula:
        arrays = {name: array[:, :-1] for name, array in arrays.items()}
    found = _labelled(model, posterior, arrays)
    found.attrs |= {"declared_public": own} if own else {}
    return xr.DataTree.from_dict({"predictions": found})


def declared_in(idata: xr.DataTree) -> tuple[set[str], str | None]:
    """Return what a fit declared public, and the name of the codes of units."""
    attrs = idata["privacy"].attrs if "privacy" in idata.children else {}
    return {*json.loads(attrs.get("declared_public", "[]"))}, attrs.get("unit")


def _of_new_rows(hardened: HardenedModel, new: NewRecords, unit: str | None) -> dict[str, Any]:
    """Return the predictors of a model that was made on the new rows."""
    left_out = {unit, *new.observed, *(mask.leaf for mask in hardened.masks)}
    leaves = hardened.leaves.items()
    return {x.name: x.value for v, x in leaves if v in new.axes.axis and x.name not in left_out}


def drawn(
    predicted: Mapping[str, AnyVariable],
    inputs: list[AnyVariable],
    number: int,
    latents: list[np.ndarray],
    random_seed: int | None,
) -> dict[str, np.ndarray]:
    """Draw each variable once for every draw of the latents; shape (draws, ...)."""
    with without_c():
        draw = compile_random(
            inputs,
            list(predicted.values()),
            random_seed=random_seed,
            mode=PYTHON,
            on_unused_input="ignore",
        )
    try:
        draws = zip(*(draw(number, *point) for point in zip(*latents, strict=True)), strict=True)
    except IndexError:  # its text quotes a value
        raise ValueError(
            "data= holds an index beyond the array that it indexes. A level that was not in the "
            "fitted model has no posterior: leave its rows out."
        ) from None
    return {name: np.stack(each) for name, each in zip(predicted, draws, strict=True)}


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
                f"from the fitted records. If none does, say public=[{name!r}]; else compute it "
                "from the posterior with numbers that are public."
            )
        if name not in (new.observed | free):
            raise ValueError(
                f"var_names= names `{name}`, but what can be predicted for new records is "
                f"{sorted(new.observed | free)}; all else that may leave is in idata['posterior']."
            )
    return {name: (new.observed | free)[name] for name in names}


def refuse_own_functions(predicted: list[AnyVariable], public: set[str]) -> None:
    """Refuse draws by a Python function that may hold data, unless it was declared public."""
    own = unproved_in(predicted)
    for name in sorted(own.keys() - public):
        raise ValueError(
            f"The predictions are drawn by `{name}`, which may hold the fitted records (random= of "
            "a pm.CustomDist is such a function). Fit the distribution written with "
            f"dist={own[name]}."
        )
