"""A check of contributions on artificial records, before every fit and without any data.

Clipping bounds the sensitivity only if the norms of a `FactoredContribution` are at least those of
its records' vectors, and if each record adds a vector that depends on no other record. Both are
tested in the fit's own backend on records of several magnitudes; a contribution that fails is
refused before any budget is spent.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from pymc_dp.privacy.contribution import (
    OWNER,
    Batch,
    Contribution,
    FactoredContribution,
    RowContribution,
    take_rows,
    unit_sums,
    unit_vector,
    with_draws,
)
from pymc_dp.privacy.norms import LARGEST_NORM, row_norms
from pymc_dp.privacy.private_data import ColumnSpec

# a vector may exceed its norm by this share, for rounding: no more than clipping's margin
TOLERANCE = 1e-6
# values of whole numbers, and magnitudes of real ones
WHOLE = (0, 1, 2, 1, 3, 0, 1, 5)
SCALES = (1e-3, 1.0, 30.0, 1e3, 1e6)
# records whose columns are all of one kind, and records whose columns are of random kinds
ALIKE, MIXED = 8, 16
# rows of a batch in which vectors are compared to the last bit with those of records alone: matrix
# products take other kernels from some hundreds of rows on; and how many of them are compared
MANY, COMPARED = 1000, 4
InBatch = Callable[[int], tuple[bytes, bytes]]  # place -> norm, vector


class FaultyContributionError(Exception):
    """A contribution violates what clipping relies on."""


def probe(contribution: Contribution, spec: Mapping[str, ColumnSpec], context: Any) -> None:
    """Check a contribution on artificial records, but for those that have no finite norm.

    Raises `FaultyContributionError` where a record's vector is longer than its norm, where a sum is
    not that of its records' vectors, or where a vector depends on the other records of its batch.
    """
    batch, norms = _made_up(contribution, spec, context)
    kept = np.flatnonzero(norms <= LARGEST_NORM)
    if not kept.size:
        return
    batch = take_rows(batch, spec, kept)
    prepared = contribution.prepare(batch, context)
    norms = contribution.norms(prepared, context)
    weights = np.fmin(1.0, 1 / np.fmax(norms, 1e-290))  # as if the clip norm were 1
    lengths = weights * norms
    shares = np.random.default_rng(1).uniform(0.5, 1.0, len(kept))
    total = np.zeros(contribution.size)
    for i in range(len(kept)):
        vector = contribution.weighted_sum(prepared, context, weights * (np.arange(len(kept)) == i))
        if vector.shape != total.shape:
            raise FaultyContributionError("its sums have not the size that it says")
        if isinstance(contribution, FactoredContribution) and not _within(vector, lengths[i], 1):
            raise FaultyContributionError("a record's vector is longer than its norm")
        # of other records the order of a sum changes the rounding
        if kept[i] < ALIKE and kept[i] % 2 == 0:
            record = take_rows(batch, spec, np.array([i]))
            alone = contribution.weighted_sum(
                contribution.prepare(record, context), context, weights[i : i + 1]
            )
            if not _within(vector - alone, lengths[i]):
                raise FaultyContributionError("what a record adds depends on the other records")
        total += shares[i] * vector
    together = contribution.weighted_sum(prepared, context, shares * weights)
    if not _within(together - total, float(shares @ lengths)):
        raise FaultyContributionError("a weighted sum is not the sum of its records' vectors")


def probe_units(contribution: Contribution, spec: Mapping[str, ColumnSpec], context: Any) -> None:
    """Check that units of three artificial records add the same vectors alone as beside others.

    Raises `FaultyContributionError` where one does not. Units with a record that has no finite norm
    are left out, as the wall leaves such records out.
    """
    batch, norms = _made_up(contribution, spec, context)
    rows = np.arange(ALIKE + MIXED).reshape(-1, 3)
    rows = rows[(norms[rows] <= LARGEST_NORM).all(axis=1)]
    if not rows.size:
        return
    _, together = _units(contribution, take_rows(batch, spec, rows.ravel()), context)
    for own, beside in zip(rows, together, strict=True):
        _, [alone] = _units(contribution, take_rows(batch, spec, own), context)
        if np.isfinite(alone).all() and not _within(beside - alone, float(norms[own].sum())):
            raise FaultyContributionError("what a unit adds depends on the other units")


def _made_up(
    contribution: Contribution, spec: Mapping[str, ColumnSpec], context: Any
) -> tuple[Batch, np.ndarray]:
    """Return artificial records with their draws, and their norms."""
    batch = probe_records(spec, np.random.default_rng(0))
    batch = with_draws(contribution, batch, context, np.random.default_rng(0))
    norms = contribution.norms(contribution.prepare(batch, context), context)
    if norms.shape != (ALIKE + MIXED,):
        raise FaultyContributionError("it has not one norm for each record")
    return batch, norms


def is_same_in_any_batch(
    contribution: Contribution, spec: Mapping[str, ColumnSpec], context: Any, *, of_units: bool
) -> bool:
    """Whether artificial records, or units, add the same vector in any batch, to the last bit."""
    batch, norms = _made_up(contribution, spec, context)
    kept = np.flatnonzero(norms <= LARGEST_NORM)
    if not kept.size:
        return False
    at_once, vectors_in = (3, _units_in) if of_units else (1, _records_in)
    every = np.arange(ALIKE + MIXED) if of_units else kept
    many = np.concatenate([np.roll(every, k) for k in range(MANY // len(every))])
    many = many[: len(many) // at_once * at_once]
    in_many = vectors_in(contribution, take_rows(batch, spec, many), context)
    for place in range(0, len(many) // at_once, 1 + len(many) // COMPARED):
        two = np.tile(many[at_once * place :][:at_once], 2)
        alone = vectors_in(contribution, take_rows(batch, spec, two), context)(0)
        if in_many(place) != alone or not (of_units or norms[two[0]].tobytes() == alone[0]):
            return False
    return True


def _records_in(contribution: Contribution, batch: Batch, context: Any) -> InBatch:
    """Return a function for the norm of a record in a batch, and what it adds, as bytes."""
    prepared = contribution.prepare(batch, context)
    norms = contribution.norms(prepared, context)

    def one(place: int) -> tuple[bytes, bytes]:
        weights = np.where(np.arange(len(norms)) == place, 1.0, 0.0)
        if isinstance(contribution, RowContribution):
            vector = np.asarray(contribution.rows(prepared, context))[place]
        else:
            vector = contribution.weighted_sum(prepared, context, weights)
        return norms[place].tobytes(), (vector + 0.0).tobytes()  # 0 has two signs

    return one


def _units_in(contribution: Contribution, batch: Batch, context: Any) -> InBatch:
    """Return the same for units of three records each, in their order."""
    sums, vectors = _units(contribution, batch, context)
    return lambda place: (sums[place].tobytes(), (vectors[place] + 0.0).tobytes())


def _units(contribution: Contribution, batch: Batch, context: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums and vectors of units of three records each, in their order."""
    owner = np.arange(len(next(iter(batch.values())))) // 3
    batch = batch | {OWNER: owner} if contribution.together else batch
    prepared, unit = contribution.prepare(batch, context), unit_vector(contribution)
    good = contribution.norms(prepared, context) <= LARGEST_NORM
    sums = unit_sums(unit, prepared, context, owner, good)
    return sums, np.asarray(unit.vectors(sums, context))


