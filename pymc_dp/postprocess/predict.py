"""Predictions for new records, and nothing else.

PyMC's own posterior predictive sampling puts the observed data back into the tree.
"""

import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.distributions.shape_utils import change_dist_size
from pymc.pytensorf import compile as compile_random
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.random.basic import MultinomialRV
from pytensor.tensor.shape import SpecifyShape
from scipy.sparse import issparse

from pymc_dp.driver.fit import model_in_use
from pymc_dp.errors import PrivacyWarning
from pymc_dp.model.batch import before_casts, rebuilt, remake
from pymc_dp.model.columns import make_columns
from pymc_dp.model.compilation import PYTHON, without_c
from pymc_dp.model.graphs import AnyVariable, unproved_in
from pymc_dp.model.harden import DataLeaf, HardenedModel, harden
from pymc_dp.model.releasable import is_formula, known_parts
from pymc_dp.model.separation_proof import RecordAxes
from pymc_dp.model.split import (
    declare_public,
    named_dims,
    read_terms,
    simplify,
    split_by_record,
    unscaled,
    without_lengths,
)
from pymc_dp.tables.formula import formula_of, is_bambi, on_rows
from pymc_dp.tables.given import refuse_bad_indices


class NewRecords(NamedTuple):
    """What can be computed for new records, as graphs of the latents that all records share."""

    rows: AnyVariable  # the number of new records
    latents: dict[str, AnyVariable]
    observed: dict[str, AnyVariable]
    deterministics: dict[str, AnyVariable]  # those that go by records
    # those of them that hold a number, or an operation, that may come from the fitted records
    withheld: frozenset[str]
    axes: RecordAxes
    hardened: HardenedModel
    unit: str | None  # names the codes of units
    columns: dict[str, DataLeaf]  # arrays that go by records, but for masks and codes of units
    observes: dict[str, AnyVariable]  # what each observed variable observes


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
        Of a model of bambi: a data frame with the columns that its formula reads. Else new values
        by the names of ``pm.Data``, one row a new record, for every array of the records, except
        what is predicted. An observed variable that others read may be given too: they then read
        these values, and draws of it where they are nan or not given.
    rows : int, optional
        The number of new records of a model without such arrays.
    var_names : str or sequence of str, optional
        Observed variables, and deterministics that go by records. By default all of them that can
        be computed from ``data`` and hold no number that may come from the fitted records.
    public : str or sequence of str, optional
        Deterministics that go by records whose numbers do not come from the fitted records, such as
        ``170 + b * x``: they return these numbers exactly. What is declared is trusted, as in the
        fit, and listed in the attributes of the group.
    random_seed : int, optional

    Returns
    -------
    DataTree
        One group, ``predictions``: (chain, draw, ...) for every variable, on the model's own
        dimensions, with the posterior's labels of those that are not the records'. Latents of
        single records or units are drawn from their priors, anew for every draw; every new record
        is of another unit, unless ``data`` has the codes that ``unit=`` named.

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
    formula_of(model)  # refuses the model that bambi has made of one
    of_formula = data is not None and is_bambi(model)
    model = model if of_formula else model_in_use(model)
    declared, unit = declared_in(idata)
    own = sorted({public} if isinstance(public, str) else set(public))
    model, data = on_rows(model, data, unit) if of_formula else (model, data)
    # a data frame is no mapping, and its columns are
    data = {} if data is None else {name: data[name] for name in getattr(data, "columns", data)}
    new = with_declared(for_new_records(declare_public(harden(model), declared), unit), own)
    codes = None if unit is None else data.pop(unit, None)
    if of_formula:  # the model was made on the new rows
        data = {name: x.value for name, x in new.columns.items() if name not in new.observed}
    new = with_given(new, data)
    predicted = _chosen(new, var_names, data)
    refuse_own_functions(list(predicted.values()), declared)
    number = put_new_data(new, list(predicted.values()), data, rows)
    if not of_formula:
        warn_if_fitted(new, data)
    put_units_and_masks(new, codes, number)
    draws = draws_of(idata["posterior"], new.latents)
    refuse_another_model(new.latents, draws)
    try:
        refuse_bad_indices(new.hardened.model, None, unit)
    except ValueError as error:
        raise ValueError(
            f"data= has levels that no latent has. {error} What the fitted model lacks has no "
            "posterior: leave such rows out. If the model itself ignores what negative codes pick, "
            "write pm.math.maximum(code, 0) where it indexes."
        ) from None
    arrays = drawn(new, predicted, number, draws, random_seed)
    if of_formula:
        arrays = {name: array[:, :-1] for name, array in arrays.items()}
    labelled = _labelled(model, idata["posterior"].to_dataset(), arrays)
    labelled.attrs |= {"declared_public": own} if own else {}
    return xr.DataTree.from_dict({"predictions": labelled})


