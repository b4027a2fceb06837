"""The two data sets of an audit: made-up records, with and without one that stands out."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions import Contribution
from pymc_dp.contributions.contribution import Batch
from pymc_dp.methods.blocks.made_up import made_up_rows
from pymc_dp.records import Column, Records

# how far candidates reach, and what whole numbers they hold
REACHES = (0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 3.0, -3.0, 10.0, -10.0)
WHOLE = (0, 1, 2, 5)
QUIET = 0.01
# a canary whose norm is many times the clip norm shows whether it is clipped
LONGEST = 10.0


class Seen(NamedTuple):
    """What an attacker knows about one release: what was asked, and under which terms."""

    contribution: Contribution
    context: object
    clip_norm: float


class Neighbours(NamedTuple):
    """Two neighbouring data sets, and all their records as one batch that the attacker knows.

    Attributes
    ----------
    present, absent : {name: Column}
        The data with and without the canary.
    rows : Batch
        The other records, then the canary, then what takes its place, if anything does.
    others : int
        How many other records there are.
    """

    present: dict[str, Column]
    absent: dict[str, Column]
    rows: Batch
    others: int


def candidates(records: Records, rng: np.random.Generator) -> Batch:
    """Make up records of all reaches and whole numbers."""
    reaches, whole = (grid.ravel() for grid in np.meshgrid(REACHES, WHOLE))
    rows = made_up_rows(records, rng, whole.tolist())
    for name, shape in records.shapes.items():
        if rows[name].dtype.kind == "f":
            along = [-1 if length is None else 1 for length in shape]
            rows[name] = rows[name] * np.reshape(reaches, along)
    return rows


def others(records: Records, rng: np.random.Generator, count: int) -> Batch:
    """Make up records near zero, which contribute little where a model lets them.

    A batch holds some of them, and the attacker cannot tell which: they act as noise.
    """
    rows = made_up_rows(records, rng, rng.integers(0, 2, count).tolist())
    return {name: v * QUIET if v.dtype.kind == "f" else v for name, v in rows.items()}


def usable(rows: Batch, seen: list[Seen], columns: dict[str, Column]) -> Batch:
    """Drop records that a release would leave out, such as those outside a support."""
    kept = np.flatnonzero(np.isfinite([_norms(rows, one) for one in seen]).all(axis=0))
    return {name: np.take(rows[name], kept, axis=column.axis) for name, column in columns.items()}


def _norms(rows: Batch, seen: Seen) -> np.ndarray:
    with np.errstate(all="ignore"):
        return seen.contribution.norms(seen.contribution.prepare(rows, seen.context), seen.context)


def choose(tried: Batch, seen: list[Seen], neighbours: str) -> list[int]:
    """Choose the candidate that contributes most, and under replace-one its farthest opposite."""
    lengths, vectors = zip(*(_measured(tried, one) for one in seen), strict=True)
    canary = int(np.mean(lengths, axis=0).argmax())
    if neighbours != "replace_one":
        return [canary]
    apart = [np.linalg.norm(each - each[canary], axis=1) for each in vectors]
    return [canary, int(np.mean(apart, axis=0).argmax())]


def _measured(tried: Batch, seen: Seen) -> tuple[np.ndarray, np.ndarray]:
    """The candidates' norms and clipped vectors, in units of the clip norm."""
    at = seen.contribution.prepare(tried, seen.context)
    norms = seen.contribution.norms(at, seen.context) / seen.clip_norm
    scale = 1 / np.fmax(norms, 1) / seen.clip_norm
    alone = [seen.contribution.weighted_sum(at, seen.context, one) for one in np.diag(scale)]
    return np.fmin(norms, LONGEST), np.array(alone)


def plant(columns: dict[str, Column], base: Batch, tried: Batch, chosen: list[int]) -> Neighbours:
    """Put the chosen records behind the others; ``columns`` tell the axes and types."""
    rows = {
        name: np.concatenate(
            [base[name], np.take(tried[name], chosen, axis=column.axis)], axis=column.axis
        )
        for name, column in columns.items()
    }
    name, column = next(iter(columns.items()))
    count = base[name].shape[column.axis]
    first = [*range(count), count]
    second = [*range(count), *range(count + 1, count + len(chosen))]
    present, absent = (columns_of(columns, rows, kept) for kept in (first, second))
    return Neighbours(present, absent, rows, count)


def columns_of(columns: dict[str, Column], rows: Batch, kept: list[int]) -> dict[str, Column]:
    """Make columns of some made-up rows."""
    return {
        name: column._replace(values=np.take(rows[name], kept, axis=column.axis))
        for name, column in columns.items()
    }
