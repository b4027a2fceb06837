"""How the rows of one batch are drawn.

Shuffled epochs are missing on purpose: they are not amplified by sampling, however often this is
claimed.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

# NumPy's multivariate hypergeometric numbers are of fewer than 1e9 rows
MOST_IN_FIXED_SIZE = 10**9 - 1


@dataclass(frozen=True)
class Sampler(ABC):
    """One way to draw batches."""

    name: ClassVar[str]
    rate: float  # the probability of a record to be in a batch, in (0, 1]

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ValueError(f"sample_rate={self.rate!r}: it must be above 0 and at most 1.")

    def sizes(self, rng: np.random.Generator, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """Draw how many rows of one batch lie in each of several partitions.

        **Privacy.** With a `subset` of each of these sizes, batches are drawn as out of one
        partition of all rows. For a guarantee the generator must be cryptographic. The accountants
        assume that its state and the drawn rows, their number included, stay secret.
        """
        return np.array([self._size(rng, int(number)) for number in numbers])

    def effective_rate(self, num_records: int | None) -> float:
        """Rate at which a record is really drawn."""
        return self.rate

    @abstractmethod
    def _size(self, rng: np.random.Generator, number: int) -> int: ...


class Poisson(Sampler):
    """Each row independently.

    **Privacy.** Exact: a Binomial(number, rate) size, then a uniform subset of that size, is the
    same as one independent coin per row. The batch is never cut to a maximum size, which would void
    the amplification; it may be empty, and may hold every row.
    """

    name = "poisson"

    def _size(self, rng: np.random.Generator, number: int) -> int:
        return int(rng.binomial(number, self.rate))


class FixedSize(Sampler):
    """A uniform subset of the whole number of rows that is nearest to the rate, and at least 1.

    >>> FixedSize(0.1).sizes(np.random.default_rng(0), [1000])
    array([100])
    """

    name = "fixed_size"

    def batch_size(self, number: int) -> int:
        """Rows in a batch."""
        return max(1, round(self.rate * number))

    def effective_rate(self, num_records: int | None) -> float:
        """Share of the records in a batch: it holds whole ones."""
        return self.rate if num_records is None else self.batch_size(num_records) / num_records

    def _size(self, rng: np.random.Generator, number: int) -> int:
        if number == 0:
            raise ValueError("sampling='fixed_size' needs at least one row of data: there is none.")
        return self.batch_size(number)

    def sizes(self, rng: np.random.Generator, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """Share the rows of one batch among partitions, as a draw without replacement does."""
        size = self._size(rng, int(np.sum(numbers)))
        return rng.multivariate_hypergeometric(np.asarray(numbers, np.int64), size)


@dataclass(frozen=True)
class Full(Sampler):
    """Every row."""

    name = "full"
    rate: float = 1.0

    def __post_init__(self) -> None:
        if self.rate != 1:
            raise ValueError(
                f"sample_rate={self.rate!r}, but sampling='full' takes every row: give "
                "sample_rate=1, or sampling='poisson'."
            )

    def _size(self, rng: np.random.Generator, number: int) -> int:
        return number


def subset(rng: np.random.Generator, number: int, size: int) -> np.ndarray:
    """Draw a uniform subset of a size, as sorted rows; all rows need no draw."""
    if size == number:
        return np.arange(number, dtype=np.int64)
    rows = rng.choice(number, size, replace=False, shuffle=False)
    return np.sort(rows, kind="stable")  # in order, so that memory maps are read forward


SAMPLERS: dict[str, type[Sampler]] = {kind.name: kind for kind in (Poisson, FixedSize, Full)}


def sampler_named(name: str) -> type[Sampler]:
    """Return the kind of sampler that a caller's ``sampling=`` names."""
    if name not in SAMPLERS:
        raise ValueError(
            f"sampling={name!r} is unknown: use 'poisson', 'fixed_size' or 'full'. Shuffled epochs "
            "are not offered, because shuffling does not amplify privacy as sampling does."
        )
    return SAMPLERS[name]
