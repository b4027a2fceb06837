"""Fits of made-up records by the real driver, and what an attacker observes of them.

The two data sets of an audit are with and without one record that stands out, the canary.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.accounting.plan import Neighbours
from pymc_dp.auditing.attack import Observation, features
from pymc_dp.driver.run import Setup, run_releases
from pymc_dp.methods.conjugate.blocks import probe_rows
from pymc_dp.methods.method import Compiled
from pymc_dp.model import Column, PrivateData, Records
from pymc_dp.privacy.contribution import Batch, Contribution, take_rows, with_draws
from pymc_dp.privacy.private_data import ColumnSpec
from pymc_dp.privacy.query import Noisy, Query

# how large candidates are, and what whole numbers they hold
SCALES = (0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 3.0, -3.0, 10.0, -10.0)
WHOLE_NUMBERS = (0, 1, 2, 5)
BACKGROUND_SCALE = 0.01
LARGEST_NORM = 10.0  # a canary whose norm is many times the clip norm shows whether it is clipped
# pairs whose distance is this share of the largest are as good for an attack
SHARE_OF_LARGEST = 0.95


class AskedRelease(NamedTuple):
    """What an attacker knows about one release: what was asked, and under which terms."""

    contribution: Contribution
    context: Any
    clip_norm: float

    def prepared(self, rows: Batch) -> tuple[Any, np.ndarray]:
        """Prepare made-up records, and return the norm of each."""
        # where a contribution makes secret draws for a record, the attacker makes some of their own
        drawn = with_draws(self.contribution, rows, self.context, np.random.default_rng(0))
        at = self.contribution.prepare(drawn, self.context)
        return at, self.contribution.norms(at, self.context)

    def sum(self, at: Any, weights: np.ndarray) -> np.ndarray:
        """Add up the vectors of prepared records, each times its weight."""
        return self.contribution.weighted_sum(at, self.context, weights)


class Pair(NamedTuple):
    """Two neighbouring data sets, and all their records as one batch that the attacker knows."""

    present: PrivateData  # present, absent: the data with and without the canary
    absent: PrivateData
    rows: Batch  # the other records, then the canary, then what takes its place, if anything does
    others: int  # how many other records there are


def candidates(records: Records, rng: np.random.Generator) -> Batch:
    """Make up records of all scales and whole numbers."""
    scales, whole = (grid.ravel() for grid in np.meshgrid(SCALES, WHOLE_NUMBERS))
    rows = probe_rows(records, rng, whole.tolist())
    for name, shape in records.shapes.items():
        if rows[name].dtype.kind == "f":
            along = [-1 if length is None else 1 for length in shape]
            rows[name] = rows[name] * np.reshape(scales, along)
    return rows


def background_records(records: Records, rng: np.random.Generator, count: int) -> Batch:
    """Make up records near zero, which contribute little where a model lets them."""
    rows = probe_rows(records, rng, rng.integers(0, 2, count).tolist())
    return {name: v * BACKGROUND_SCALE if v.dtype.kind == "f" else v for name, v in rows.items()}


def contributing(rows: Batch, seen: list[AskedRelease], spec: Mapping[str, ColumnSpec]) -> Batch:
    """Drop records that a release would leave out, such as those outside a support."""
    with np.errstate(all="ignore"):
        norms = [one.prepared(rows)[1] for one in seen]
    return take_rows(rows, spec, np.flatnonzero(np.isfinite(norms).all(axis=0)))


def choose_canary(
    tried: Batch, seen: list[AskedRelease], neighbours: Neighbours, first: int | None
) -> list[int]:
    """Choose the candidate that contributes most, and under replace-one the farthest pair.

    The canary is one of the ``first`` candidates, or any of them.
    """
    lengths, vectors = [], []
    for one in seen:
        at, norms = one.prepared(tried)
        scale = 1 / np.fmax(norms, one.clip_norm)
        lengths.append(np.fmin(norms / one.clip_norm, LARGEST_NORM))
        vectors.append(np.array([one.sum(at, weights) for weights in np.diag(scale)]))
    length = np.mean(lengths, axis=0)[:first]
    if neighbours is not Neighbours.REPLACE_ONE:
        return [int(length.argmax())]
    distance = np.mean([np.linalg.norm(v[:first, None] - v, axis=2) for v in vectors], axis=0)
    # of pairs that are nearly as distant, the one with the longest canary: it shows clipping
    far = np.where(distance >= SHARE_OF_LARGEST * distance.max(), length[:, None], -np.inf)
    canary, instead = np.unravel_index(far.argmax(), far.shape)
    return [int(canary), int(instead)]


def record_of(canary: Mapping[str, Any], spec: Mapping[str, ColumnSpec]) -> Batch:
    """Read a caller's record as a batch of one."""
    if {*canary} != {*spec}:
        raise ValueError(f"canary= must have a value for each of {sorted(spec)}, and no others.")
    rows = {}
    for name, column in spec.items():
        value = np.asarray(canary[name], "float64")
        if value.shape != tuple(filter(None, column.shape)) or not np.isfinite(value).all():
            raise ValueError(
                f"canary=`{name}` must have one finite number for each of {column.width} columns."
            )
        with np.errstate(all="ignore"):
            stored = value.astype(column.dtype)
        if not np.allclose(stored.astype("float64"), value, rtol=1e-6):
            raise ValueError(f"canary=`{name}` has a value that no {column.dtype} holds.")
        rows[name] = np.expand_dims(stored, column.axis)
    return rows


