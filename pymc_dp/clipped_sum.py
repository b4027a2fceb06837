"""What the wall sums: the data, cut into parts, each record or each unit clipped by itself.

Two values with one face. The wall holds one of them, and no other code makes or asks them: they
hold data.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pymc_dp.contributions import Contribution
from pymc_dp.contributions.contribution import Batch, row_norms
from pymc_dp.records import Column
from pymc_dp.units import Units

# weights aim this much below the clip norm, so that rounding cannot carry a record above it
CLIP_MARGIN = 1e-6
# numbers that one part of a large batch may hold: 64 MB in double precision
PART_SIZE = 2**23


class ByRecord:
    """The data, where each record is clipped.

    Parameters
    ----------
    columns : mapping
        The data, by the leaf's name.

    Attributes
    ----------
    number : int
        How many records there are to draw from.
    width : int
        How many numbers a record has.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = dict(columns)
        self.number = next(iter(columns.values())).rows
        self.width = sum(column.width for column in columns.values())

    def take(self, rows: np.ndarray) -> Batch:
        """Read some rows of every column."""
        return {name: column.take(rows) for name, column in self._columns.items()}

    def cut(self, chosen: np.ndarray, contribution: Contribution) -> Iterator[np.ndarray]:
        """Cut drawn records into those that are summed in one go."""
        return self.parts(chosen, contribution.width)

    def clipped_sum(
        self, contribution: Contribution, chosen: np.ndarray, context: Any, bound: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Clip every record, and sum.

        Returns
        -------
        total : ndarray, shape (size,)
        norms : ndarray, shape (chosen,)
            Before clipping. Not finite where a record adds nothing.

        Notes
        -----
        **Privacy.** A record moves the total by at most ``bound`` in L2 norm. Neither value may
        leave the wall as it is.
        """
        prepared, norms = self.prepared(contribution, chosen, context)
        good = np.isfinite(norms)
        if not good.any():
            return np.zeros(contribution.size), norms
        weights = np.where(good, _clip_weights(norms, bound), 0.0)
        return contribution.weighted_sum(prepared, context, weights), norms

    def parts(self, rows: np.ndarray, width: int) -> Iterator[np.ndarray]:
        """Cut rows so that memory stays bounded; an empty batch has no parts."""
        size = max(1, PART_SIZE // max(1, self.width + width))
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    def prepared(
        self, contribution: Contribution, rows: np.ndarray, context: Any
    ) -> tuple[Any, np.ndarray]:
        """Prepare some rows for their sum, and measure the norm of each.

        A record whose norm is not finite must weigh nothing, and the row of a good record takes
        its place in the graph: zero times nan would be nan.
        """
        batch = self.take(rows)
        prepared = contribution.prepare(batch, context)
        norms = contribution.norms(prepared, context)
        if norms.shape != rows.shape:
            raise ValueError("there is not one norm for each record")
        good = np.isfinite(norms)
        if good.any() and not good.all():
            prepared = contribution.prepare(self._without_bad_rows(batch, good), context)
        return prepared, norms

    def _without_bad_rows(self, batch: Batch, good: np.ndarray) -> Batch:
        source = np.where(good, np.arange(len(good)), np.flatnonzero(good)[0])
        return {
            name: np.take(values, source, axis=self._columns[name].axis)
            for name, values in batch.items()
        }

    def __reduce__(self):
        raise TypeError("What the wall sums holds data and must not be pickled or copied.")


class ByUnit:
    """The data, where each unit of several records is summed first and clipped as a whole.

    Parameters
    ----------
    data : ByRecord
    units : Units
        Which records belong to one privacy unit.

    Attributes
    ----------
    number : int
        How many units there are to draw from.
    """

    def __init__(self, data: ByRecord, units: Units) -> None:
        self._data = data
        self._units = units
        self.number = units.number

    def cut(self, chosen: np.ndarray, contribution: Contribution) -> list[np.ndarray]:
        """Cut drawn units into those that are summed in one go."""
        return self._units.cut(chosen, self._data.width + contribution.unit_size)

    def clipped_sum(
        self, contribution: Contribution, chosen: np.ndarray, context: Any, bound: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sum every unit, clip that very vector, and sum; a unit that overflows adds nothing.

        Returns
        -------
        total : ndarray, shape (size,)
        norms : ndarray, shape (chosen,)
            Of the units' vectors before clipping. Not finite where a unit adds nothing.

        Notes
        -----
        **Privacy.** A unit, with all its records, moves the total by at most ``bound`` in L2 norm.
        Neither value may leave the wall as it is.
        """
        sums = self._sums(contribution, *self._units.rows(chosen), context)
        # a record of another unit can have spoilt a sum, by zero times infinity: each alone
        for i in np.flatnonzero(~np.isfinite(sums).all(axis=1)):
            alone = self._units.rows(chosen[i : i + 1])
            [sums[i]] = self._sums(contribution, *alone, context)
        vectors = contribution.unit_vectors(sums)
        norms = row_norms(vectors)
        good = np.isfinite(norms)
        return _clip_weights(norms[good], bound) @ vectors[good], norms

    def _sums(
        self, contribution: Contribution, rows: np.ndarray, owner: np.ndarray, context: Any
    ) -> np.ndarray:
        """Sum the rows of each owner in parts, shape (units, unit_size)."""
        total = np.zeros((owner[-1] + 1, contribution.unit_size))
        width = contribution.width + contribution.unit_size
        for part in self._data.parts(np.arange(len(rows)), width):
            prepared, norms = self._data.prepared(contribution, rows[part], context)
            good = np.isfinite(norms)
            sums = contribution.unit_sums(prepared, context, owner[part], good)
            total[: len(sums)] += sums
        return total

    def __reduce__(self):
        raise TypeError("What the wall sums holds data and must not be pickled or copied.")


def _clip_weights(norms: np.ndarray, bound: float) -> np.ndarray:
    """The factor that brings each contribution's norm to at most ``bound``."""
    return np.fmin(1.0, bound * (1 - CLIP_MARGIN) / norms)
