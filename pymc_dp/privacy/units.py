"""The privacy unit: which records belong to one person; and records in blocks.

Neighbouring data sets then differ in all records of one unit. The wall draws whole units and clips
the sum of a unit's records, so that its bound holds whatever their number.

Records in chunks are lazy blocks of rows, with or without units; nothing is read here.
"""

from typing import Any, NamedTuple, NoReturn

import numpy as np


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

    def __repr__(self) -> str:
        return "<Units>"


def units_of(codes: np.ndarray, name: str) -> Units:
    """Sort records by unit, whose codes are at least 0.

    >>> units_of(np.array([7, 3, 7]), "id").starts
    array([0, 1, 3])
    """
    codes = np.asarray(codes).astype("int64")  # others are compared as floats: 2^60 + 1 is 2^60
    order = np.argsort(codes, kind="stable")
    firsts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    return Units(name, order, np.append(firsts, len(codes)))


class Blocks(NamedTuple):
    """An array that is cut into blocks along axis 0, one for each partition."""

    parts: tuple[Any, ...]  # Dask's delayed blocks, or arrays
    lengths: tuple[int, ...]  # how many rows each has
    shape: tuple[int, ...]  # of the whole
    dtype: np.dtype[Any]

    def __repr__(self) -> str:
        return f"Blocks({self.dtype})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Blocks hold private data and must not be pickled or copied.")


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

    def __repr__(self) -> str:
        return f"UnitBlocks({self.name!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Blocks hold private data and must not be pickled or copied.")
