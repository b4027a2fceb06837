"""The private arrays, from the moment they leave the model, and the privacy unit of their records.

With a unit, neighbouring data sets differ in all records of one person, say. The wall draws whole
units and clips the sum of a unit's records, so that its bound holds whatever their number. Records
in chunks are lazy blocks of rows; nothing is read here. `PrivateData` alone holds the arrays: other
code reads their public description, `ColumnSpec`.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import numpy as np
from scipy.sparse import issparse


def opaque[Kind](kind: Kind) -> Kind:
    """Print objects of a class as its name alone."""
    of_class: Any = kind
    of_class.__repr__ = lambda self: f"<{type(self).__name__}>"
    return kind


def secret[Kind](kind: Kind) -> Kind:
    """Print objects of a class as its name alone, and refuse to pickle or copy them."""

    def refuse(self: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds secrets and must not be pickled or copied.")

    of_class: Any = opaque(kind)
    of_class.__reduce__ = refuse
    return kind


@secret
class Units(NamedTuple):
    """The records by unit; private, for the wall alone."""

    name: str  # the ``pm.Data`` that holds the codes
    order: np.ndarray  # shape (records,): row numbers, those of one unit side by side
    # shape (units + 1,): where in ``order`` each unit starts, and where the last one ends
    starts: np.ndarray

    @property
    def number(self) -> int:
        """The number of units."""
        return len(self.starts) - 1

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self.order)

    @property
    def codes(self) -> np.ndarray:
        """The unit of every record, numbered from 0."""
        codes = np.empty_like(self.order)
        codes[self.order] = np.repeat(np.arange(self.number), np.diff(self.starts))
        return codes

    def rows(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of some units, and the position in ``chosen`` of each row's unit."""
        lengths = self.starts[chosen + 1] - self.starts[chosen]
        owner = np.repeat(np.arange(len(chosen)), lengths)
        shift = self.starts[chosen] - (np.cumsum(lengths) - lengths)
        return self.order[np.arange(len(owner)) + shift[owner]], owner

    def cut(self, chosen: np.ndarray, most: int) -> list[np.ndarray]:
        """Split drawn units into groups of about ``most`` rows, but none within a unit.

        >>> units = units_of(np.array([0, 0, 1, 1, 2]), "id")
        >>> [part.tolist() for part in units.cut(np.arange(3), 4)]
        [[0, 1], [2]]
        """
        ends = np.cumsum(self.starts[chosen + 1] - self.starts[chosen])
        parts = np.split(chosen, 1 + np.flatnonzero(np.diff((ends - 1) // most)))
        return [part for part in parts if len(part)]


def units_of(codes: np.ndarray, name: str) -> Units:
    """Sort records by unit, whose codes are at least 0."""
    codes = np.asarray(codes).astype("int64")  # others are compared as floats: 2^60 + 1 is 2^60
    order = np.argsort(codes, kind="stable")
    firsts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    return Units(name, order, np.append(firsts, len(codes)))


@secret
class Blocks(NamedTuple):
    """An array that is cut into blocks along axis 0, one for each partition."""

    parts: tuple[Any, ...]  # Dask's delayed blocks, or arrays
    lengths: tuple[int, ...]  # how many rows each has
    shape: tuple[int, ...]  # of the whole
    dtype: np.dtype[Any]


@secret
class UnitBlocks(NamedTuple):
    """The records by unit, where all records of a unit lie in one partition."""

    name: str  # the ``pm.Data`` that holds the codes
    codes: Blocks
    numbers: tuple[int, ...]  # of units in each partition

    @property
    def number(self) -> int:
        """The number of units."""
        return sum(self.numbers)

    @property
    def records(self) -> int:
        """The number of records."""
        return self.codes.shape[0]


def record_shape(shape: tuple[int, ...], axis: int) -> tuple[int | None, ...]:
    """Return a shape with None in place of the number of records."""
    return (*shape[:axis], None, *shape[axis + 1 :])


class ColumnSpec(NamedTuple):
    """The public description of a column: neither its values nor its number of records."""

    shape: tuple[int | None, ...]  # lengths, with None for the axis of the records
    dtype: str  # of the graph's input

    @property
    def axis(self) -> int:
        """The axis of the records."""
        return self.shape.index(None)

    @property
    def width(self) -> int:
        """The number of values in one record."""
        return math.prod(length for length in self.shape if length is not None)

    def shape_of(self, rows: int) -> tuple[int, ...]:
        """Return the shape of a batch of ``rows`` records."""
        return tuple(rows if length is None else length for length in self.shape)

    def zeros(self, rows: int) -> np.ndarray:
        """Return artificial records of zeros, to try a graph on before any data are read."""
        return np.zeros(self.shape_of(rows), self.dtype)


@secret
class Column(NamedTuple):
    """The values of one leaf of the model's graph."""

    values: Any  # an array, a memory map, a SciPy sparse matrix or `Blocks`
    axis: int  # of the records
    dtype: str  # of the graph's input

    @property
    def rows(self) -> int:
        """The number of records."""
        return int(self.values.shape[self.axis])

    @property
    def spec(self) -> ColumnSpec:
        """The public description of the column."""
        return ColumnSpec(record_shape(self.values.shape, self.axis), self.dtype)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Gather records as a dense array of the graph's dtype."""
        places: np.ndarray | slice = indices
        if len(indices) and (np.diff(indices) == 1).all():  # arrays in any order read less so
            places = slice(int(indices[0]), int(indices[-1]) + 1)
        if hasattr(self.values, "toarray"):
            rows = self.values[places].toarray()
        elif isinstance(places, slice):
            rows = self.values[(slice(None),) * self.axis + (places,)]
        else:
            rows = np.take(self.values, places, axis=self.axis)
        # a copy: nothing outside can change the records
        return np.array(rows, self.dtype, order="C")


Columns = Mapping[str, Column]  # by the name of the leaf


@secret
class PrivateData:
    """Hold the private columns by name, and which records belong to one privacy unit.

    Only `open_private` reads them; printing, pickling, copying and iteration reveal nothing or are
    refused. ``spec`` describes each column, and ``unit`` is the name of the privacy unit, None
    where it is the record; ``partitions`` says how many there are. Gathers no rows of every column
    once, so that unreadable data raise ValueError before any budget is spent.
    """

    __slots__ = ("__columns", "__units", "partitions", "spec", "unit")

    def __init__(self, columns: Columns, units: Units | UnitBlocks | None = None) -> None:
        readable = {name: _readable(name, column) for name, column in columns.items()}
        self.__columns = MappingProxyType(readable)
        self.__units = units
        self.spec = MappingProxyType({name: column.spec for name, column in readable.items()})
        self.unit = units and units.name
        values = next(iter(columns.values())).values
        self.partitions = len(values.parts) if isinstance(values, Blocks) else 1

    __iter__ = None


@secret
class Partition(NamedTuple):
    """The content of a `PrivateData`, or those of its records that lie in one place."""

    columns: Columns
    units: Any  # `Units`, or `UnitBlocks` where columns are in blocks; None where records are units

    @property
    def number(self) -> int:
        """The number of records, or of units."""
        records = next(iter(self.columns.values())).rows
        return records if self.units is None else int(self.units.number)

    @property
    def width(self) -> int:
        """The number of values in a record."""
        return sum(column.spec.width for column in self.columns.values())

    def take(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Read some rows of every column."""
        return {name: column.take(rows) for name, column in self.columns.items()}


def open_private(data: PrivateData) -> Partition:
    """Open private data: for the wall, and for audits, which make their data up."""
    columns, units = data._PrivateData__columns, data._PrivateData__units  # type: ignore[attr-defined]
    return Partition(columns, units)


def joined(each: Mapping[str, PrivateData]) -> PrivateData:
    """Put the columns of several models of the same records side by side, as ``model/column``."""
    opened = {name: open_private(data) for name, data in each.items()}
    columns = {f"{name}/{k}": x for name, found in opened.items() for k, x in found.columns.items()}
    if len({str(getattr(x.values, "lengths", x.rows)) for x in columns.values()}) > 1:
        raise ValueError("The models differ in their number of records, or in its chunks.")
    return PrivateData(columns, next(iter(opened.values())).units)


def _readable(name: str, column: Column) -> Column:
    """Convert sparse matrices to the format that gathers rows, and gather no rows once."""
    values = column.values
    if isinstance(values, Blocks):  # read before, partition by partition
        return column
    why = ""
    try:
        if issparse(values) and values.format != "csr":
            column = column._replace(values=values.tocsr())
        none = column.take(np.arange(0))
        if none.shape == column.spec.shape_of(0) and none.dtype == column.dtype:
            return column
    except Exception as error:  # its text may quote data
        why = f" ({type(error).__name__})"
    raise ValueError(
        f"data=`{name}` is an object of type {type(column.values).__name__}, from which records "
        f"cannot be gathered as {column.dtype}: give a NumPy array, a memory map, a SciPy sparse "
        f"matrix or a Dask array{why}"
    )
