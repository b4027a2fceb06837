"""The private columns: from the containers that people keep records in to what the wall reads.

The column of units is private, too, and outside the model's graph.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.shape import Shape, Shape_i
from scipy.sparse import issparse

from pymc_dp.errors import NotSeparableError
from pymc_dp.model.batch import batch_dtype
from pymc_dp.model.graphs import AnyVariable
from pymc_dp.model.harden import DataLeaf, HardenedModel
from pymc_dp.model.separation_proof import CENSORED, RecordAxes
from pymc_dp.model.split import is_entry_of_unit, without_lengths
from pymc_dp.privacy.private_data import (
    Blocks,
    Column,
    Columns,
    Partition,
    UnitBlocks,
    Units,
    record_shape,
    units_of,
)
from pymc_dp.privacy.wall import in_partitions

MISSING = ", and a private fit takes none: drop the incomplete records."
NUMBERS = (
    "and a private fit takes numbers: convert columns of mixed types by astype(float), number "
    "categories, and drop records with missing values."
)


def read_tables(data: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Cut all of ``data=`` into blocks where some of it is in Dask's chunks; read no values."""
    columns = getattr(data, "get_columns", None)
    if columns is not None:  # a frame of polars, which is no mapping
        data = {column.name: column for column in columns()}
    if data is None or not hasattr(data, "keys"):
        return data
    # the Dask array inside an xarray.DataArray, and other containers as they are
    tables = {
        name: x if hasattr(x, "to_delayed") or not _is_dask(x) else getattr(x, "data", x)
        for name, x in data.items()
    }
    chunked = {name: values for name, values in tables.items() if _is_dask(values)}
    if not chunked:
        return tables
    for name, values in chunked.items():
        _refuse_chunks(name, values)
    lengths = _lengths(chunked)
    return {name: _blocks(name, values, lengths) for name, values in tables.items()}


def as_array(what: str, values: Any) -> Any:
    """Return a table as an array; memory maps, sparse matrices and blocks stay as they are."""
    if np.ma.isMaskedArray(values):
        raise ValueError(f"{what} has missing values under its mask{MISSING}")
    if isinstance(values, Blocks) or issparse(values):
        return values
    if isinstance(values, np.ndarray):
        return np.asarray(values)  # without what a class of its own does
    try:
        array = np.asarray(values)
    except Exception as error:  # its text may quote data
        raise ValueError(
            f"{what} is an object of type {type(values).__name__}, which is no array "
            f"({type(error).__name__}): give an array, or a table with a row for each record."
        ) from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what} holds {array.dtype} values, {NUMBERS}")
    if has_missing(array):
        raise ValueError(f"{what} has missing values{MISSING}")
    return array


def has_missing(values: Any) -> bool:
    """Whether some of the values are nan."""
    values = values.data if issparse(values) else values
    return bool(values.dtype.kind == "f" and np.isnan(values).any())


def _is_dask(values: Any) -> bool:
    graph = getattr(values, "__dask_graph__", None)
    return graph is not None and not isinstance(values, type) and graph() is not None


def _refuse_chunks(name: str, values: Any) -> None:
    if not (hasattr(values, "to_delayed") and getattr(values, "ndim", None)):
        raise ValueError(
            f"data=`{name}` is a Dask {type(values).__name__}: give arrays, or columns of a frame."
        )
    if hasattr(values, "chunks") and any(np.isnan(n) for n in values.chunks[0]):
        raise ValueError(
            f"data=`{name}` has chunks of unknown sizes: call its compute_chunk_sizes() first, or "
            "give the Dask DataFrame that it was made of."
        )


