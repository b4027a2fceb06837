"""Contributions: the vector that each record adds to a sum, as functions that hold no data.

A method hands contributions to the wall, and there are two kinds. For a `RowContribution` the wall
computes every record's vector and its norm itself. A `FactoredContribution` computes norms without
forming vectors; `probe` checks these norms on artificial records before every fit. A `Mechanism`
is neither: its release is no noisy sum, and the method that brings it proves it private.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_dp.accounting.plan import Release
from pymc_dp.privacy.norms import row_norms
from pymc_dp.privacy.private_data import Columns, ColumnSpec, Partition
from pymc_dp.privacy.randomness import SecretRandom

Batch = dict[str, np.ndarray]


class Noisy(NamedTuple):
    """A released sum."""

    value: np.ndarray  # shape (size,): the clipped sum over the batch plus noise
    sd: float  # the noise's standard deviation in every coordinate
    # the rate at which records were drawn: ``value / sample_rate`` estimates the full sum
    sample_rate: float

    @property
    def noise_to_signal(self) -> float:
        """The noise's expected norm over the norm of what was released."""
        return float(self.sd * self.value.size**0.5 / max(np.linalg.norm(self.value), 1e-300))


class Query(NamedTuple):
    """A request for one release; public values alone."""

    name: str  # of a release that the plan still holds
    context: Any  # the contribution's second argument, beside the records
    clip_norm: float | None = None  # in place of the plan's; a function of released values alone
    draw: Any = None  # the public draw behind the context, kept for the update that follows


# name in a batch of the unit of every record, numbered from 0 in the order of the records
OWNER = "unit of the record"


def take_rows(batch: Batch, columns: Columns | Mapping[str, ColumnSpec], rows: np.ndarray) -> Batch:
    """Take records of a batch; an array that is none of the columns has them along axis 0."""
    return rows_along({name: column.axis for name, column in columns.items()}, batch, rows)


def rows_along(axes: Mapping[str, int], batch: Batch, rows: np.ndarray) -> Batch:
    """Take records of a batch along the axes of its arrays, which are 0 by default."""
    return {name: np.take(x, rows, axis=axes.get(name, 0)) for name, x in batch.items()}


def as_it_is(batch: Batch, context: Any) -> Any:
    """Prepare nothing."""
    return batch


class UnitVector(NamedTuple):
    """The vector of a unit of several records, as a function of a sum over its records."""

    size: int  # the length of the sum
    # (sums (units, size), context) -> (units, size of the contribution); not finite where a sum
    # is not finite
    vectors: Callable[[np.ndarray, Any], np.ndarray]
    # (prepared, context, weights) -> (size,), optional
    weighted_sum: Callable[[Any, Any, np.ndarray], np.ndarray] | None = None
    # (prepared, context) -> (rows, size), optional: what is summed, record by record, where units
    # are summed faster from it. One of the two must be given.
    rows: Callable[[Any, Any], np.ndarray] | None = None
    # as the contribution's own ``draw``, and in its place where records belong to units, optional
    draw: Callable[[Batch, Any, np.random.Generator], Batch] | None = None


class RowContribution(NamedTuple):
    """One record's vector, given public context, computed for every record of a batch."""

    size: int  # the length of the vector
    # how many numbers the functions hold for a row beside the row itself; the wall cuts large
    # batches accordingly
    width: int
    # (prepared, context) -> (rows, size): the records' vectors. Not finite where the record must
    # not contribute.
    rows: Callable[[Any, Any], np.ndarray]
    # (batch, context) -> prepared: what the other functions read, by default the batch itself. It
    # never leaves the wall.
    prepare: Callable[[Batch, Any], Any] = as_it_is
    # how vectors of units of several records are made, if not as the sums of their records'
    unit: UnitVector | None = None
    # (batch, context, generator) -> arrays of random numbers, records along axis 0, that join the
    # batch before it is prepared: each record's from the record and the generator alone
    draw: Callable[[Batch, Any, np.random.Generator], Batch] | None = None
    # whether the records of a unit are prepared together, with `OWNER` in the batch. A record's row
    # may then depend on the other records of its unit, on their draws, and on nothing else.
    together: bool = False
    # Whether a vector jumps where a number passes a threshold, as in a histogram. The last bit of
    # the number must then not depend on other records: such vectors are computed in Python.
    jumps: bool = False

    def norms(self, prepared: Any, context: Any) -> np.ndarray:
        """Return the L2 norm of each record's vector."""
        return row_norms(self.rows(prepared, context))

    def weighted_sum(self, prepared: Any, context: Any, weights: np.ndarray) -> np.ndarray:
        """Return the sum of the vectors, each times its weight."""
        return np.asarray(weights @ self.rows(prepared, context))


