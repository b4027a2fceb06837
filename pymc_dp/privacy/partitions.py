"""Where the records are: in partitions, each of which answers with one vector.

In memory there is one; records in chunks (`privacy.chunks`) have several, maybe on other machines.
``ready`` brings contributions there, before anything is booked. For ``clipped_sums`` each draws its
part of a batch, clips, adds up and hands over nothing else; ``done`` is called after each.
``read`` calls a function of each, for private values; ``whole`` returns all records.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from pymc_dp.errors import ReleaseError, UnreadableError
from pymc_dp.privacy.clipping import ClippedSum, clipped_sum
from pymc_dp.privacy.contribution import Contribution, Contributions
from pymc_dp.privacy.noise import Grid, SecretRandom
from pymc_dp.privacy.private_data import (
    Blocks,
    Columns,
    Partition,
    UnitBlocks,
    Units,
    refuse_copies,
)

if TYPE_CHECKING:
    from pymc_dp.privacy.chunks import Chunked


class Ask(NamedTuple):
    """What the wall asks of all partitions for one release."""

    position: int  # of the release among those that the wall has made
    name: str  # of the contribution
    sizes: np.ndarray  # of each partition's part of the batch
    context: Any
    grid: Grid  # with the clip norm
    random: SecretRandom

    def __repr__(self) -> str:
        return "<Ask>"


class Answer(NamedTuple):
    """A partition's clipped sum, and what it is the answer to."""

    position: int  # of the release
    partition: int
    sum: ClippedSum

    def __repr__(self) -> str:
        return "<Answer>"


class PartitionError(Exception):
    """A partition failed, or there is not exactly one answer of each; the text holds no data."""

    kind = ReleaseError  # what the wall raises in its place


class LostError(PartitionError):
    """A partition could not be read, or its worker was lost, whichever rows were drawn."""

    kind = UnreadableError


def one_of_each(answers: Iterable[Answer], ask: Ask) -> Iterator[ClippedSum]:
    """Check that every partition answers once, to this question, with all its part of the batch.

    Otherwise a record would count twice, or the batch would not be the one that was drawn.
    """
    expected = [(ask.position, k, int(size)) for k, size in enumerate(ask.sizes)]
    answers = list(answers)
    if [(answer.position, answer.partition, answer.sum.number) for answer in answers] != expected:
        raise PartitionError("the partitions did not answer once each")
    return (answer.sum for answer in answers)


def nothing() -> None:
    """Report nothing."""


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

    def clipped_sums(self, ask: Ask) -> Iterator[Answer]:
        """Draw, clip and add up here."""
        [size], generator = map(int, ask.sizes), ask.random.generator
        asked = cast(Contribution, self._contributions[ask.name])
        found = clipped_sum(self._partition, asked, ask.context, size, generator, ask.grid)
        self._done()
        yield Answer(ask.position, 0, found)

    def read(self, function: Callable[[Partition], Any], names: Iterable[str] = ()) -> list[Any]:
        """Call a function of all records here; it picks its columns itself."""
        return [function(self._partition)]

    def whole(self) -> Partition:
        """Return all records."""
        return self._partition

    __reduce__ = refuse_copies


def in_partitions(
    columns: Columns, units: Units | UnitBlocks | None = None
) -> "InMemory | Chunked":
    """Find the partitions of columns, and of the units that their records belong to."""
    if not any(isinstance(column.values, Blocks) for column in columns.values()):
        return InMemory(columns, cast(Units | None, units))
    from pymc_dp.privacy.chunks import Chunked  # needs Dask

    return Chunked(columns, cast(UnitBlocks | None, units))