def _lengths(chunked: Mapping[str, Any]) -> tuple[int, ...]:
    """Find the lengths of the partitions; those of data frames are counted."""
    counts = {
        k: _count(k, values) for k, values in chunked.items() if not hasattr(values, "chunks")
    }
    if not counts:
        return tuple(int(n) for n in next(iter(chunked.values())).chunks[0])
    first, *others = counts
    for name in others:
        if counts[name] != counts[first]:
            raise ValueError(
                f"The partitions of data=`{name}` and data=`{first}` differ in their lengths: take "
                "both from one Dask DataFrame."
            )
    return counts[first]


def _count(name: str, frame: Any) -> tuple[int, ...]:
    import dask

    try:
        return tuple(int(n) for n in dask.compute(*map(dask.delayed(len), _parts(frame))))
    except Exception as error:  # of what reads the rows; its text may quote data
        raise ValueError(
            f"data=`{name}` has a partition that cannot be read ({type(error).__name__})."
        ) from None


def _parts(frame: Any) -> tuple[Any, ...]:
    # optimised, columns of one Parquet folder would be cut differently, and be read one by one
    return tuple(frame.to_delayed(optimize_graph=False))


def _blocks(name: str, values: Any, lengths: tuple[int, ...]) -> Blocks:
    is_dask = _is_dask(values)
    if not is_dask:
        values = as_array(f"data=`{name}`", values)
        values = values.tocsr() if issparse(values) else values
    elif not hasattr(values, "chunks"):
        return _blocks_of_frame(name, values, lengths)
    if not values.shape or values.shape[0] != sum(lengths):
        raise ValueError(
            f"data=`{name}` has not as many records along axis 0 as the chunked data beside it: "
            "one record is one row of every array."
        )
    ends = np.cumsum(lengths)
    if is_dask:
        rows = values.rechunk({0: lengths, **dict.fromkeys(range(1, values.ndim), -1)})
        parts = tuple(rows.to_delayed().ravel())
    else:
        parts = tuple(values[end - n : end] for n, end in zip(lengths, ends, strict=True))
    return Blocks(parts, lengths, tuple(map(int, values.shape)), np.dtype(values.dtype))


def _blocks_of_frame(name: str, frame: Any, lengths: tuple[int, ...]) -> Blocks:
    """Return a data frame with the shape and the dtype that it has as an array."""
    kinds = [frame.dtype] if frame.ndim == 1 else list(frame.dtypes)
    for kind in kinds:
        if getattr(kind, "kind", "O") not in "biuf":
            raise ValueError(f"data=`{name}` holds {kind} values, {NUMBERS}")
    shape = (sum(lengths), *([] if frame.ndim == 1 else [len(kinds)]))
    dtype = np.result_type(*(getattr(kind, "numpy_dtype", kind) for kind in kinds))
    return Blocks(_parts(frame), lengths, shape, dtype)


def make_columns(
    leaves: Mapping[str, DataLeaf],
    axes: RecordAxes,
    data: Mapping[str, Any] | None,
    beside: Columns,
    units: Units | UnitBlocks | None,
) -> Columns:
    """Pair every record leaf with its values, or with those that ``data`` gives in their place."""
    if data is not None and not hasattr(data, "keys"):
        raise TypeError(
            f"data= must be a mapping, such as {{'X': X, 'y': y}}, not {type(data).__name__}."
        )
    given = {name: leaf.value for name, leaf in leaves.items()} if data is None else dict(data)
    for name in given.keys() - leaves.keys():
        raise ValueError(
            f"data= names `{name}`, but the model's records are {sorted(leaves)}. "
            "Use the names of its pm.Data and observed variables; a formula has its own data frame."
        )
    for name in leaves.keys() - given.keys():
        unnamed = f" It is {leaves[name]}: give it a name by pm.Data('x', ...) first."
        raise ValueError(
            f"data= lacks `{name}`, which the model reads for each record: give it as well."
            f"{'' if leaves[name].declared else unnamed}"
        )
    built = {name: leaf.value.shape[axes.axis[leaf.variable]] for name, leaf in leaves.items()}
    for name in [name for name, rows in built.items() if rows == 1]:
        raise NotSeparableError(
            f"`{name}` has a single row, and the array of one record looks like one that all "
            "records share. If its values are public, name it in public=[...]; if they are "
            "private, build the model on two records or more."
        )
    columns = {name: column(leaf, axes, given[name]) for name, leaf in leaves.items()}
    columns |= beside
    counts = {name: x.rows for name, x in columns.items()}
    if 0 in (*built.values(), *counts.values()):
        raise NotSeparableError("The data have no records: give two or more.")
    counts |= {units.name: units.records} if units else {}
    if len(set(counts.values())) > 1:
        raise NotSeparableError(
            f"The records differ in number: {counts}. One record is one row of all variables: "
            f"stack groups in one, with an index of the group; fit others separately ({CENSORED})."
        )
    return columns


