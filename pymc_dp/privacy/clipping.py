"""Clipped sums: every vector is shortened to the clip norm C before vectors are added.

Adding or removing one vector of norm at most C moves a sum by at most C: that is the sensitivity
for which the wall adds noise. `SumsByRecord` clips the vector of each record, and `SumsByUnit` that
of each unit, after the vectors of its records are added. Both hold data: `clipped_sum` alone
makes them, for the wall.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pymc_dp.accounting.samplers import subset
from pymc_dp.privacy.contribution import (
    OWNER,
    Batch,
    Contribution,
    RowContribution,
    UnitVector,
    for_units,
    take_rows,
    unit_sums,
    unit_vector,
    with_draws,
)
from pymc_dp.privacy.norms import LARGEST_NORM, clip_factors, row_norms
from pymc_dp.privacy.private_data import Partition

# clipped norms stay below the clip norm by this share, which exceeds all rounding errors
CLIP_MARGIN = 1e-6
# a batch is processed in parts of at most so many numbers: 64 MB in double precision
PART_SIZE = 2**23
# parts of many rows are no larger than a processor's cache, nor so small that calls take the time
CACHE_SIZE, ROWS_AT_ONCE = 2**21, 2**12
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
    partition: Partition,
    contribution: Contribution,
    context: Any,
    size: int,
    generator: np.random.Generator,
    bound: float,
) -> ClippedSum:
    """Draw a part of a batch from one partition, ``size`` of its units; add up clipped vectors.

    **Privacy.** As `SumsByRecord.clipped_sums`. A function of the partition, the public arguments
    and the state of the generator: made again with the same, it is the same.
    """
    kind = SumsByRecord
    if partition.units is not None:
        kind, contribution = SumsByUnit, for_units(contribution)
    data = kind(partition, contribution, context, generator)
    drawn = subset(generator, partition.number, size)
    total = np.zeros(contribution.size)
    with np.errstate(all="ignore"):  # bad records are expected, and warnings can be errors
        for part in data.clipped_sums(drawn, bound):
            if not part.is_within(bound):
                raise BeyondBoundError
            total += part.total
    return ClippedSum(total, len(drawn))


@dataclass(frozen=True, eq=False, repr=False)
class SumsByRecord:
    """The records of a partition, where each is clipped, in one release."""

    _partition: Partition
    _contribution: Contribution
    _context: Any
    _generator: np.random.Generator

    def clipped_sums(self, drawn: np.ndarray, bound: float) -> Iterator[ClippedSum]:
        """Clip the vector of every drawn record, and add up the vectors of each part.

        **Privacy.** Each record belongs to one part and adds one vector of L2 norm at most
        ``bound``, or nothing where its norm is not finite. So it moves the total over all parts by
        at most ``bound``. No sum may leave the wall without noise. Where vectors read random
        numbers, those of each record are independent of the others' and never handed out: given
        the numbers of the records that two neighbours share, sums differ by at most ``bound``, and
        a mixture over such numbers is as private as its parts (joint convexity).
        """
        size = self._contribution.size
        for part in self._parts(drawn, self._contribution.width):
            norms, weighted_sum = self._vectors(part)
            good = _is_good(norms)
            total = np.zeros(size)
            if good.any():
                total = weighted_sum(np.where(good, _clip_weights(norms, bound), 0.0))
                _check_shape(total, (size,))
            yield ClippedSum(total, len(part))

    def _parts(self, rows: np.ndarray, width: int) -> Iterator[np.ndarray]:
        """Split rows so that memory stays bounded; an empty batch has no parts."""
        width = max(1, self._partition.width + width)
        size = max(1, min(PART_SIZE // width, max(CACHE_SIZE // width, ROWS_AT_ONCE)))
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    def _vectors(self, rows: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        """Return the norm of every record's vector, and a function for their weighted sum."""
        contribution, context = self._contribution, self._context
        if isinstance(contribution, RowContribution):
            prepared = contribution.prepare(self._batch(rows), context)
            vectors = np.asarray(contribution.rows(prepared, context), "float64")
            _check_shape(vectors, (len(rows), contribution.size))
            norms = row_norms(vectors)
            good = _is_good(norms)
            if not good.all():  # zero times nan would be nan
                vectors = np.where(good[:, None], vectors, 0.0)
            return norms, lambda weights: weights @ vectors
        prepared, norms = self._prepared(rows)
        return norms, lambda weights: contribution.weighted_sum(prepared, context, weights)

    def _prepared(
        self, rows: np.ndarray, owner: np.ndarray | None = None
    ) -> tuple[Any, np.ndarray]:
        """Prepare some rows for their sum, and compute the norm of each."""
        # A record whose norm is not finite must add nothing. A weight of 0 is not enough, since
        # zero times nan is nan: the values of a good record take its place in the graph. Where
        # records of a unit are prepared together, that record would enter a unit that is not its
        # own: rows that are not finite are then left out by `unit_sums`.
        contribution, context = self._contribution, self._context
        batch = self._batch(rows, owner)
        prepared = contribution.prepare(batch, context)
        norms = contribution.norms(prepared, context)
        _check_shape(norms, rows.shape)
        good = _is_good(norms)
        if good.any() and not good.all() and not contribution.together:
            source = np.where(good, np.arange(len(good)), np.flatnonzero(good)[0])
            batch = take_rows(batch, self._partition.columns, source)
            prepared = contribution.prepare(batch, context)
        return prepared, norms

    def _batch(self, rows: np.ndarray, owner: np.ndarray | None = None) -> Batch:
        batch = self._partition.take(rows)
        if self._contribution.together and owner is not None:
            batch[OWNER] = owner
        return with_draws(self._contribution, batch, self._context, self._generator)

    def __reduce__(self) -> NoReturn:
        raise TypeError("Clipped sums hold data and must not be pickled or copied.")