def draws_of(group: Any, names: Collection[str]) -> dict[str, np.ndarray]:
    """Return the draws of those variables that a group of a result holds, (points, ...) each."""
    own = {name: group[name] for name in names if name in group}
    points = {name: x.stack(point=("chain", "draw")) for name, x in own.items()}
    return {name: x.transpose("point", ...).to_numpy() for name, x in points.items()}


def refuse_another_model(latents: Collection[str], draws: Collection[str]) -> None:
    """Refuse a model with a latent that there are no draws of."""
    for name in latents:
        if name not in draws:
            raise ValueError(
                f"The posterior holds no `{name}` of its shape: give the model that was fitted."
            )


def declared_in(idata: xr.DataTree) -> tuple[set[str], str | None]:
    """Return what a fit declared public, and the name of the codes of units."""
    attrs = idata["privacy"].attrs if "privacy" in idata.children else {}
    return {*json.loads(attrs.get("declared_public", "[]"))}, attrs.get("unit")


def for_new_records(hardened: HardenedModel, unit: str | None) -> NewRecords:
    """Make the graphs anew, so that nothing remains of the fitted records' number."""
    model, count = hardened.model, pt.lscalar("count")
    observed = [rv for rv in model.observed_RVs if rv.name not in hardened.public]
    axes, own = _record_axes(hardened, unit)
    shared = [rv for rv in model.free_RVs if rv not in own]
    by_record = {unscaled(rv, rv): 0 for rv in observed} | own
    computed = [v for v in model.deterministics if (axes.axis.keys() | own) & set(ancestors([v]))]
    # all at once: cloning one variable clones those that it depends on
    every = [*by_record, *computed, *shared]
    new = dict(zip(every, without_lengths(every), strict=True))
    along = {new[variable]: axis for variable, axis in by_record.items()}
    latents = {str(rv.name): new[rv] for rv in shared}
    lengths = {n for latent in latents.values() for n in latent.type.shape if n is not None}
    leaves = {v: leaf for v, leaf in hardened.leaves.items() if v in axes.axis}
    known = known_parts(hardened, [*latents.values(), *(new[v] for v in own), *leaves], lengths)
    withheld = frozenset(
        str(variable.name)
        for variable in computed
        if unproved_in([new[variable]]).keys() - hardened.public
        or not is_formula(new[variable], known)
    )
    read = [new[unscaled(rv, rv)] for rv in observed] + [new[variable] for variable in computed]
    outputs = _resized(read, [*latents.values()], along, count)
    names = [str(rv.name) for rv in observed]
    graphs = dict(zip([*names, *(str(v.name) for v in computed)], outputs, strict=True))
    arrays = map(before_casts, simplify([model.rvs_to_values[rv] for rv in observed]))
    beside = {unit, *(mask.name for mask in hardened.masks.values())}
    return NewRecords(
        rows=count,
        latents=latents,
        observed={name: graphs.pop(name) for name in names},
        deterministics=graphs,
        withheld=withheld,
        axes=axes,
        hardened=hardened,
        unit=unit,
        columns={leaf.name: leaf for leaf in leaves.values() if leaf.name not in beside},
        observes=dict(zip(names, arrays, strict=True)),
    )


