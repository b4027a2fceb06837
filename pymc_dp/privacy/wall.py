"""The privacy wall: the only object that reads private data during a fit, and its only output.

A release is booked, then draws a batch, clips the vector of each privacy unit, adds the vectors up
and adds noise. The unit is a record, unless the caller declares which records belong together.

Records are in partitions: one in memory, or several in chunks (`privacy.chunks`), maybe on other
machines. ``ready`` brings contributions there, before anything is booked. For ``clipped_sums`` each
draws its part of a batch, clips, adds up and hands over nothing else; ``done`` is called after
each. ``read`` calls a function of each, for private values.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pymc_dp.accounting.plan import GAUSSIAN, SMALLEST_CLIP_NORM, Plan, Release
from pymc_dp.errors import ReleaseError
from pymc_dp.privacy.clipping import TOO_LONG, Answer, Ask, PartitionError, clipped_sum
from pymc_dp.privacy.contribution import (
    Contribution,
    Contributions,
    FactoredContribution,
    Noisy,
    Query,
)
from pymc_dp.privacy.private_data import (
    Blocks,
    Columns,
    Partition,
    PrivateData,
    Units,
    open_private,
    secret,
)
from pymc_dp.privacy.randomness import MOST_UNITS, Grid, SecretRandom

if TYPE_CHECKING:
    from pymc_dp.privacy.chunks import Chunked


def nothing() -> None:
    """Report nothing."""


@secret
class PrivacyWall:
    """Release noisy sums of private data, as many as the plan holds.

    ``contributions`` are by the name of the release. ``reserve`` is called once all is checked: it
    reserves the plan's budget, and returns a function that books each release before it is made, or
    None where the caller books it (a checkpoint does). ``compile_again`` compiles contributions for
    other threads and processes, and ``done`` is called whenever a partition has answered. ``made``
    names releases that an interrupted fit has booked and made: they are not made again.
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
        self._book_outside: Callable[[Release], None] | None = None
        for name in made:
            self._book(name)
        self._process = os.getpid()
        if sum(self._partitions.numbers) > MOST_UNITS:
            text = f"Sums are proved for at most {MOST_UNITS:,} records or units"
            raise ValueError(f"{text}: fit a random part of them.")
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
            # of one partition: `Chunked.ready` has refused what reads all records at once
            [noisy] = self._partitions.read(
                lambda records: contribution.release(records, release, query, self.random)
            )
            return cast(Noisy, noisy)
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
        """Take a release from those that the plan still holds."""
        for release in self._remaining:
            if release.name == name:
                self._remaining.remove(release)
                self._made.append(release)
                if self._book_outside:
                    self._book_outside(release)
                return release
        raise ReleaseError(f"The plan holds no further release {name!r}.")

    def _clipped_sum(self, size: int, sizes: np.ndarray, query: Query, grid: Grid) -> np.ndarray:
        """Add up the partitions' clipped sums, in grid steps; check each against its bound."""
        ask = Ask(len(self._made), query.name, sizes, query.context, grid)
        total = grid.nothing(size)
        try:
            answers = list(self._partitions.clipped_sums(ask, self.random))
            # otherwise a record would count twice, or the batch would not be the one that was drawn
            expected = [(ask.position, k, int(size)) for k, size in enumerate(sizes)]
            if [(answer.position, answer.place, answer.number) for answer in answers] != expected:
                raise PartitionError("the partitions did not answer once each")
            for answer in answers:
                if not grid.holds(answer.total, answer.number):
                    raise PartitionError(TOO_LONG)
                total = total.plus(answer.total)
        except PartitionError as error:
            text = f"Release {query.name!r} ends the fit: {error}"
            raise error.kind(f"{text}. Its budget is spent, and nothing is handed out.") from None
        except Exception as error:  # its text may quote data
            raise ReleaseError(f"The graph failed with {type(error).__name__}.") from None
        return grid.rounded(total)


@secret
class InMemory:
    """One partition: arrays, memory maps and sparse matrices."""

    def __init__(self, columns: Columns, units: Units | None) -> None:
        self._partition = Partition(columns, units)
        self.numbers = np.array([self._partition.number])  # of records, or units, in each

    def ready(
        self,
        contributions: Contributions,
        compile_again: Callable[[], Contributions],
        done: Callable[[], None],
    ) -> None:
        """Keep the contributions; nothing has to be sent."""
        self._contributions, self._done = contributions, done

    def clipped_sums(self, ask: Ask, random: SecretRandom) -> Iterator[Answer]:
        """Draw, clip and add up here."""
        found = clipped_sum(ask, 0, self._partition, self._contributions, random.generator)
        self._done()
        yield found

    def read(self, function: Callable[[Partition], Any], names: Iterable[str] = ()) -> list[Any]:
        """Call a function of all records here; it picks its columns itself."""
        return [function(self._partition)]


def in_partitions(columns: Columns, units: Any = None) -> "InMemory | Chunked":
    """Find the partitions of columns, and of the units that their records belong to."""
    if not any(isinstance(column.values, Blocks) for column in columns.values()):
        return InMemory(columns, units)
    from pymc_dp.privacy.chunks import Chunked  # needs Dask

    return Chunked(columns, units)
