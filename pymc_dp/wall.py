"""The privacy wall: the one object that holds data, and the one door out of it.

A release draws a batch, clips what each privacy unit contributes, sums, books the spend and adds
noise. The unit is a record, unless the caller says which records belong together.
No other code sees a record, so no other code can leak one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions import Contribution
from pymc_dp.contributions.contribution import Batch, row_norms
from pymc_dp.contributions.posterior_draw import PosteriorDraw
from pymc_dp.errors import ReleaseError
from pymc_dp.plans import Plan
from pymc_dp.records import Column
from pymc_dp.release import Release
from pymc_dp.rng import SecretRandom
from pymc_dp.sampling import draw
from pymc_dp.units import Units

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

    @property
    def noise_to_signal(self) -> float:
        """The noise's expected norm over the norm of what was released."""
        return float(self.sd * self.value.size**0.5 / max(np.linalg.norm(self.value), 1e-300))


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
    units : Units, optional
        Which records belong to one privacy unit, if it is not the record.
    reserve : callable, optional
        Called once all is checked: sets the plan aside, and returns what is called to book every
        release before it is made.

    Raises
    ------
    ValueError
        Batches have a fixed size and the number of records is not the plan's, or the privacy unit
        is not the plan's.
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        contributions: Mapping[str, Contribution | PosteriorDraw],
        plan: Plan,
        units: Units | None = None,
        reserve: Callable[[], Callable[[], None]] | None = None,
    ) -> None:
        if (units and units.name) != plan.unit:
            raise ValueError(
                f"The plan is for unit={plan.unit!r}, but the wall was not given these units."
            )
        self._columns = dict(columns)
        self._num_records = next(iter(columns.values())).rows
        self._units = units
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
        self._book_outside = reserve() if reserve else None

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
        **Privacy.** One Gaussian mechanism. A unit, with all its records, moves the sum by at most
        ``clip_norm`` C in L2 norm (2C under replace-one), whatever the values; noise of standard
        deviation ``noise_multiplier * C`` covers it. With ``quantile`` the vector has one more
        coordinate, of norm at most ``COUNT_SHARE * C`` a unit, and the noise grows with the joint
        norm.
        """
        release = self._book(query.name)
        contribution = self._contributions[query.name]
        if isinstance(contribution, PosteriorDraw):
            return self._posterior_draw(contribution, release, query.context)
        if release.mechanism != "gaussian":
            raise ReleaseError(f"The plan accounts {release.name!r} as a draw, not a noisy sum.")
        bound = release.clip_norm if query.clip_norm is None else query.clip_norm
        if not bound > 0:
            raise ReleaseError(f"Release {query.name!r} is asked with clip_norm={bound!r}.")
        joint, scale = _with_count(bound, query.quantile)
        count = self._num_records if self._units is None else self._units.number
        chosen = draw(release.sampling, self._random.generator, count, release.sample_rate)
        total = np.zeros(contribution.size + 1)
        for part in self._groups(chosen, contribution):
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
                if self._book_outside:
                    self._book_outside()
                return release
        raise ReleaseError(f"The plan holds no further release {name!r}.")

    def _posterior_draw(self, contribution: PosteriorDraw, release: Release, start: Any) -> Noisy:
        """Draw once from the posterior of all good records at the release's temperature.

        **Privacy.** The exponential mechanism, as far as the draw is exact: a record moves the log
        density by at most ``clip_norm / temperature``, whatever its values. Nothing else of the
        chain is handed out.
        """
        if release.mechanism != "exponential":
            raise ReleaseError(f"The plan accounts {release.name!r} as a noisy sum, not a draw.")
        bound = release.clip_norm * (1 - CLIP_MARGIN)
        rng = np.random.default_rng(self._random.generator.integers(2**32, size=8))
        try:
            with np.errstate(all="ignore"):
                batch = self._take(np.arange(self._num_records))
                good = np.flatnonzero(~np.isnan(contribution.log_likelihoods(batch, start)))
                z = contribution.draw(self._take(good), start, bound, release.temperature, rng)
        except Exception as error:  # its text may quote data
            raise ReleaseError(f"The sampler failed with {type(error).__name__}.") from None
        if not np.isfinite(z).all():
            raise ReleaseError(f"Release {release.name!r} is not finite; nothing is handed out.")
        return Noisy(z, 0.0, 1.0)

    def _take(self, rows: np.ndarray) -> Batch:
        return {name: column.take(rows) for name, column in self._columns.items()}

    def _groups(self, chosen: np.ndarray, contribution: Contribution) -> Iterable[np.ndarray]:
        """Cut a batch into units that are summed in one go."""
        if self._units is None:
            return self._parts(chosen, contribution.width)
        return self._units.cut(chosen, self._width + contribution.unit_size)

    def _parts(self, rows: np.ndarray, width: int) -> Iterator[np.ndarray]:
        """Cut rows so that memory stays bounded; an empty batch has no parts."""
        size = max(1, PART_SIZE // max(1, self._width + width))
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    def _clipped_sum(
        self,
        contribution: Contribution,
        chosen: np.ndarray,
        query: Query,
        bound: float,
    ) -> np.ndarray:
        """Sum the clipped contributions of some units; last comes the count of clipped ones."""
        by_unit = self._units and partial(self._sum_of_units, self._units)
        add_up = by_unit or self._sum_of_records
        try:
            with np.errstate(all="ignore"):  # bad records are expected, and warnings can be errors
                total, norms = add_up(contribution, chosen, query.context, bound)
        except Exception as error:  # its text may quote data
            raise ReleaseError(f"The graph failed with {type(error).__name__}.") from None
        excess = 0.0
        if query.quantile is not None:
            excess = float(((norms > bound) - (1 - query.quantile))[np.isfinite(norms)].sum())
        return np.append(total, excess)

    def _sum_of_records(
        self, contribution: Contribution, rows: np.ndarray, context: Any, bound: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Clip every record, and sum."""
        prepared, norms = self._prepare(contribution, rows, context)
        good = np.isfinite(norms)
        if not good.any():
            return np.zeros(contribution.size), norms
        weights = np.where(good, _clip_weights(norms, bound), 0.0)
        return contribution.weighted_sum(prepared, context, weights), norms

    def _sum_of_units(
        self,
        units: Units,
        contribution: Contribution,
        chosen: np.ndarray,
        context: Any,
        bound: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sum every unit, clip that very vector, and sum; a unit that overflows adds nothing."""
        sums = self._unit_sums(contribution, *units.rows(chosen), context)
        # a record of another unit can have spoilt a sum, by zero times infinity: each alone
        for i in np.flatnonzero(~np.isfinite(sums).all(axis=1)):
            alone = units.rows(chosen[i : i + 1])
            [sums[i]] = self._unit_sums(contribution, *alone, context)
        vectors = contribution.unit_vectors(sums)
        norms = row_norms(vectors)
        good = np.isfinite(norms)
        return _clip_weights(norms[good], bound) @ vectors[good], norms

    def _unit_sums(
        self, contribution: Contribution, rows: np.ndarray, owner: np.ndarray, context: Any
    ) -> np.ndarray:
        """Sum the rows of each owner in parts, shape (units, unit_size)."""
        total = np.zeros((owner[-1] + 1, contribution.unit_size))
        width = contribution.width + contribution.unit_size
        for part in self._parts(np.arange(len(rows)), width):
            prepared, norms = self._prepare(contribution, rows[part], context)
            good = np.isfinite(norms)
            sums = contribution.unit_sums(prepared, context, owner[part], good)
            total[: len(sums)] += sums
        return total

    def _prepare(
        self, contribution: Contribution, rows: np.ndarray, context: Any
    ) -> tuple[Any, np.ndarray]:
        """Prepare some rows for their sum, and measure the norm of each.

        A record whose norm is not finite must weigh nothing, and the row of a good record takes
        its place in the graph: zero times nan would be nan.
        """
        batch = self._take(rows)
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
        raise TypeError("The privacy wall holds data and must not be pickled or copied.")


def _clip_weights(norms: np.ndarray, bound: float) -> np.ndarray:
    """The factor that brings each contribution's norm to at most ``bound``."""
    return np.fmin(1.0, bound * (1 - CLIP_MARGIN) / norms)


def _with_count(bound: float, quantile: float | None) -> tuple[float, float]:
    """The joint norm of a contribution and its share of the count, and the count's scale."""
    if quantile is None:
        return bound, 0.0
    return bound * np.hypot(1, COUNT_SHARE), COUNT_SHARE * bound / max(quantile, 1 - quantile)