def _record_axes(
    hardened: HardenedModel, unit: str | None
) -> tuple[RecordAxes, dict[AnyVariable, int]]:
    """Find the axes of the records, also those of latents of single records or units."""
    model = hardened.model
    terms, _, prior = read_terms(hardened)
    for rv in model.observed_RVs:
        if isinstance(rv.owner.op, MultinomialRV):  # it draws as many trials as its input says
            trials = rv.owner.inputs[-2]
            if trials.ndim and not trials.type.broadcastable[0]:
                terms[f"trials of {rv.name}"] = trials
    split = split_by_record(hardened, terms, {}, prior, unit)
    return split.axes, {model[name]: split.axes.axis[value] for name, value in split.local.items()}


def _resized(
    variables: list[AnyVariable],
    latents: list[AnyVariable],
    along: Mapping[AnyVariable, int],
    count: AnyVariable,
) -> list[AnyVariable]:
    """Make every node anew, for ``count`` records, so that nothing remains of the old lengths."""
    # `along` maps the random variables that go by records to the axis along which they do
    renewed: dict[AnyVariable, AnyVariable] = {}
    for node in toposort(variables, blockers=latents):
        operands = [renewed.get(x, x) for x in node.inputs]
        if isinstance(node.op, SpecifyShape):
            renewed[node.outputs[0]] = operands[0]
        else:
            renewed.update(zip(node.outputs, remake(node, operands), strict=True))
        for rv in along.keys() & set(node.outputs):
            built: Any = renewed[rv]
            size = [built.shape[k] for k in range(built.ndim - built.owner.op.ndim_supp)]
            size[along[rv]] = count
            renewed[rv] = change_dist_size(built, size)
    return [renewed.get(variable, variable) for variable in variables]


def with_declared(new: NewRecords, names: Collection[str]) -> NewRecords:
    """Withhold no deterministic among ``names``, whose numbers are declared public."""
    hardened = new.hardened
    for name in names:
        if name not in new.deterministics:
            raise ValueError(
                f"public= names `{name}`, but the deterministics that go by records are "
                f"{sorted(new.deterministics)}."
            )
        read = {*ancestors([new.deterministics[name]])} - new.axes.axis.keys()
        for leaf in hardened.leaves.values():
            data = leaf.declared and leaf.variable.ndim and leaf.name not in hardened.public
            if data and leaf.variable in read:
                raise ValueError(
                    f"public= names the deterministic `{name}`, which reads {leaf}: a declaration "
                    "covers numbers, not data. Compute it from the posterior."
                )
    return new._replace(withheld=new.withheld.difference(names))


def with_given(new: NewRecords, names: Collection[str]) -> NewRecords:
    """Let what reads an observed variable read its new values, where these are among ``names``."""
    graphs: dict[str, Any] = new.observed | new.deterministics
    for observed, array in new.observes.items():
        if array in new.hardened.leaves and array.name in names:
            drawn: Any = graphs.pop(observed)
            given: Any = pt.cast(array, drawn.dtype)
            if drawn.dtype.startswith("float"):
                given = pt.switch(pt.isnan(given), drawn, given)
            read = rebuilt([*graphs.values()], {drawn: drawn.type.filter_variable(given)})
            graphs = {name: read.get(graph, graph) for name, graph in graphs.items()}
            graphs[observed] = drawn
    return new._replace(
        observed={name: graphs[name] for name in new.observed},
        deterministics={name: graphs[name] for name in new.deterministics},
    )


def _chosen(
    new: NewRecords, var_names: str | Sequence[str] | None, given: Collection[str]
) -> dict[str, AnyVariable]:
    """Return the graphs of the variables that are asked for, or of all that can be computed."""
    free = {name: g for name, g in new.deterministics.items() if name not in new.withheld}
    if var_names is None:
        lacking = {leaf.variable for name, leaf in new.columns.items() if name not in given}
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
        if name not in (known := new.observed | free):
            raise ValueError(
                f"var_names= names `{name}`, but what can be predicted for new records is "
                f"{sorted(known)}; all else that may leave is in idata['posterior']."
            )
    return {name: known[name] for name in names}


