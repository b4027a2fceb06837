"""The privacy wall: the only object that reads private data during a fit, and its only output.

A release is booked, then draws a batch, clips the vector of each privacy unit, adds the vectors up
and adds noise. The unit is a record, unless the caller declares which records belong together.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from pymc_dp.accounting.plan import GAUSSIAN, SMALLEST_CLIP_NORM, Plan, Release
from pymc_dp.errors import ReleaseError
from pymc_dp.privacy.clipping import BeyondBoundError
from pymc_dp.privacy.contribution import Contribution, Contributions, FactoredContribution
from pymc_dp.privacy.noise import MOST_UNITS, Grid, SecretRandom
from pymc_dp.privacy.partitions import Ask, PartitionError, in_partitions, nothing, one_of_each
from pymc_dp.privacy.private_data import PrivateData, open_private, refuse_copies
from pymc_dp.privacy.query import Noisy, Query


class PrivacyWall:
    """Release noisy sums of private data, as many as the plan holds.

    ``contributions`` are by the name of the release. ``reserve`` is called once all is checked: it
    reserves the plan's budget, and returns a function that books each release before it is made, or
    None where the caller books it (a checkpoint does).
    ``compile_again`` compiles the contributions once more, for other threads and processes, and
    ``done`` is called whenever a partition has answered. ``made`` names releases of this plan that
    an interrupted fit has booked and made: they are not made again.
    Raises ValueError where the privacy unit is not the plan's.
    """

    def __init__(
        self,
        data: PrivateData,
        contributions: Contributions,
        plan: Plan,
        reserve: Callable[[], Callable[[Release], None] | None] | None = None,
        *,
        compile_again: Callable[[], Contributions] | None = None,
        done: Callable[[], None] = nothing,
        made: Sequence[str] = (),
    ) -> None:
        if data.unit != plan.unit:
            raise ValueError(
                f"The plan is for unit={plan.unit!r}, but the data are those of unit={data.unit!r}."
            )
        self.random = SecretRandom()  # results describe it
        self._partitions = in_partitions(*open_private(data))
        self._contributions = dict(contributions)
        self._remaining = deque(release for release in plan.releases for _ in range(release.count))
        self._made: list[Release] = []
        for name in made:
            self._take(name)
        self._process = os.getpid()
        number = sum(self._partitions.numbers)
        if number > MOST_UNITS:
            raise ValueError(
                f"Sums are proved for at most {MOST_UNITS:,} records or units: fit a random part "
                "of them."
            )
        again = compile_again or partial(dict, self._contributions)
        self._partitions.ready(self._contributions, again, done)
        self._book_outside = reserve() if reserve else None

    @property
    def made(self) -> tuple[Release, ...]:
        """The releases booked so far, in order."""
        return tuple(self._made)

    def release(self, query: Query) -> Noisy:
        """Release one noisy sum of clipped contributions.

        Raises ReleaseError, and releases nothing, where the plan holds no such release, where the
        sum is not finite or longer than its bound, or in a fork of the process.

        **Privacy.** One Gaussian mechanism. Adding or removing a unit, with all its records, moves
        the clipped sum by at most C = ``clip_norm`` in L2 norm, whatever its values; replacing one
        moves it by at most 2C. In every coordinate the sum is a whole number of steps of a grid, to
        which Gaussian noise of standard deviation ``noise_multiplier * C`` is rounded: this is the
        Gaussian mechanism, followed by a rounding of its result. The plan's accountant computes
        epsilon from this ratio, the neighbour relation and the sampler. A release that the plan
        accounts otherwise is made by the method's own mechanism, which states its proof.
        """
        if self._process != os.getpid():
            raise ReleaseError("The fit belongs to the process that started it, not to its forks.")
        release = self._book(query.name)
        contribution = self._contributions[query.name]
        if not isinstance(contribution, Contribution):
            return contribution.release(self._partitions.whole(), release, query, self.random)
        if release.mechanism != GAUSSIAN:
            raise ReleaseError(f"The plan does not account {release.name!r} as a noisy sum.")
        bound = release.clip_norm if query.clip_norm is None else query.clip_norm
        if not bound >= SMALLEST_CLIP_NORM or (release.noise_multiplier and np.isinf(bound)):
            raise ReleaseError(f"Release {query.name!r} is asked with clip_norm={bound!r}.")
        sd = release.noise_multiplier * bound if release.noise_multiplier else 0.0
        sizes = release.sampler.sizes(self.random.generator, self._partitions.numbers)
        grid = Grid.of(bound, sd, contribution.size, isinstance(contribution, FactoredContribution))
        steps = self._clipped_sum(contribution.size, sizes, query, grid)
        if grid.step:
            steps = steps + self.random.rounded_gaussian(sd, grid.step, steps.size)
        return Noisy(grid.value(steps), sd, release.sampler.rate)

    def _book(self, name: str) -> Release:
        release = self._take(name)
        if self._book_outside:
            self._book_outside(release)
        return release

    def _take(self, name: str) -> Release:
        """Take a release from those that the plan still holds."""
        for release in self._remaining:
            if release.name == name:
                self._remaining.remove(release)
                self._made.append(release)
                return release
        raise ReleaseError(f"The plan holds no further release {name!r}.")

    def _clipped_sum(self, size: int, sizes: np.ndarray, query: Query, grid: Grid) -> np.ndarray:
        """Add up the partitions' clipped sums, in grid steps; check each against its bound."""
        position, context = len(self._made), query.context
        ask = Ask(position, query.name, sizes, context, grid, self.random)
        total = grid.nothing(size)
        try:
            for found in one_of_each(self._partitions.clipped_sums(ask), ask):
                if not found.is_within(grid):
                    raise BeyondBoundError
                total = total.plus(found.total)
        except BeyondBoundError:
            raise ReleaseError(
                f"Release {query.name!r} is not finite, or beyond its bound, although each "
                "record's part was clipped; nothing is released. Look for values near the limits "
                "of double precision, or try another backend."
            ) from None
        except PartitionError as error:
            raise error.kind(
                f"Release {query.name!r} ends the fit: {error}. Its budget is spent, and nothing "
                "of it is handed out."
            ) from None
        except Exception as error:  # its text may quote data
            raise ReleaseError(f"The graph failed with {type(error).__name__}.") from None
        return grid.rounded(total)

    __reduce__ = refuse_copies
