"""Clipped sums: every vector is shortened to the clip norm C before vectors are added.

Adding or removing one vector of norm at most C moves a sum by at most C: that is the sensitivity
for which the wall adds noise. Sums are whole numbers of grid steps (`privacy.randomness`).
`SumsByRecord` clips the vector of each record, and `SumsByUnit` that of each unit, after the
vectors of its records are added. Both hold data: `clipped_sum` alone makes them, for the wall.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from pymc_dp.errors import ReleaseError, UnreadableError
from pymc_dp.privacy.contribution import (
    OWNER,
    Batch,
    Contribution,
    Contributions,
    FactoredContribution,
    RowContribution,
    UnitVector,
    for_units,
    take_rows,
    unit_sums,
    unit_vector,
    with_draws,
)
from pymc_dp.privacy.norms import LARGEST_NORM, clip_factors, row_norms
from pymc_dp.privacy.private_data import Partition, opaque, secret
from pymc_dp.privacy.randomness import MOST_IN_FLOATING_SUM, Grid, Total

# a batch is processed in parts of at most so many numbers: 64 MB in double precision
PART_SIZE = 2**23
# parts of many rows are no larger than a processor's cache, nor so small that calls take the time
CACHE_SIZE, ROWS_AT_ONCE = 2**21, 2**12
# units that are summed by weights of 0 and 1, one unit at a time, are taken in smaller groups
WEIGHTED_AT_ONCE = 2**15


class PartitionError(Exception):
    """A partition failed, or there is not exactly one answer of each; the text holds no data."""

    kind = ReleaseError  # what the wall raises in its place


class LostError(PartitionError):
    """A partition could not be read, or its worker was lost, whichever rows were drawn."""

    kind = UnreadableError


TOO_LONG = (
    "a sum is not finite, or beyond its bound, although each record's part was clipped; look for "
    "values near the limits of double precision, or try another backend"
)


@opaque
class Ask(NamedTuple):
    """What the wall asks of all partitions for one release."""

    position: int  # of the release among those that the wall has made
    name: str  # of the contribution
    sizes: np.ndarray | dict[int, int]  # by place of a partition: of its part of the batch
    context: Any
    grid: Grid  # with the clip norm


@opaque
class Answer(NamedTuple):
    """A partition's clipped sum, and what it is the answer to."""

    position: int  # of the release
    place: int  # of the partition
    number: int  # of vectors
    total: Total


def clipped_sum(
    ask: Ask,
    place: int,
    partition: Partition,
    contributions: Contributions,
    generator: np.random.Generator,
) -> Answer:
    """Draw the part of a batch that the partition at a place has; add up clipped vectors.

    **Privacy.** As `SumsByRecord.clipped_sums`. A function of the partition, the public arguments
    and the state of the generator: made again with the same, it is the same.
    """
    kind, contribution = SumsByRecord, cast(Contribution, contributions[ask.name])
    if partition.units is not None:
        kind, contribution = SumsByUnit, for_units(contribution)
    data = kind(partition, contribution, ask.context, generator)
    drawn = subset(generator, partition.number, int(ask.sizes[place]))
    total = ask.grid.nothing(contribution.size)
    with np.errstate(all="ignore"):  # bad records are expected, and warnings can be errors
        for number, part in data.clipped_sums(drawn, ask.grid):
            if not ask.grid.holds(part, number):
                raise PartitionError(TOO_LONG)
            total = total.plus(part)
    return Answer(ask.position, place, len(drawn), total)


def subset(rng: np.random.Generator, number: int, size: int) -> np.ndarray:
    """Draw a uniform subset of a size, as sorted rows; all rows need no draw."""
    if size == number:
        return np.arange(number, dtype=np.int64)
    rows = rng.choice(number, size, replace=False, shuffle=False)
    return np.sort(rows, kind="stable")  # in order, so that memory maps are read forward


