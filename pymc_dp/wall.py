"""The privacy wall: the one object that holds data, and the one door out of it.

A release draws a batch, clips each record's contribution, sums, books the spend and adds noise.
No other code sees a record, so no other code can leak one.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions import Contribution
from pymc_dp.contributions.contribution import Batch
from pymc_dp.errors import ReleaseError
from pymc_dp.plans import Plan
from pymc_dp.records import Column
from pymc_dp.release import Release
from pymc_dp.rng import SecretRandom
from pymc_dp.sampling import draw

# weights aim this much below the clip norm, so that rounding cannot carry a record above it
CLIP_MARGIN = 1e-6
# numbers that one part of a large batch may hold: 64 MB in double precision
PART_SIZE = 2**23
# share of the clip norm that the private count of clipped records takes beside the sum
COUNT_SHARE = 0.2


class Noisy(NamedTuple):
    """A released sum.

    Attributes
    ----------
    value : ndarray, shape (size,)
        The clipped sum over the batch plus noise.
    sd : float
        The noise's standard deviation in every coordinate.
    sample_rate : float
        The rate at which records were drawn: ``value / sample_rate`` estimates the full sum.
    many_clipped : bool or None
        Whether more than the asked share of records seems to have been clipped.
    """

    value: np.ndarray
    sd: float
    sample_rate: float
    many_clipped: bool | None = None


class Query(NamedTuple):
    """What is asked of the wall; public values alone.

    Attributes
    ----------
    name : str
        The plan must still hold a release of this name.
    context : any
        What the contribution depends on beside the record.
    clip_norm : float, optional
        In place of the plan's; a function of released values alone.
    quantile : float in (0, 1), optional
        Also ask whether more than a share ``1 - quantile`` of the records was clipped.
    draw : any
        What the asker remembers of the public draw behind the context.
    """

    name: str
    context: Any
    clip_norm: float | None = None
    quantile: float | None = None
    draw: Any = None


class PrivacyWall:
    """Hold the data and hand out noisy sums, as many as the plan holds.

    Parameters
    ----------
    columns : mapping
        The data, by the leaf's name.
    contributions : mapping
        What records contribute, by the name of the release.
    plan : Plan

    Raises
    ------
    ValueError
        Batches have a fixed size and the number of records is not the plan's.
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        contributions: Mapping[str, Contribution],
        plan: Plan,
    ) -> None:
        self._columns = dict(columns)
        self._num_records = next(iter(columns.values())).rows
        self._width = sum(column.width for column in columns.values())
        self._contributions = dict(contributions)
        self._left = deque(release for release in plan.releases for _ in range(release.count))
        self._made: list[Release] = []
        self._random = SecretRandom()
        fixed = any(release.sampling == "fixed_size" for release in plan.releases)
        if fixed and plan.num_records != self._num_records:
            raise ValueError(
                f"num_records={plan.num_records} is not the number of records, which fixed-size "
                "batches need to be exact (it is public under replace-one neighbours)."
            )

    @property
    def made(self) -> tuple[Release, ...]:
        """The releases booked so far, in order."""
        return tuple(self._made)

    @property
    def random(self) -> SecretRandom:
        """The source of noise, for what a result says about it."""
        return self._random

    def release(self, query: Query) -> Noisy:
        """Release one noisy sum of clipped contributions.

        Returns
        -------
        Noisy

        Raises
        ------
        ReleaseError
            The plan holds no such release, or the sum is not finite. Nothing is handed out.

        Notes
        -----
        **Privacy.** One Gaussian mechanism. A record moves the sum by at most ``clip_norm`` C in
        L2 norm (2C under replace-one), whatever its values; noise of standard deviation
        ``noise_multiplier * C`` covers it. With ``quantile`` the vector has one more coordinate,
        of norm at most ``COUNT_SHARE * C`` a record, and the noise grows with the joint norm.
        """
        release = self._book(query.name)
        bound = release.clip_norm if query.clip_norm is None else query.clip_norm
        joint, scale = _with_count(bound, query.quantile)
        contribution = self._contributions[query.name]
        chosen = draw(
            release.sampling, self._random.generator, self._num_records, release.sample_rate
        )
        total = np.zeros(contribution.size + 1)
        for part in self._parts(chosen, contribution):
            total += self._clipped_sum(contribution, part, query, bound)
        total[-1] *= scale
        if not np.isfinite(total).all():
            raise ReleaseError(
                f"Release {query.name!r} is not finite although each record's part is; nothing is "
                "handed out. Look for values near the limits of double precision."
            )
        sd = release.noise_multiplier * joint if release.noise_multiplier else 0.0
        noisy = total + self._random.gaussian(sd, total.size)
        clipped = None if query.quantile is None else bool(noisy[-1] > 0)
        return Noisy(noisy[:-1], sd, release.sample_rate, clipped)

    def _book(self, name: str) -> Release:
        for release in self._left:
            if release.name == name:
                self._left.remove(release)
                self._made.append(release)
                return release
        raise ReleaseError(f"The plan holds no further release {name!r}.")

    def _parts(self, rows: np.ndarray, contribution: Contribution) -> Iterator[np.ndarray]:
        """Cut a batch so that memory stays bounded; an empty batch has no parts."""
        size = max(1, PART_SIZE // max(1, self._width + contribution.width))
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    def _clipped_sum(
        self,
        contribution: Contribution,
        rows: np.ndarray,
        query: Query,
        bound: float,
    ) -> np.ndarray:
        """Sum the clipped contributions of some rows; last comes the count of clipped records.

        A record whose norm is not finite contributes nothing, and the row of a good record takes
        its place in the graph: zero times nan would be nan.
        """
        try:
            with np.errstate(all="ignore"):  # bad records are expected, and warnings can be errors
                batch = {name: column.take(rows) for name, column in self._columns.items()}
                prepared = contribution.prepare(batch, query.context)
                norms = contribution.norms(prepared, query.context)
                if norms.shape != rows.shape:
                    raise ValueError("there is not one norm for each record")
                good = np.isfinite(norms)
                if not good.any():
                    return np.zeros(contribution.size + 1)
                if not good.all():
                    batch = self._without_bad_rows(batch, good)
                    prepared = contribution.prepare(batch, query.context)
                weights = np.where(good, _clip_weights(norms, bound), 0.0)
                total = contribution.weighted_sum(prepared, query.context, weights)
        except Exception as error:  # its text may quote data
            raise ReleaseError(f"The graph failed with {type(error).__name__}.") from None
        excess = 0.0
        if query.quantile is not None:
            excess = float(((norms > bound) - (1 - query.quantile))[good].sum())
        return np.append(total, excess)

    def _without_bad_rows(self, batch: Batch, good: np.ndarray) -> Batch:
        source = np.where(good, np.arange(len(good)), np.flatnonzero(good)[0])
        return {
            name: np.take(values, source, axis=self._columns[name].axis)
            for name, values in batch.items()
        }

    def __reduce__(self):
        raise TypeError("The privacy wall holds data and must not be pickled or copied.")


def _clip_weights(norms: np.ndarray, bound: float) -> np.ndarray:
    """The factor that brings each contribution's norm to at most ``bound``."""
    return np.fmin(1.0, bound * (1 - CLIP_MARGIN) / norms)


def _with_count(bound: float, quantile: float | None) -> tuple[float, float]:
    """The joint norm of a contribution and its share of the count, and the count's scale."""
    if quantile is None:
        return bound, 0.0
    return bound * np.hypot(1, COUNT_SHARE), COUNT_SHARE * bound / max(quantile, 1 - quantile)
