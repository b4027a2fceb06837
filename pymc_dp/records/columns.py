"""The private columns: the values behind the record leaves, for the wall alone."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from scipy.sparse import issparse

from pymc_dp.errors import NotSeparableError
from pymc_dp.records.axis import RecordAxes
from pymc_dp.records.batch import batch_dtype
from pymc_dp.records.harden import DataLeaf


class Column(NamedTuple):
    """The values of one leaf, with the records along ``axis``; ``dtype`` is what the graph takes.

    ``values`` may be a memory map or a SciPy sparse matrix.
    """

    values: Any
    axis: int
    dtype: str

    @property
    def rows(self) -> int:
        """The number of records."""
        return self.values.shape[self.axis]

    @property
    def width(self) -> int:
        """How many numbers one record has."""
        lengths = [n for k, n in enumerate(self.values.shape) if k != self.axis]
        return math.prod(lengths)

    def dummy(self, rows: int) -> np.ndarray:
        """Make up rows of zeros, to try a graph on before any data are touched."""
        shape = list(self.values.shape)
        shape[self.axis] = rows
        return np.zeros(shape, self.dtype)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Gather records as a dense array of the graph's dtype."""
        if hasattr(self.values, "toarray"):
            rows = self.values[indices].toarray()
        else:
            rows = np.take(self.values, indices, axis=self.axis)
        return np.ascontiguousarray(rows, dtype=self.dtype)


def make_columns(
    leaves: Mapping[str, DataLeaf], axes: RecordAxes, data: Mapping[str, Any] | None
) -> dict[str, Column]:
    """Pair every record leaf with its values, or with those that ``data`` gives in their place.

    Raises
    ------
    TypeError
        ``data`` is no mapping.
    ValueError
        ``data`` has an unknown name, leaves a record leaf as it was, or does not fit the model;
        or the leaves differ in their number of records.
    """
    if data is not None and not hasattr(data, "keys"):
        raise TypeError(
            f"data= must be a mapping from names to arrays, such as {{'X': X, 'y': y}}, not "
            f"{type(data).__name__}."
        )
    given = {name: leaf.value for name, leaf in leaves.items()} if data is None else dict(data)
    for name in given.keys() - leaves.keys():
        raise ValueError(
            f"data= names `{name}`, but the model's records are {sorted(leaves)}. "
            "Use the names of its pm.Data and observed variables."
        )
    for name in leaves.keys() - given.keys():
        hint = "" if leaves[name].declared else " It has no name: wrap it in pm.Data first."
        raise ValueError(
            f"data= replaces the model's records but leaves `{name}` as it was: "
            f"give it as well.{hint}"
        )
    for name, leaf in leaves.items():
        if data is not None and leaf.value.shape[axes.axis[leaf.variable]] == 1:
            raise ValueError(
                f"The model is built on one record of `{name}`, where nothing tells an array of "
                "one record from one that all records share: build it on two or more."
            )
    columns = {name: column(leaf, axes, given[name]) for name, leaf in leaves.items()}
    counts = {name: column.rows for name, column in columns.items()}
    if len(set(counts.values())) > 1:
        raise NotSeparableError(
            f"The records differ in number: {counts}. One record is one row of every observed "
            "variable; fit models of different records separately."
        )
    return columns


def column(leaf: DataLeaf, axes: RecordAxes, values: Any) -> Column:
    """Check that values fit the leaf they stand for, and pair them with its axis."""
    if np.ma.isMaskedArray(values):
        raise ValueError(
            f"data=`{leaf.name}` is a masked array, and a private fit takes no missing values: "
            "drop the incomplete records."
        )
    if not isinstance(values, np.ndarray) and not issparse(values):  # pandas gathers by label
        values = np.asarray(values)
    if issparse(values) and axes.axis[leaf.variable] != 0:
        raise ValueError(f"data=`{leaf.name}` is sparse, which needs the records along axis 0.")
    dtype = batch_dtype(leaf.variable.type.dtype)
    template = leaf.variable.type
    if len(values.shape) != template.ndim:
        raise ValueError(
            f"data=`{leaf.name}` has {len(values.shape)} dimensions, the model's has "
            f"{template.ndim}."
        )
    if not np.can_cast(values.dtype, dtype, casting="same_kind"):
        raise ValueError(
            f"data=`{leaf.name}` holds {values.dtype} values, but the model takes {dtype}: "
            "convert it first."
        )
    axis = axes.axis[leaf.variable]
    for k, length in enumerate(np.shape(leaf.value)):
        if k != axis and values.shape[k] != length:
            raise ValueError(
                f"data=`{leaf.name}` has length {values.shape[k]} along axis {k}, the model's "
                f"has {length}; only the records' axis {axis} may differ."
            )
    return Column(values, axis, dtype)


def refuse_centres(model: pm.Model, columns: Mapping[str, Column]) -> None:
    """Refuse numbers that a library took from the records before they were a graph.

    `pm.gp.HSGP` centres by the first inputs that it is given, and keeps the centre as a number.

    Raises
    ------
    NotSeparableError
        An array of one number is the mean or the middle of a column.
    """
    for rv in (*model.observed_RVs, *model.potentials):
        single = [
            float(variable.data.item())
            for variable in ancestors([rv])
            if isinstance(variable, Constant)
            and getattr(variable, "ndim", 0) > 0
            and np.size(variable.data) == 1
            and variable.dtype.startswith("float")
        ]
        for name, column in columns.items():
            if any(_is_centre(number, column) for number in single if number):
                raise NotSeparableError(
                    f"The likelihood of `{rv.name}` holds the centre of the records of `{name}` as "
                    "a number: every record moves it. For pm.gp.HSGP, call gp.prior_linearized "
                    "with a public grid first, which fixes the centre, and give L= as a public "
                    "number."
                )


def _is_centre(number: float, column: Column) -> bool:
    """Whether the number is the column's centre, or the reach of a column that was centred."""
    if issparse(column.values) or column.dtype != "float64":
        return False
    values = np.asarray(column.values, "float64")
    low, high = values.min(axis=column.axis), values.max(axis=column.axis)
    centres = np.append((low + high) / 2, values.mean(axis=column.axis))
    centred = np.isclose(low, -high, rtol=1e-12, atol=0) & (0 < high) & (high < number)
    return bool(np.isclose(centres, number, rtol=1e-9, atol=0).any() or centred.any())
