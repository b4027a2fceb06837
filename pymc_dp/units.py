"""The privacy unit: which records belong to one person.

Neighbours then differ in all records of one unit. The wall draws whole units and clips the sum of
a unit's records, so that a person with many records has no more say than one with few.
"""

import re
from typing import NamedTuple

import numpy as np

# numbers in the rows whose units are summed in one go: few calls, and little work on zeros
AT_ONCE = 2**15
SUFFIX = re.compile(r"_(id|idx|index|code)$")


class Units(NamedTuple):
    """The records by unit; private, for the wall alone.

    Attributes
    ----------
    name : str
        The ``pm.Data`` that holds the codes.
    order : ndarray, shape (records,)
        Row numbers, those of one unit side by side.
    starts : ndarray, shape (units + 1,)
        Where in ``order`` each unit starts, and where the last one ends.
    """

    name: str
    order: np.ndarray
    starts: np.ndarray

    @property
    def number(self) -> int:
        """The number of units."""
        return len(self.starts) - 1

    @property
    def codes(self) -> np.ndarray:
        """The unit of every record, numbered from 0."""
        codes = np.empty_like(self.order)
        codes[self.order] = np.repeat(np.arange(self.number), np.diff(self.starts))
        return codes

    def rows(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of some units, and whose each is, as a place in ``chosen``."""
        lengths = self.starts[chosen + 1] - self.starts[chosen]
        owner = np.repeat(np.arange(len(chosen)), lengths)
        shift = self.starts[chosen] - (np.cumsum(lengths) - lengths)
        return self.order[np.arange(len(owner)) + shift[owner]], owner

    def cut(self, chosen: np.ndarray, width: int) -> list[np.ndarray]:
        """Cut drawn units into those that are summed in one go; a row has ``width`` numbers.

        >>> units = units_of(np.array([0, 0, 1, 1, 2]), "id")
        >>> [part.tolist() for part in units.cut(np.arange(3), AT_ONCE // 4)]
        [[0, 1], [2]]
        """
        most = max(1, AT_ONCE // max(1, width))
        ends = np.cumsum(self.starts[chosen + 1] - self.starts[chosen])
        parts = np.split(chosen, 1 + np.flatnonzero(np.diff((ends - 1) // most)))
        return [part for part in parts if len(part)]


def units_of(codes: np.ndarray, name: str) -> Units:
    """Sort records by unit, whose codes are at least 0.

    >>> units_of(np.array([7, 3, 7]), "id").starts
    array([0, 1, 3])
    """
    order = np.argsort(codes, kind="stable")
    firsts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    return Units(name, order, np.append(firsts, len(codes)))


def spoken(unit: str | None) -> str:
    """Name in words what a guarantee is for.

    >>> spoken("subject_id"), spoken("household"), spoken(None)
    ('subject', 'household', 'record')
    """
    return "record" if unit is None else SUFFIX.sub("", unit)