def refuse_missing(columns: Columns) -> None:
    """Read all records in blocks once: what cannot be read must not cost a release."""
    if not any(isinstance(column.values, Blocks) for column in columns.values()):
        return
    for name in sorted({name for names in in_partitions(columns).read(_missing) for name in names}):
        raise ValueError(f"data=`{name}` has missing values in one of its partitions{MISSING}")


def _missing(partition: Partition) -> list[str]:
    return [name for name, column in partition.columns.items() if has_missing(column.values)]


def column(leaf: DataLeaf, axes: RecordAxes, values: Any) -> Column:
    """Check that values fit the leaf they stand for, and pair them with its axis."""
    what, template, axis = f"data=`{leaf.name}`", leaf.variable.type, axes.axis[leaf.variable]
    values, dtype = as_array(what, values), batch_dtype(template.dtype)
    if (issparse(values) or isinstance(values, Blocks)) and axis != 0:
        kind = "sparse" if issparse(values) else "chunked"
        raise ValueError(f"{what} is {kind}, which needs the records along axis 0.")
    shape, given = record_shape(leaf.value.shape, axis), values.shape
    given = record_shape(given, axis) if axis < len(given) else given
    if given != shape:
        raise ValueError(
            f"{what} has the shape {given}, the model's has {shape}: only the number of records, "
            "which stands as None, may differ."
        )
    if not np.can_cast(values.dtype, dtype, casting="same_kind"):
        raise ValueError(
            f"{what} holds {values.dtype} values, but the model takes {dtype}: convert it first."
        )
    return Column(values, axis, dtype)


def read_units(
    model: pm.Model, name: str, data: Mapping[str, Any] | None, public: Iterable[str]
) -> Units | UnitBlocks:
    """Sort the records by unit: the codes of a `pm.Data` that only picks latents of units."""
    if not isinstance(name, str):
        raise TypeError(
            f"unit= must be the name of a pm.Data, not {type(name).__name__}: put the codes into "
            "the model by pm.Data(name, codes), and give that name."
        )
    how_to_add = "pm.Data(name, codes), equal for records of one person, or (1|name) in the formula"
    column, values = private_column(model, "unit", name, data, public, how_to_add)
    _refuse_read(model, column)
    if not isinstance(values, Blocks):
        return units_of(_codes(values, name), name)
    # all records of a unit must lie in one partition
    distinct = in_partitions({name: Column(values, 0, "int64")}).read(partial(_distinct, name))
    every = np.concatenate(distinct)
    if len(np.unique(every)) < len(every):
        raise ValueError(
            f"unit=`{name}` has persons whose records lie in several partitions: sort the records "
            f"by `{name}` and cut between persons, as dask.dataframe's set_index does."
        )
    return UnitBlocks(name, values, tuple(len(part) for part in distinct))