@secret
@dataclass(frozen=True, eq=False, repr=False)
class SumsByRecord:
    """The records of a partition, where each is clipped, in one release."""

    _partition: Partition
    _contribution: Contribution
    _context: Any
    _generator: np.random.Generator

    def clipped_sums(self, drawn: np.ndarray, grid: Grid) -> Iterator[tuple[int, Total]]:
        """Clip the vector of every drawn record; count and add up the vectors of each part.

        **Privacy.** Each record belongs to one part and adds one vector of L2 norm at most the clip
        norm, or nothing where its norm is not finite. So it moves the total over all parts by at
        most the clip norm, with all that rounding does (`Grid.largest_norm`). No sum may leave the
        wall without noise. Where vectors read random numbers, those of each record are independent
        of the others' and never handed out: given the numbers of the records that two neighbours
        share, sums differ by at most the clip norm, and a mixture over such numbers is as private
        as its parts (joint convexity).
        """
        clipped, size = self._of_rows, self._rows_at_once(self._contribution.width)
        if isinstance(self._contribution, FactoredContribution):
            # the most rows whose rounding is bounded, if it is (`privacy.randomness`)
            most = int(MOST_IN_FLOATING_SUM / self._contribution.parts_norm)
            clipped, size = self._summed, min(size, most or MOST_IN_FLOATING_SUM)
        for start in range(0, len(drawn), size):  # parts, so that memory stays bounded
            part = drawn[start : start + size]
            yield len(part), clipped(part, grid)

    def _rows_at_once(self, width: int) -> int:
        """Return how many rows to process at once, each with ``width`` numbers beside itself."""
        width = max(1, self._partition.width + width)
        return max(1, min(PART_SIZE // width, max(CACHE_SIZE // width, ROWS_AT_ONCE)))

    def _of_rows(self, rows: np.ndarray, grid: Grid) -> Total:
        """Add up the clipped vectors of records, each rounded to the grid."""
        contribution, context = cast(RowContribution, self._contribution), self._context
        places = _at_least_two(rows)
        prepared = contribution.prepare(self._batch(places), context)
        vectors = np.asarray(contribution.rows(prepared, context), "float64")
        _check_shape(vectors, (len(places), contribution.size))
        return _sum_of_clipped(vectors[: len(rows)], grid)

    def _summed(self, rows: np.ndarray, grid: Grid) -> Total:
        """Add up the clipped vectors of records, which are not formed."""
        contribution = cast(FactoredContribution, self._contribution)
        prepared, norms = self._prepared(_at_least_two(rows))
        good = (norms <= LARGEST_NORM) & (np.arange(len(norms)) < len(rows))
        if not good.any():
            return grid.nothing(contribution.size)
        weights = np.where(good, clip_factors(norms, grid.largest_norm), 0.0)
        total = contribution.weighted_sum(prepared, self._context, weights)
        _check_shape(total, (contribution.size,))
        return grid.parted(total)

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
        good = norms <= LARGEST_NORM  # nan is not
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


class SumsByUnit(SumsByRecord):
    """A partition where the records of each unit are added first, and clipped as one vector."""

    def clipped_sums(self, drawn: np.ndarray, grid: Grid) -> Iterator[tuple[int, Total]]:
        """Clip the vector of every drawn unit; count and add up the vectors of each part.

        **Privacy.** All records of a unit belong to one part and add one vector of L2 norm at most
        the clip norm, however many they are, or nothing where their sum overflows. So a unit moves
        the total over all parts by at most the clip norm. No sum may leave the wall without noise.
        """
        units, unit = self._partition.units, unit_vector(self._contribution)
        at_once = self._rows_at_once(self._contribution.width + unit.size)
        if unit.rows is None:
            at_once = min(at_once, max(1, WEIGHTED_AT_ONCE // unit.size))
        for part in units.cut(drawn, at_once):
            sums = self._sums(unit, at_once, *units.rows(part))
            # zero times infinity: a record of another unit can make a sum nan. Such sums are
            # computed again, unit by unit, so that no unit affects the vector of another
            for i in np.flatnonzero(~np.isfinite(sums).all(axis=1)):
                [sums[i]] = self._sums(unit, at_once, *units.rows(part[i : i + 1]))
            vectors = unit.vectors(_at_least_two(sums), self._context)[: len(part)]
            _check_shape(vectors, (len(part), self._contribution.size))
            yield len(part), _sum_of_clipped(vectors, grid)

    def _sums(
        self, unit: UnitVector, at_once: int, rows: np.ndarray, owner: np.ndarray
    ) -> np.ndarray:
        """Add up the good rows of each unit, shape (units, unit.size); ``owner`` is a row's unit.

        Nothing is clipped here. Where a unit is cut depends on its own rows alone, and records that
        are prepared together are never cut apart.
        """
        count = owner[-1] + 1
        if self._contribution.together or len(rows) <= 2 * at_once:
            if count == 1:  # a second unit, as `_at_least_two`
                rows, owner = np.tile(rows, 2), np.concatenate([owner, owner + 1])
            prepared, norms = self._prepared(rows, owner)
            return unit_sums(unit, prepared, self._context, owner, norms <= LARGEST_NORM)[:count]
        if count > 1:
            each = (np.flatnonzero(owner == i) for i in range(count))
            return np.concatenate([self._sums(unit, at_once, rows[i], 0 * i) for i in each])
        cuts = (slice(start, start + at_once) for start in range(0, len(rows), at_once))
        return sum((self._sums(unit, at_once, rows[i], owner[i]) for i in cuts), np.zeros(1))


def _at_least_two(rows: np.ndarray) -> np.ndarray:
    """Repeat a row that is alone: beside an axis of length 1 NumPy adds up in another order."""
    return np.repeat(rows, 2, axis=0) if len(rows) == 1 else rows


def _sum_of_clipped(vectors: np.ndarray, grid: Grid) -> Total:
    """Clip vectors, round each to the grid, and add up those that are finite."""
    norms = row_norms(vectors)
    good = norms <= LARGEST_NORM  # nan is not
    if not good.all():  # zero times nan would be nan
        vectors, norms = vectors[good], norms[good]
    return grid.sum_of(vectors * clip_factors(norms, grid.largest_norm)[:, None])


def _check_shape(values: np.ndarray, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise ValueError("there is not one vector, or norm, for each record")
