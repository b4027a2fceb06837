"""Synthetic data sets: records that a private posterior draws, column after column."""

import warnings
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph.traversal import ancestors

from pymc_dp.accounting.arguments import check_count
from pymc_dp.driver.setup import model_in_use
from pymc_dp.errors import PosteriorWarning
from pymc_dp.model.batch import rebuilt
from pymc_dp.model.dims import named_dims
from pymc_dp.model.graph_types import AnyVariable, pt
from pymc_dp.model.harden import HardenedModel, harden, is_structural
from pymc_dp.model.outcomes import before_casts
from pymc_dp.model.terms import declare_public, simplify
from pymc_dp.postprocess.new_data import draw_all_entries, put_units
from pymc_dp.postprocess.new_records import NewRecords, for_new_records
from pymc_dp.postprocess.predict import declared_in, drawn, refuse_own_functions
from pymc_dp.results.report import leaves_noise_out

SETS, RECORDS = "data_set", "record"


def synthesize(
    idata: xr.DataTree | Sequence[xr.DataTree],
    model: pm.Model,
    *,
    n: int,
    m: int = 20,
    random_seed: int | None = None,
) -> xr.DataTree:
    """Draw synthetic data sets from the posterior of a model that observes all of its columns.

    Parameters
    ----------
    idata : DataTree or sequence of DataTree
        A result of `pymc_dp.fit`; or several, each of a part of the model that shares no latents
        with the others, as `pymc_dp.Columns` fits them.
    model : pymc.Model
        The model that was fitted, such as ``Columns.model``. Each column is an observed
        variable. Where the distribution of one reads another, as the observed variable itself or as
        the ``pm.Data`` that it observes, it reads the synthetic values. The model's own data are
        not used.
    n : int
        The number of records of each data set. It need not be that of the fitted records.
    m : int, optional
        The number of data sets, each from another draw of the posterior.
    random_seed : int, optional

    Returns
    -------
    DataTree
        One group, ``synthetic``: every column with the dimensions ``data_set``, ``record`` and
        those that the model gives a record's part of it.

    Raises
    ------
    ValueError
        An array of the records is not modelled, columns read each other in a circle, a potential
        reads records, ``m`` is more than the draws of the posterior, or draws are made by a Python
        function that was not declared public.

    Warns
    -----
    PosteriorWarning
        The posterior leaves the privacy noise of its fit out, and so do intervals from these data.

    See Also
    --------
    pymc_dp.Columns : builds such a model from the types of a table's columns.
    pymc_dp.pool : puts the estimates from the data sets together.

    Notes
    -----
    **Privacy.** Post-processing of the posterior, for any ``n`` and ``m``, at no cost. Nothing that
    goes by the fitted records is read.

    Latents of single records or units are drawn from their priors; each record is of another unit.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> rng = np.random.default_rng(1)
    >>> age = rng.uniform(-1, 1, 2000)
    >>> voted = (rng.random(2000) < 0.5 + 0.3 * age).astype(int)
    >>> with pm.Model() as model:
    ...     x = pm.Normal("age", pm.Normal("mean"), pm.HalfNormal("sd"), observed=age)
    ...     logit_p = pm.Normal("a") + pm.Normal("b") * x
    ...     y = pm.Bernoulli("voted", logit_p=logit_p, observed=voted)
    >>> idata = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, progressbar=False)
    >>> found = pymc_dp.synthesize(idata, model, n=500, m=3)["synthetic"]
    >>> dict(found.sizes)
    {'data_set': 3, 'record': 500}
    """
    check_count("n", n)
    check_count("m", m)
    results = [idata] if isinstance(idata, xr.DataTree) else [*idata]
    _warn_if_too_narrow(results)
    declared, unit = _declared_in(results)
    hardened = declare_public(harden(model_in_use(model)), declared)
    new = for_new_records(hardened, unit)
    columns = _leaves(hardened, new, unit)
    graphs = _chained(new.observed, columns)
    refuse_own_functions([*graphs.values()], declared)
    _refuse_what_is_left(hardened, graphs, unit)
    put_units(hardened, unit, None, n)
    draw_all_entries(hardened, n)
    rng = np.random.default_rng(random_seed)
    points = _points(results, new, m, rng)
    seed = int(rng.integers(2**31))
    arrays = drawn(graphs, [new.rows, *new.latents.values()], n, points, seed)
    axes = {name: new.axes.axis[leaf] for name, leaf in columns.items()}
    variables = {name: (_dims(hardened, name, axes[name], x), x) for name, x in arrays.items()}
    return xr.DataTree.from_dict({"synthetic": xr.Dataset(variables)})


def _warn_if_too_narrow(results: Sequence[xr.DataTree]) -> None:
    private = [idata for idata in results if "privacy" in idata.children]
    if any(map(leaves_noise_out, private)):
        warnings.warn(
            "The posterior leaves the privacy noise of its fit out: intervals from synthetic data "
            "sets would be too narrow. method='dp_advi' has the noise in its posterior.",
            PosteriorWarning,
            stacklevel=3,
        )


