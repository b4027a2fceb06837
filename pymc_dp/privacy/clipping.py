"""Clipped sums: every vector is shortened to the clip norm C before vectors are added.

Adding or removing one vector of norm at most C moves a sum by at most C: that is the sensitivity
for which the wall adds noise. `SumsByRecord` clips the vector of each record, and `SumsByUnit` that
of each unit, after the vectors of its records are added. Both hold data: the wall alone makes them,
through `opened`, and calls them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pymc_dp.accounting.samplers import subset
from pymc_dp.privacy.contribution import (
    OWNER,
    Batch,
    Contribution,
    RowContribution,
    UnitVector,
    unit_sums,
    unit_vector,
    with_draws,
)
from pymc_dp.privacy.norms import LARGEST_NORM, clip_factors, row_norms
from pymc_dp.privacy.private_data import Column, Partition
from pymc_dp.privacy.randomness import Draw
from pymc_dp.privacy.units import Units

# clipped norms stay below the clip norm by this share, which exceeds all rounding errors
CLIP_MARGIN = 1e-6
# a batch is processed in parts of at most so many numbers: 64 MB in double precision
PART_SIZE = 2**23
# units that are summed by weights of 0 and 1, one unit at a time, are taken in smaller groups
WEIGHTED_AT_ONCE = 2**15


class ClippedSum(NamedTuple):
    """The sum of clipped vectors, and their number."""

    total: np.ndarray  # its norm is at most ``number`` times the clip norm
    number: int

    def is_within(self, bound: float) -> bool:
        """Whether the sum is finite, and as short as clipped vectors make it."""
        [norm] = row_norms(self.total[None])
        # none add nothing, under an infinite clip norm as well
        return bool(np.isfinite(norm) and norm <= (bound * self.number if self.number else 0.0))

    def __repr__(self) -> str:
        return "<ClippedSum>"


class BeyondBoundError(Exception):
    """A clipped sum is longer than its records can make it."""


def clipped_sum(
    partition: Partition, contribution: Contribution, draw: Draw, context: Any, bound: float
) -> ClippedSum:
    """Draw a part of a batch from one partition, and add up its clipped vectors.

    **Privacy.** As `SumsByRecord.clipped_sums`. A function of the partition, the public arguments
    and the state of the draw's generator: made again with the same, it is the same.
    """
    data = opened(partition, draw.generator)
    drawn = subset(draw.generator, data.number, draw.size)
    total = np.zeros(contribution.size)
    with np.errstate(all="ignore"):  # bad records are expected, and warnings can be errors
        for part in data.clipped_sums(contribution, drawn, context, bound):
            if not part.is_within(bound):
                raise BeyondBoundError
            total += part.total
    return ClippedSum(total, len(drawn))


def opened(partition: Partition, generator: np.random.Generator) -> "SumsByRecord | SumsByUnit":
    """Open a partition for clipped sums, by unit where a privacy unit is given."""
    records = SumsByRecord(partition.columns, generator)
    return records if partition.units is None else SumsByUnit(records, partition.units)


class SumsByRecord:
    """Some data, where each record is clipped; ``columns`` are by the leaf's name."""

    def __init__(self, columns: Mapping[str, Column], generator: np.random.Generator) -> None:
        self._columns = dict(columns)
        self._generator = generator
        self.number = next(iter(columns.values())).rows  # of records
        # the number of values in a record
        self.width = sum(column.spec.width for column in columns.values())

    def take(self, rows: np.ndarray) -> Batch:
        """Read some rows of every column."""
        return {name: column.take(rows) for name, column in self._columns.items()}

    def clipped_sums(
        self, contribution: Contribution, drawn: np.ndarray, context: Any, bound: float
    ) -> "Iterator[ClippedSum]":
        """Clip the vector of every drawn record, and add up the vectors of each part.

        **Privacy.** Each record belongs to one part and adds one vector of L2 norm at most
        ``bound``, or nothing where its norm is not finite. So it moves the total over all parts by
        at most ``bound``. No sum may leave the wall without noise. Where vectors read random
        numbers, those of each record are independent of the others' and never handed out: given
        the numbers of the records that two neighbours share, sums differ by at most ``bound``, and
        a mixture over such numbers is as private as its parts (joint convexity).
        """
        for part in self.parts(drawn, contribution.width):
            norms, weighted_sum = self._vectors(contribution, part, context)
            good = _is_good(norms)
            total = np.zeros(contribution.size)
            if good.any():
                total = weighted_sum(np.where(good, _clip_weights(norms, bound), 0.0))
                _check_shape(total, (contribution.size,))
            yield ClippedSum(total, len(part))

    def parts(self, rows: np.ndarray, width: int) -> Iterator[np.ndarray]:
        """Split rows so that memory stays bounded; an empty batch has no parts."""
        size = max(1, PART_SIZE // max(1, self.width + width))
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    def unit_sums(
        self,
        contribution: Contribution,
        unit: UnitVector,
        rows: np.ndarray,
        context: Any,
        owner: np.ndarray,
    ) -> np.ndarray:
        """Add up the good records of each unit, without clipping."""
        prepared, norms = self._prepared(contribution, rows, context, owner)
        return unit_sums(unit, prepared, context, owner, _is_good(norms))

    def _vectors(
        self, contribution: Contribution, rows: np.ndarray, context: Any
    ) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        """Return the norm of every record's vector, and a function for their weighted sum."""
        if isinstance(contribution, RowContribution):
            prepared = contribution.prepare(self._batch(contribution, rows, context), context)
            vectors = np.asarray(contribution.rows(prepared, context), "float64")
            _check_shape(vectors, (len(rows), contribution.size))
            norms = row_norms(vectors)
            good = _is_good(norms)
            if not good.all():  # zero times nan would be nan
                vectors = np.where(good[:, None], vectors, 0.0)
            return norms, lambda weights: weights @ vectors
        prepared, norms = self._prepared(contribution, rows, context)
        return norms, lambda weights: contribution.weighted_sum(prepared, context, weights)

    def _prepared(
        self,
        contribution: Contribution,
        rows: np.ndarray,
        context: Any,
        owner: np.ndarray | None = None,
    ) -> tuple[Any, np.ndarray]:
        """Prepare some rows for their sum, and compute the norm of each."""
        # A record whose norm is not finite must add nothing. A weight of 0 is not enough, since
        # zero times nan is nan: the values of a good record take its place in the graph. Where
        # records of a unit are prepared together, that record would enter a unit that is not its
        # own: rows that are not finite are then left out by `unit_sums`.
        batch = self._batch(contribution, rows, context, owner)
        prepared = contribution.prepare(batch, context)
        norms = contribution.norms(prepared, context)
        _check_shape(norms, rows.shape)
        good = _is_good(norms)
        if good.any() and not good.all() and not contribution.together:
            prepared = contribution.prepare(self._without_bad_rows(batch, good), context)
        return prepared, norms

    def _batch(
        self,
        contribution: Contribution,
        rows: np.ndarray,
        context: Any,
        owner: np.ndarray | None = None,
    ) -> Batch:
        batch = self.take(rows)
        if contribution.together and owner is not None:
            batch[OWNER] = owner
        return with_draws(contribution, batch, context, self._generator)

    def _without_bad_rows(self, batch: Batch, good: np.ndarray) -> Batch:
        source = np.where(good, np.arange(len(good)), np.flatnonzero(good)[0])
        axes = {name: column.axis for name, column in self._columns.items()}
        return {
            name: np.take(values, source, axis=axes.get(name, 0)) for name, values in batch.items()
        }

    def __reduce__(self) -> NoReturn:
        raise TypeError("Clipped sums hold data and must not be pickled or copied.")


class SumsByUnit:
    """Some data, where the records of each unit are added first and clipped as one vector."""

    def __init__(self, records: SumsByRecord, units: Units) -> None:
        self._by_record = records
        self._units = units
        self.number = units.number  # of units

    def clipped_sums(
        self, contribution: Contribution, drawn: np.ndarray, context: Any, bound: float
    ) -> "Iterator[ClippedSum]":
        """Clip the vector of every drawn unit, and add up the vectors of each part.

        **Privacy.** All records of a unit belong to one part and add one vector of L2 norm at most
        ``bound``, however many they are, or nothing where their sum overflows. So a unit moves the
        total over all parts by at most ``bound``. No sum may leave the wall without noise.
        """
        unit = unit_vector(contribution)
        at_once = PART_SIZE if unit.rows is not None else WEIGHTED_AT_ONCE
        width = self._by_record.width + contribution.width + unit.size
        for part in self._units.cut(drawn, max(1, at_once // width)):
            sums = self._sums(contribution, unit, *self._units.rows(part), context)
            # zero times infinity: a record of another unit can make a sum nan. Such sums are
            # computed again, unit by unit, so that no unit affects the vector of another
            for i in np.flatnonzero(~np.isfinite(sums).all(axis=1)):
                alone = self._units.rows(part[i : i + 1])
                [sums[i]] = self._sums(contribution, unit, *alone, context)
            vectors = unit.vectors(sums, context)
            _check_shape(vectors, (len(part), contribution.size))
            norms = row_norms(vectors)
            good = _is_good(norms)
            total = _clip_weights(norms[good], bound) @ vectors[good]
            yield ClippedSum(total, len(part))

    def _sums(
        self,
        contribution: Contribution,
        unit: UnitVector,
        rows: np.ndarray,
        owner: np.ndarray,
        context: Any,
    ) -> np.ndarray:
        """Add up the rows of each unit, shape (units, unit.size); ``owner`` is each row's unit."""
        # records that are prepared together are never cut apart: where the cut lies would depend on
        # the units before
        if contribution.together:
            return self._by_record.unit_sums(contribution, unit, rows, context, owner)
        total = np.zeros((owner[-1] + 1, unit.size))
        for part in self._by_record.parts(np.arange(len(rows)), contribution.width + unit.size):
            sums = self._by_record.unit_sums(contribution, unit, rows[part], context, owner[part])
            total[: len(sums)] += sums
        return total

    def __reduce__(self) -> NoReturn:
        raise TypeError("Clipped sums hold data and must not be pickled or copied.")


def _is_good(norms: np.ndarray) -> np.ndarray:
    """Whether vectors may be added: their norms are not nan, and at most `LARGEST_NORM`."""
    return norms <= LARGEST_NORM


def _clip_weights(norms: np.ndarray, bound: float) -> np.ndarray:
    """Return the factor that brings each norm to at most ``bound``, less the margin."""
    return clip_factors(norms, bound * (1 - CLIP_MARGIN))


def _check_shape(values: np.ndarray, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise ValueError("there is not one vector, or norm, for each record")
