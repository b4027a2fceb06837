"""The privacy wall: the one object that holds data, and the one door out of it.

A release draws a batch, clips what each privacy unit contributes, sums, books the spend and adds
noise. The unit is a record, unless the caller says which records belong together.
No other code sees a record, so no other code can leak one.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pymc_dp.clipped_sum import CLIP_MARGIN, ByRecord, ByUnit
from pymc_dp.contributions import Contribution
from pymc_dp.contributions.posterior_draw import PosteriorDraw
from pymc_dp.errors import ReleaseError
from pymc_dp.plans import Plan
from pymc_dp.query import Noisy, Query
from pymc_dp.records import Column
from pymc_dp.release import Release
from pymc_dp.rng import SecretRandom
from pymc_dp.sampling import draw
from pymc_dp.units import Units

# share of the clip norm that the private count of clipped records takes beside the sum
COUNT_SHARE = 0.2


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
        self._data = ByRecord(columns)
        self._summed = ByUnit(self._data, units) if units else self._data
        self._contributions = dict(contributions)
        self._left = deque(release for release in plan.releases for _ in range(release.count))
        self._made: list[Release] = []
        self._random = SecretRandom()
        fixed = any(release.sampling == "fixed_size" for release in plan.releases)
        if fixed and plan.num_records != self._data.number:
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
        number = self._summed.number
        chosen = draw(release.sampling, self._random.generator, number, release.sample_rate)
        total = np.zeros(contribution.size + 1)
        for part in self._summed.cut(chosen, contribution):
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
                batch = self._data.take(np.arange(self._data.number))
                good = np.flatnonzero(~np.isnan(contribution.log_likelihoods(batch, start)))
                batch = self._data.take(good)
                z = contribution.draw(batch, start, bound, release.temperature, rng)
        except Exception as error:  # its text may quote data
            raise ReleaseError(f"The sampler failed with {type(error).__name__}.") from None
        if not np.isfinite(z).all():
            raise ReleaseError(f"Release {release.name!r} is not finite; nothing is handed out.")
        return Noisy(z, 0.0, 1.0)

    def _clipped_sum(
        self, contribution: Contribution, chosen: np.ndarray, query: Query, bound: float
    ) -> np.ndarray:
        """Sum the clipped contributions of one part; last comes the count of clipped ones."""
        try:
            with np.errstate(all="ignore"):  # bad records are expected, and warnings can be errors
                total, norms = self._summed.clipped_sum(contribution, chosen, query.context, bound)
        except Exception as error:  # its text may quote data
            raise ReleaseError(f"The graph failed with {type(error).__name__}.") from None
        excess = 0.0
        if query.quantile is not None:
            excess = float(((norms > bound) - (1 - query.quantile))[np.isfinite(norms)].sum())
        return np.append(total, excess)

    def __reduce__(self):
        raise TypeError("The privacy wall holds data and must not be pickled or copied.")


def _with_count(bound: float, quantile: float | None) -> tuple[float, float]:
    """The joint norm of a contribution and its share of the count, and the count's scale."""
    if quantile is None:
        return bound, 0.0
    return bound * np.hypot(1, COUNT_SHARE), COUNT_SHARE * bound / max(quantile, 1 - quantile)