def _declared_in(results: Sequence[xr.DataTree]) -> tuple[set[str], str | None]:
    found = [declared_in(idata) for idata in results]
    if len({unit for _, unit in found}) != 1:
        raise ValueError("idata= holds results of different units, or none: give fits of one unit.")
    return set.intersection(*(declared for declared, _ in found)), found[0][1]


def _leaves(hardened: HardenedModel, new: NewRecords, unit: str | None) -> dict[str, AnyVariable]:
    """Return the array that each column observes; refuse other arrays that go by records."""
    model = hardened.model
    columns = {}
    for rv in model.observed_RVs:
        if rv.name in new.observed:
            [value] = simplify([model.rvs_to_values[rv]])
            columns[str(rv.name)] = before_casts(value)
    by_record = {
        leaf.name: leaf for leaf in hardened.leaves.values() if leaf.variable in new.axes.axis
    }
    own = {unit, *(mask.leaf for mask in hardened.masks)}
    for name, leaf in by_record.items():
        if name not in own and leaf.variable not in columns.values():
            raise ValueError(
                f"{leaf} is read by the model, which does not say how it is distributed: a "
                "synthetic record needs a distribution of every column, given the columns before "
                "it. Give the model an observed variable for it, as pymc_dp.Columns does, or "
                "predict outcomes of public rows by pymc_dp.predict."
            )
    for name, variable in columns.items():
        if variable not in new.axes.axis:
            raise ValueError(
                f"`{name}` observes an expression, or what does not go by records: observe an "
                "array of the records by itself, and compute with the observed variable."
            )
    return columns


def _chained(
    graphs: dict[str, AnyVariable], columns: dict[str, AnyVariable]
) -> dict[str, AnyVariable]:
    """Put the draws of every column in the place of the array that it observes."""
    renewed: dict[AnyVariable, AnyVariable] = {}
    for name in _in_order(graphs, columns):
        renewed = rebuilt([graphs[name]], renewed)
        drawn_column: Any = renewed.get(graphs[name], graphs[name])
        renewed[columns[name]] = pt.cast(drawn_column, columns[name].type.dtype)
    return {name: renewed.get(graph, graph) for name, graph in graphs.items()}


def _in_order(graphs: dict[str, AnyVariable], columns: dict[str, AnyVariable]) -> list[str]:
    """Sort columns so that each comes after those that its distribution reads."""
    reads = {}
    for name, graph in graphs.items():
        found = {*ancestors([graph])}
        reads[name] = {
            other
            for other in graphs
            if columns[other] in found or (other != name and graphs[other] in found)
        }
    try:
        return list(TopologicalSorter(reads).static_order())
    except CycleError as error:
        names = ", ".join(f"`{name}`" for name in sorted({*error.args[1]}))
        raise ValueError(
            f"The distributions of {names} read each other, or their own values, in a circle: each "
            "column may read those before it, in one order of all columns."
        ) from None


def _refuse_what_is_left(
    hardened: HardenedModel, graphs: dict[str, AnyVariable], unit: str | None
) -> None:
    """Refuse graphs that still read an array of the model that is not public."""
    read = {*ancestors([*graphs.values()])}
    own = {unit, *(mask.leaf for mask in hardened.masks), *hardened.public}
    for leaf in hardened.leaves.values():
        private = leaf.declared or not is_structural(leaf.value)
        if leaf.variable in read and leaf.name not in own and private:
            raise ValueError(
                f"The columns read {leaf}, which was not declared public in the fit and is no "
                "column: synthetic data may read the posterior and public arrays alone."
            )
    arrays = {leaf.variable for leaf in hardened.leaves.values() if leaf.name not in own}
    for potential in hardened.model.potentials:
        if arrays.intersection(ancestors([potential])):
            raise ValueError(
                f"The potential `{potential.name}` reads records, and has a density alone: nothing "
                "can be drawn from it. Write it as an observed variable."
            )


def _points(
    results: Sequence[xr.DataTree], new: NewRecords, m: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Choose different draws of the posterior, of each result by itself."""
    found: dict[str, np.ndarray] = {}
    for idata in results:
        posterior = idata["posterior"].to_dataset()
        points = posterior[[name for name in new.latents if name in posterior]]
        points = points.stack(point=("chain", "draw")).transpose("point", ...)
        number = points.sizes["point"]
        if m > number:
            raise ValueError(
                f"m={m} data sets need as many draws of the posterior, which has {number}: fit "
                "with more draws=."
            )
        chosen = points.isel(point=rng.choice(number, m, replace=False))
        found |= {str(name): array.to_numpy() for name, array in chosen.items()}
    for name in new.latents:
        if name not in found:
            raise ValueError(f"The posterior holds no `{name}`: give the model that was fitted.")
    return [found[name] for name in new.latents]


def _dims(hardened: HardenedModel, name: str, axis: int, array: np.ndarray) -> tuple[str, ...]:
    """Name the dimensions of a column, whose records go along ``axis`` of each data set."""
    dims = [*named_dims(hardened.model.named_vars_to_dims.get(name), name, array.ndim - 1)]
    dims[axis] = RECORDS
    return (SETS, *dims)