def _within(vector: np.ndarray, length: float, times: float = 0) -> bool:
    """Whether a vector's norm is at most ``times * length``, up to the tolerance times length."""
    [norm] = row_norms(vector[None])
    return bool(norm <= length * (times + TOLERANCE) + 1e-200)


def probe_records(spec: Mapping[str, ColumnSpec], rng: np.random.Generator) -> Batch:
    """Generate records of several magnitudes, some in the support of most likelihoods."""
    return {
        name: made_up_column(column, [*range(ALIKE), *rng.integers(0, 20, MIXED)], rng)
        for name, column in spec.items()
    }


def made_up_column(spec: ColumnSpec, kinds: Iterable[int], rng: np.random.Generator) -> np.ndarray:
    """Generate records of one column, each of a kind."""
    core = [length for length in spec.shape if length is not None]
    rows = [_record(spec.dtype, core, kind, rng) for kind in kinds]
    return np.ascontiguousarray(np.moveaxis(np.stack(rows), 0, spec.axis), dtype=spec.dtype)


def _record(dtype: str, core: list[int], kind: int, rng: np.random.Generator) -> np.ndarray:
    """Generate one record: in (0, 1), whole numbers, shares of a whole, or normal variates."""
    whole = WHOLE[kind % len(WHOLE)]
    if not dtype.startswith("float"):
        some = whole * rng.integers(0, 2, core) if core and kind % 2 else np.full(core, whole)
        return np.asarray(some).astype(dtype)
    if kind < 4:
        return rng.uniform(0.1, 0.9, core)
    if kind < 8:
        return np.full(core, float(whole))
    if kind < 11 and core:
        shares = rng.exponential(size=core)
        return shares / shares.sum(axis=-1, keepdims=True)
    scaled = SCALES[kind % len(SCALES)] * rng.normal(size=core)
    return np.abs(scaled) if kind % 2 else scaled