def neighbouring_data(
    spec: Mapping[str, ColumnSpec], base: Batch, tried: Batch, chosen: list[int]
) -> Pair:
    """Put the chosen records behind the others."""
    added = take_rows(tried, spec, np.array(chosen))
    rows = {n: np.concatenate([base[n], added[n]], axis=spec[n].axis) for n in spec}
    name, column = next(iter(spec.items()))
    count = base[name].shape[column.axis]
    others = np.arange(count)
    instead = np.arange(count + 1, count + len(chosen))
    present, absent = (data_of(spec, rows, np.append(others, last)) for last in ([count], instead))
    return Pair(present, absent, rows, count)


def data_of(spec: Mapping[str, ColumnSpec], rows: Batch, kept: np.ndarray) -> PrivateData:
    """Make data of some made-up rows."""
    taken = take_rows(rows, spec, kept)
    return PrivateData({n: Column(taken[n], c.axis, c.dtype) for n, c in spec.items()})


class AttackedFit(NamedTuple):
    """A fit that is run again and again on made-up records, with and without a canary."""

    setup: Setup
    compiled: Compiled

    def neighbours(
        self, rng: np.random.Generator, rows: int, canary: Mapping[str, Any] | None = None
    ) -> Pair:
        """Choose a canary by what candidates would contribute in a pilot run, or take a given one.

        Raises
        ------
        ValueError
            The given one has other arrays or shapes than a record, or adds nothing to a release.
        """
        records, spec = self.setup.records, self.setup.data.spec
        if self.setup.plan.neighbours is Neighbours.REPLACE_ONE:
            rows -= 1  # so that both data sets have as many as the caller said
        base, tried = background_records(records, rng, rows), candidates(records, rng)
        pilot = data_of(spec, base, np.array([*range(rows), 0]))
        released = self._released(pilot, int(rng.integers(2**32)))
        seen = [self._asked(query) for query, _ in released]
        base, tried = (contributing(made, seen, spec) for made in (base, tried))
        first: int | None = None
        if canary is not None:
            own, first = contributing(record_of(canary, spec), seen, spec), 1
            if any(own[name].shape[column.axis] == 0 for name, column in spec.items()):
                raise ValueError(
                    "canary= adds nothing to a release, as a record outside the support of its "
                    "outcome does: give one that the model can have."
                )
            tried = {n: np.concatenate([own[n], tried[n]], axis=spec[n].axis) for n in spec}
        chosen = choose_canary(tried, seen, self.setup.plan.neighbours, first)
        return neighbouring_data(spec, base, tried, chosen)

    def _released(self, data: PrivateData, seed: int) -> list[tuple[Query, Noisy]]:
        """Run a fit by the real driver and the real wall, and keep what it released."""
        seen: list[tuple[Query, Noisy]] = []

        def update(state: Any, query: Query, noisy: Noisy) -> Any:
            seen.append((query, noisy))
            return self.compiled.update(state, query, noisy)

        setup = self.setup._replace(data=data)
        spied = self.compiled._replace(update=update)
        run_releases(setup, spied, np.random.default_rng(seed), range(self.setup.plan.total))
        return seen

    def attack(self, pair: Pair, with_canary: bool, seed: int) -> np.ndarray:
        """Run a fit with or without the canary; return the attacker's features of it."""
        released = self._released(pair.present if with_canary else pair.absent, seed)
        return features([self._observation(pair, query, noisy) for query, noisy in released])

    def _observation(self, pair: Pair, query: Query, noisy: Noisy) -> Observation:
        """Subtract what the attacker expects of the others."""
        # the attacker clips by itself: a fault of the wall's must not become the attacker's
        asked = self._asked(query)
        with np.errstate(all="ignore"):
            at, norms = asked.prepared(pair.rows)
            weights = np.fmin(1.0, asked.clip_norm / norms)
            weights[~np.isfinite(norms)] = 0.0
            known, canary = np.arange(len(norms)), np.arange(len(norms)) == pair.others
            instead = known > pair.others
            base = asked.sum(at, weights * ~canary)
            shift = asked.sum(at, weights * (1.0 * canary - instead))
        rest = noisy.value - noisy.sample_rate * base
        return Observation(query.name, rest / noisy.sd, shift / noisy.sd, noisy.sample_rate)

    def _asked(self, query: Query) -> AskedRelease:
        found = self.compiled.contributions[query.name]
        if not isinstance(found, Contribution):
            raise ValueError(
                f"Release {query.name!r} is no sum over records, so no canary adds to it."
            )
        planned = next(r.clip_norm for r in self.setup.plan.releases if r.name == query.name)
        clip_norm = planned if query.clip_norm is None else query.clip_norm
        return AskedRelease(found, query.context, clip_norm)
