"""Records in chunks, as lazy blocks of rows; nothing is read here."""

from typing import Any, NamedTuple, NoReturn

import numpy as np


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