def refuse_own_functions(predicted: list[AnyVariable], public: set[str]) -> None:
    """Refuse draws by a Python function that may hold data, unless it was declared public."""
    own = unproved_in(predicted)
    for name in sorted(own.keys() - public):
        raise ValueError(
            f"The predictions are drawn by `{name}`, which may hold the fitted records (random= of "
            "a pm.CustomDist is such a function). Fit the distribution written with "
            f"dist={own[name]}."
        )


def put_new_data(
    new: NewRecords, predicted: list[AnyVariable], data: dict[str, Any], rows: int | None
) -> int:
    """Put new rows in place of the model's records; return their number."""
    read = set(ancestors(predicted))
    asked = {n: leaf for n, leaf in new.columns.items() if n in data or leaf.variable in read}
    columns = make_columns(asked, new.axes, data, {}, None)
    counts: set[Any] = ({rows} - {None}) | {each.rows for each in columns.values()}
    if len(counts) != 1:
        raise ValueError("Say how many rows= to predict: as many as data= has, where it has any.")
    for name, new_column in columns.items():
        variable: Any = asked[name].variable
        values, dtype = new_column.values, variable.type.dtype
        given = np.asarray(values.toarray() if issparse(values) else values)
        kept = given.astype(dtype)
        if kept.dtype.kind in "iu" and not np.array_equal(kept, given):  # they would wrap
            raise ValueError(
                f"data=`{name}` holds whole numbers beyond those of {dtype}, as which the model "
                "reads them: codes would be of other levels. Leave these rows out."
            )
        variable.set_value(kept)
    return int(counts.pop())


def warn_if_fitted(new: NewRecords, data: Mapping[str, Any]) -> None:
    """Warn where new values have the shapes of those of the model."""
    if data and all(np.shape(x) == np.shape(new.columns[name].value) for name, x in data.items()):
        warnings.warn(
            f"The new values of {', '.join(f'`{name}`' for name in data)} have the shapes of "
            "those that the model holds. If they are the fitted records, the predictions are "
            "computed from them again and are not covered by the guarantee: do not publish them.",
            PrivacyWarning,
            stacklevel=3,
        )


def put_units_and_masks(new: NewRecords, codes: Any, number: int) -> None:
    """Say that new records lack no entry, and which unit each is of: by default one of its own."""
    unit, own = new.unit, np.arange(number)
    for mask in new.hardened.masks.values():
        mask.variable.set_value(np.zeros((number, *mask.value.shape[1:]), bool))
    if codes is not None:
        labels, own = np.unique(codes, return_inverse=True)
        if labels.dtype.kind in "if" and labels.size and not labels.min() >= 0:
            raise ValueError(
                f"data=`{unit}` holds negative codes or nan, as pandas writes for missing labels: "
                "all these records would be of one unit. Give each of them a code of its own."
            )
    if np.shape(own) != (number,):
        raise ValueError(f"data=`{unit}` must be one code for each of the {number} new records.")
    for leaf in new.hardened.leaves.values():
        if leaf.name == unit:
            leaf.variable.set_value(own.astype(leaf.variable.type.dtype))


def drawn(
    new: NewRecords,
    graphs: Mapping[str, AnyVariable],
    number: int,
    draws: Mapping[str, np.ndarray],
    random_seed: int | None,
) -> dict[str, np.ndarray]:
    """Draw each graph once for every draw of the latents, for so many records; (draws, ...)."""
    with without_c():
        draw = compile_random(
            [new.rows, *new.latents.values()],
            list(graphs.values()),
            random_seed=random_seed,
            mode=PYTHON,
            on_unused_input="ignore",
        )
    points = zip(*(draws[name] for name in new.latents), strict=True)
    try:
        each = zip(*(draw(number, *point) for point in points), strict=True)
    except IndexError:  # its text quotes a value
        raise ValueError(
            "data= holds an index beyond the array that it indexes. A level that was not in the "
            "fitted model has no posterior: leave its rows out."
        ) from None
    return {name: np.stack(values) for name, values in zip(graphs, each, strict=True)}


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
    labelled = xr.Dataset(variables)
    others = posterior.drop_vars(["chain", "draw"], errors="ignore").coords.items()
    return labelled.assign_coords(
        {dim: x for dim, x in others if labelled.sizes.get(dim) == posterior.sizes.get(dim, -1)}
    )