def private_column(
    model: pm.Model,
    keyword: str,
    name: str,
    data: Mapping[str, Any] | None,
    public: Iterable[str],
    how_to_add: str,
) -> tuple[AnyVariable, Any]:
    """Return the private `pm.Data` that a keyword names, and its values."""
    columns = {variable.name: variable for variable in model.data_vars}
    if name not in columns:
        raise ValueError(
            f"{keyword}= names `{name}`, which is no pm.Data of the model; it has "
            f"{sorted(columns)}. Add {how_to_add}."
        )
    if name in public:
        raise ValueError(
            f"public= names `{name}`, but {keyword}= needs it private: its values are those of "
            "records, which the fit protects. Leave it out of public=."
        )
    if data is not None and name not in data:
        raise ValueError(
            f"data= leaves `{name}`, which {keyword}= names, as it was: give it as well."
        )
    return columns[name], columns[name].get_value() if data is None else data[name]


def _distinct(name: str, partition: Partition) -> np.ndarray:
    return np.unique(_codes(partition.columns[name].values, name))


def _codes(values: Any, name: str) -> np.ndarray:
    """Check codes; those of a mask, of floats with nan, and of text are no whole numbers."""
    codes, kind = np.asarray(values), type(values).__name__
    if np.ma.isMaskedArray(values) or codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise ValueError(
            f"unit=`{name}` is a {kind} of {codes.dtype} values with {codes.ndim} axes, and needs "
            "one whole number a record, without a mask: number the persons by pandas.factorize, "
            "after dropping records of nobody."
        )
    codes = codes.astype("int64")
    if (codes < 0).any():
        raise ValueError(
            f"unit=`{name}` has negative codes, as pandas writes for missing labels: drop records "
            "of nobody, and number the persons from 0."
        )
    return codes


def _refuse_read(model: pm.Model, column: AnyVariable) -> None:
    """Refuse a model that computes with the codes; how many there are is another matter."""
    for name in readers(model, column, is_length_of, is_entry_of_unit):
        raise NotSeparableError(
            f"`{name}` reads `{column.name}`, which unit= names, other than as the index of a "
            f"latent with an entry for every unit. Write x[{column.name}] for a latent x, or "
            f"index by public groups, and leave `{column.name}` out of the rest of the model."
        )
    for name in readers(model, column, is_entry_of_unit):
        if name in [rv.name for rv in model.free_RVs]:
            raise NotSeparableError(
                f"`{name}` takes its length from `{column.name}`, which unit= names: make "
                f"`{column.name}` after the model's other data, or without dims."
            )


def readers(
    model: pm.Model, column: AnyVariable, *allowed: Callable[[AnyVariable, AnyVariable], bool]
) -> Iterator[str]:
    """Yield the variables that compute with a column, other than by what is allowed."""
    variables = (*model.basic_RVs, *model.deterministics, *model.potentials)
    for variable in variables:
        graphs = [variable, model.rvs_to_values.get(variable, variable)]
        known = [v for v in ancestors(graphs) if any(one(v, column) for one in allowed)]
        if column in set(ancestors(graphs, blockers=known)):
            yield variable.name


def is_length_of(variable: AnyVariable, column: AnyVariable) -> bool:
    """Whether a variable is the number of a column's entries."""
    return isinstance(variable.owner_op, Shape | Shape_i) and variable.owner.inputs[0] is column


def without_unit(
    terms: Mapping[str, AnyVariable], hardened: HardenedModel, name: str
) -> dict[str, AnyVariable]:
    """Let terms of the likelihood take their length from what they observe."""
    [column] = [variable for variable, leaf in hardened.leaves.items() if leaf.name == name]
    renewed = dict(terms)
    for rv in hardened.model.observed_RVs:
        if rv.name in terms and column in set(ancestors([terms[rv.name]])):
            [value] = without_lengths([hardened.model.rvs_to_values[rv]])
            lengths = [v for v in ancestors([terms[rv.name]]) if is_length_of(v, column)]
            own = {v: v.owner.op(value) for v in lengths}
            renewed[rv.name] = clone_replace(terms[rv.name], own, rebuild_strict=False)
    return renewed
