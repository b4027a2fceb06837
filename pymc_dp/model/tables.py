"""Records in the containers that people keep them in: arrays, tables and chunks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import issparse

from pymc_dp.privacy.units import Blocks


def read_tables(data: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Cut all of ``data=`` into blocks where some of it is in Dask's chunks; read no values.

    Blocks of all names have the same lengths: arrays are cut as data frames are, or else as the
    first Dask array is.
    """
    columns = getattr(data, "get_columns", None)
    if columns is not None:  # a frame of polars, which is no mapping
        data = {column.name: column for column in columns()}
    if data is None or not hasattr(data, "keys"):
        return data
    # the Dask array inside an xarray.DataArray, and other containers as they are
    found = {
        name: x if hasattr(x, "to_delayed") or not _is_dask(x) else getattr(x, "data", x)
        for name, x in data.items()
    }
    chunked = {name: values for name, values in found.items() if _is_dask(values)}
    if not chunked:
        return found
    for name, values in chunked.items():
        _refuse_chunks(name, values)
    lengths = _lengths(chunked)
    return {name: _blocks(name, values, lengths) for name, values in found.items()}


def as_array(what: str, values: Any) -> Any:
    """Return a table as an array; memory maps, sparse matrices and blocks stay as they are.

    Missing values are refused. Those of arrays are looked for by nobody: a record with nan adds
    nothing to a release.
    """
    if np.ma.isMaskedArray(values):
        raise ValueError(
            f"{what} is a masked array, and a private fit takes no missing values: drop the "
            "incomplete records."
        )
    if isinstance(values, Blocks) or issparse(values):
        return values
    if isinstance(values, np.ndarray):
        return np.asarray(values)  # without what a class of its own does
    try:
        found = np.asarray(values)
    except Exception as error:  # its text may quote data
        raise ValueError(
            f"{what} is an object of type {type(values).__name__}, which is no array "
            f"({type(error).__name__}): give an array, or a table with a row for each record."
        ) from None
    if found.dtype.kind not in "biuf":
        raise ValueError(
            f"{what} holds {found.dtype} values, and a private fit takes numbers: convert columns "
            "of mixed types by astype(float), number categories, and drop records with missing "
            "values."
        )
    if has_missing(found):
        raise ValueError(
            f"{what} has missing values, and a private fit takes none: drop the incomplete records."
        )
    return found


def has_missing(values: Any) -> bool:
    """Whether some of the values are nan."""
    values = values.data if issparse(values) else values
    return bool(values.dtype.kind == "f" and np.isnan(values).any())


def _is_dask(values: Any) -> bool:
    graph = getattr(values, "__dask_graph__", None)
    return graph is not None and not isinstance(values, type) and graph() is not None


def _is_frame(values: Any) -> bool:
    return not hasattr(values, "chunks")


def _refuse_chunks(name: str, values: Any) -> None:
    if not (hasattr(values, "to_delayed") and getattr(values, "ndim", None)):
        raise ValueError(
            f"data=`{name}` is a Dask {type(values).__name__}: give a Dask array, or "
            "a column or columns of a Dask DataFrame."
        )
    if _is_frame(values):
        return
    if any(np.isnan(n) for n in values.chunks[0]):
        raise ValueError(
            f"data=`{name}` has chunks of unknown sizes: call its compute_chunk_sizes() first, or "
            "give the Dask DataFrame that it was made of."
        )
    if any(n > 1 for n in values.numblocks[1:]):
        raise ValueError(
            f"data=`{name}` is chunked along its columns, and records must be whole: call "
            f"{name}.rechunk({{1: -1}}) first."
        )


def _lengths(chunked: Mapping[str, Any]) -> tuple[int, ...]:
    """Find the lengths of the partitions; those of data frames are counted."""
    frames = {name: values for name, values in chunked.items() if _is_frame(values)}
    if not frames:
        return tuple(int(n) for n in next(iter(chunked.values())).chunks[0])
    counts = {name: _count(name, values) for name, values in frames.items()}
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
            f"data=`{name}` has a partition that cannot be read ({type(error).__name__}). Nothing "
            "was released."
        ) from None


def _parts(frame: Any) -> tuple[Any, ...]:
    # optimised, columns of one Parquet folder would be cut differently, and be read one by one
    return tuple(frame.to_delayed(optimize_graph=False))


def _blocks(name: str, values: Any, lengths: tuple[int, ...]) -> Blocks:
    if not _is_dask(values):
        values = as_array(f"data=`{name}`", values)
        values = values.tocsr() if issparse(values) else values
    elif _is_frame(values):
        return Blocks(_parts(values), lengths, *_kind_of_frame(name, values, lengths))
    if not values.shape or values.shape[0] != sum(lengths):
        raise ValueError(
            f"data=`{name}` has not as many records along axis 0 as the chunked data beside it: "
            "one record is one row of every array."
        )
    if not _is_dask(values):
        parts = tuple(
            values[end - n : end] for n, end in zip(lengths, np.cumsum(lengths), strict=True)
        )
    else:
        rows = values.rechunk({0: lengths, **dict.fromkeys(range(1, values.ndim), -1)})
        parts = tuple(rows.to_delayed().ravel())
    return Blocks(parts, lengths, tuple(map(int, values.shape)), np.dtype(values.dtype))


def _kind_of_frame(
    name: str, frame: Any, lengths: tuple[int, ...]
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and the dtype that a data frame has as an array."""
    kinds = [frame.dtype] if frame.ndim == 1 else list(frame.dtypes)
    for kind in kinds:
        if getattr(kind, "kind", "O") not in "biuf":
            raise ValueError(
                f"data=`{name}` holds {kind} values, and a private fit takes numbers: convert "
                "them first, number categories, and drop records with missing values."
            )
    width = () if frame.ndim == 1 else (len(kinds),)
    numpy_kinds = [getattr(kind, "numpy_dtype", kind) for kind in kinds]
    return (sum(lengths), *width), np.result_type(*numpy_kinds)