class SumsByUnit(SumsByRecord):
    """A partition where the records of each unit are added first, and clipped as one vector."""

    def clipped_sums(self, drawn: np.ndarray, bound: float) -> Iterator[ClippedSum]:
        """Clip the vector of every drawn unit, and add up the vectors of each part.

        **Privacy.** All records of a unit belong to one part and add one vector of L2 norm at most
        ``bound``, however many they are, or nothing where their sum overflows. So a unit moves the
        total over all parts by at most ``bound``. No sum may leave the wall without noise.
        """
        units, unit = self._partition.units, unit_vector(self._contribution)
        at_once = PART_SIZE if unit.rows is not None else WEIGHTED_AT_ONCE
        width = self._partition.width + self._contribution.width + unit.size
        for part in units.cut(drawn, max(1, at_once // width)):
            sums = self._sums(unit, *units.rows(part))
            # zero times infinity: a record of another unit can make a sum nan. Such sums are
            # computed again, unit by unit, so that no unit affects the vector of another
            for i in np.flatnonzero(~np.isfinite(sums).all(axis=1)):
                [sums[i]] = self._sums(unit, *units.rows(part[i : i + 1]))
            vectors = unit.vectors(sums, self._context)
            _check_shape(vectors, (len(part), self._contribution.size))
            norms = row_norms(vectors)
            good = _is_good(norms)
            total = _clip_weights(norms[good], bound) @ vectors[good]
            yield ClippedSum(total, len(part))

    def _sums(self, unit: UnitVector, rows: np.ndarray, owner: np.ndarray) -> np.ndarray:
        """Add up the good rows of each unit, shape (units, unit.size); ``owner`` is a row's unit.

        Nothing is clipped here.
        """
        # records that are prepared together are never cut apart: where the cut lies would depend on
        # the units before
        every, width = np.arange(len(rows)), self._contribution.width + unit.size
        total = np.zeros((owner[-1] + 1, unit.size))
        for part in [every] if self._contribution.together else self._parts(every, width):
            prepared, norms = self._prepared(rows[part], owner[part])
            sums = unit_sums(unit, prepared, self._context, owner[part], _is_good(norms))
            total[: len(sums)] += sums
        return total


def _is_good(norms: np.ndarray) -> np.ndarray:
    """Whether vectors may be added: their norms are not nan, and at most `LARGEST_NORM`."""
    return norms <= LARGEST_NORM


def _clip_weights(norms: np.ndarray, bound: float) -> np.ndarray:
    """Return the factor that brings each norm to at most ``bound``, less the margin."""
    return clip_factors(norms, bound * (1 - CLIP_MARGIN))


def _check_shape(values: np.ndarray, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise ValueError("there is not one vector, or norm, for each record")
