"""How the rows of one batch are drawn: each independently, or all of them.

Shuffled epochs are missing on purpose: they are not amplified by sampling, however often this is
claimed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class Poisson:
    """Each row independently.

    **Privacy.** Exact: a Binomial(number, rate) size, then a uniform subset of that size, is the
    same as one independent coin per row. The batch is never cut to a maximum size, which would void
    the amplification; it may be empty, and may hold every row. For a guarantee the generator must
    be cryptographic. The accountants assume that its state and the drawn rows, their number
    included, stay secret.
    """

    name: ClassVar[str] = "poisson"
    rate: float  # the probability of a record to be in a batch, in (0, 1]

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ValueError(f"sample_rate={self.rate!r}: it must be above 0 and at most 1.")

    def sizes(self, rng: np.random.Generator, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """Draw how many rows of one batch lie in each of several partitions."""
        return np.array([int(rng.binomial(int(number), self.rate)) for number in numbers])


@dataclass(frozen=True)
class Full:
    """Every row."""

    name: ClassVar[str] = "full"
    rate: float = 1.0

    def __post_init__(self) -> None:
        if self.rate != 1:
            raise ValueError(
                f"sample_rate={self.rate!r}, but sampling='full' takes every row: give "
                "sample_rate=1, or sampling='poisson'."
            )

    def sizes(self, rng: np.random.Generator, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return all rows of each of several partitions."""
        return np.array([int(number) for number in numbers])


Sampler = Poisson | Full
SAMPLERS: dict[str, type[Sampler]] = {kind.name: kind for kind in (Poisson, Full)}


def subset(rng: np.random.Generator, number: int, size: int) -> np.ndarray:
    """Draw a uniform subset of a size, as sorted rows; all rows need no draw."""
    if size == number:
        return np.arange(number, dtype=np.int64)
    rows = rng.choice(number, size, replace=False, shuffle=False)
    return np.sort(rows, kind="stable")  # in order, so that memory maps are read forward


def sampler_named(name: str) -> type[Sampler]:
    """Return the kind of sampler that a caller's ``sampling=`` names."""
    if name not in SAMPLERS:
        raise ValueError(
            f"sampling={name!r} is unknown: use 'poisson' or 'full'. Shuffled epochs are not "
            "offered, because shuffling does not amplify privacy as sampling does."
        )
    return SAMPLERS[name]