class FactoredContribution(NamedTuple):
    """One record's vector, given public context, not formed (ghost norms: Li et al. 2022)."""

    size: int  # size, width, prepare, unit, draw, together, jumps: as in `RowContribution`
    width: int
    # (prepared, context) -> (rows,): the L2 norm of each record's vector, or more. Not finite
    # where the record must not contribute.
    norms: Callable[[Any, Any], np.ndarray]
    # (prepared, context, weights) -> (size,): the sum of the vectors, each times its weight
    weighted_sum: Callable[[Any, Any, np.ndarray], np.ndarray]
    prepare: Callable[[Batch, Any], Any] = as_it_is
    # (prepared, context) -> (rows, size), optional: the records' vectors themselves, where units
    # of several records are summed faster from them than by a weighted sum for each unit
    rows: Callable[[Any, Any], np.ndarray] | None = None
    unit: UnitVector | None = None
    draw: Callable[[Batch, Any, np.random.Generator], Batch] | None = None
    together: bool = False
    jumps: bool = False
    # A weighted sum may add a record's vector in parts. This bounds the sum of their norms, over
    # that of the vector: 1 where each entry of the sum is one sum over records.
    parts_norm: float = 1.0


Contribution = RowContribution | FactoredContribution


class Mechanism(Protocol):
    """Releases something else than a noisy sum; each must state its own proof of privacy."""

    def release(
        self, data: Partition, release: Release, query: Query, random: SecretRandom
    ) -> Noisy:
        """Make one release, which is already booked, from all the data.

        Raises ReleaseError where the plan accounts the release otherwise, or where it fails.
        Nothing is released then, and the error text contains no data.
        """

    def rehearse(self, batch: Batch, context: Any) -> np.ndarray:
        """Run every function once, and return a vector of a release's shape."""


Contributions = Mapping[str, Contribution | Mechanism]  # by the name of the release


def with_draws(
    contribution: Contribution, batch: Batch, context: Any, generator: np.random.Generator
) -> Batch:
    """Complete a batch by the random numbers that a contribution draws for its records."""
    return batch | contribution.draw(batch, context, generator) if contribution.draw else batch


def for_units(contribution: Contribution) -> Contribution:
    """Return a contribution as records of units prepare it: with the draws of units."""
    unit = contribution.unit
    return contribution._replace(draw=unit.draw) if unit and unit.draw else contribution


def unit_vector(contribution: Contribution) -> UnitVector:
    """Return how vectors of units are formed: by default as the sums of their records' vectors."""
    return contribution.unit or UnitVector(
        contribution.size, lambda sums, context: sums, contribution.weighted_sum, contribution.rows
    )


def unit_sums(
    unit: UnitVector, prepared: Any, context: Any, owner: np.ndarray, good: np.ndarray
) -> np.ndarray:
    """Sum the good records of each unit, (units, unit.size); ``owner`` is in order."""
    sums = np.zeros((owner[-1] + 1, unit.size))
    if unit.rows is not None:
        rows = np.where(good[:, None], unit.rows(prepared, context), 0.0)
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        sums[owner[starts]] = np.add.reduceat(rows, starts)
        return sums
    if unit.weighted_sum is None:
        raise TypeError("A unit's vector needs rows, or a weighted sum.")
    for i in np.unique(owner[good]):
        weights = np.where(good & (owner == i), 1.0, 0.0)
        sums[i] = unit.weighted_sum(prepared, context, weights)
    return sums
