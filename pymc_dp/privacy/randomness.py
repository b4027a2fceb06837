"""Secret randomness for batches and noise, and the grid on which sums are released.

Randomness never depends on ``random_seed``: with equal noise in two fits, of clip norms 1 and 2,
twice the first release less the second is the exact sum, where no record is clipped.

Normal numbers are rounded to whole ones, exactly as random bits decide. For a whole number s and a
normal number z, round(s + z) = s + round(z). So a sum of whole numbers plus a rounded normal number
is the Gaussian mechanism, followed by a rounding that reads no data. A normal number in floating
point is not normal: its gaps show what was added to it (Mironov 2012).

Sums are released on a grid, as whole numbers of a power of two. There sums of clipped vectors are
exact, and so is noise that is rounded to the grid. What rounding may add to the distance of two
neighbouring sums is taken off the norm that vectors are clipped to.
"""

import math
import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import NamedTuple, Self

import mpmath
import numpy as np
from randomgen import ChaCha
from scipy.special import ndtri

from pymc_dp.privacy.norms import row_norms
from pymc_dp.privacy.private_data import opaque, secret

# No more units are read. Their sum, in grid steps, is a whole number of 64 bits.
MOST_UNITS = 2**28
FINEST = 2.0**-32  # the smallest grid step, over the clip norm: MOST_UNITS of them stay below 2^63
STEPS_OF_NOISE = 2.0**28  # grid steps in a standard deviation of the noise
# the largest share of the clip norm by which rounding to the grid may move a sum
SHARE_OF_ROUNDING = 2.0**-14

# rounding of a vector's norm and of its clipped entries: a share of the clip norm
NORM_MARGIN = 1e-6
# Floating-point sums of r vectors that are each split into parts, whose norms add up to at most
# L times its own, are off by at most r L 2^-53 of the sum of the norms (Higham 2002, 4.4). With
# r L at most 2^15 in each sum, and the errors of two neighbouring data sets, this is a share of
# 2 MOST_UNITS 2^-38 of the clip norm.
MOST_IN_FLOATING_SUM = 2**15
FLOATING_SUM_MARGIN = 2 * MOST_UNITS * MOST_IN_FLOATING_SUM * 2.0**-53


@opaque
class Total(NamedTuple):
    """A sum in grid steps: whole numbers, which add up without an error, and what is left."""

    whole: np.ndarray
    rest: np.ndarray

    def plus(self, other: "Total") -> "Total":
        """Add another sum."""
        return Total(self.whole + other.whole, self.rest + other.rest)


class Grid(NamedTuple):
    """A clip norm, and the step of the grid on which clipped vectors are added."""

    clip_norm: float
    step: float  # a power of two; 0 where no noise is added, and no grid is needed
    largest_norm: float  # vectors are clipped to it: the clip norm less what rounding may do

    @classmethod
    def of(cls, clip_norm: float, sd: float, size: int, in_floating_point: bool) -> Self:
        """Choose the grid for vectors of a size, and noise of a standard deviation.

        Every vector that is rounded by itself moves by at most half a step in each entry. So does a
        sum ``in_floating_point``, once, on each of two neighbouring data sets.
        """
        if sd == 0:
            return cls(clip_norm, 0.0, clip_norm * (1 - NORM_MARGIN))
        step = min(sd / STEPS_OF_NOISE, SHARE_OF_ROUNDING * clip_norm / size**0.5)
        step = 2.0 ** math.floor(math.log2(max(step, 2 * FINEST * clip_norm)))
        margin = NORM_MARGIN + (FLOATING_SUM_MARGIN if in_floating_point else 0.0)
        return cls(clip_norm, step, clip_norm * (1 - margin) - size**0.5 * step)

    def sum_of(self, vectors: np.ndarray) -> Total:
        """Round vectors (n, size) to the grid, and add them up; exactly for n up to 2^20."""
        if not self.step:
            return self.parted(vectors.sum(axis=0))
        steps = np.rint(vectors / self.step).sum(axis=0)
        return Total(steps.astype(np.int64), np.zeros_like(steps))

    def parted(self, total: np.ndarray) -> Total:
        """Split a sum."""
        if not self.step:
            return Total(total, np.zeros_like(total))
        steps = total / self.step
        whole = np.floor(steps)
        return Total(whole.astype(np.int64), steps - whole)

    def holds(self, total: Total, number: int) -> bool:
        """Whether a sum is finite, and as short as so many clipped vectors make it."""
        [norm] = row_norms(self.value(total.whole + total.rest)[None])
        # none add nothing, under an infinite clip norm as well
        return bool(np.isfinite(norm) and norm <= (self.clip_norm * number if number else 0.0))

    def nothing(self, size: int) -> Total:
        """Return the sum of no vectors."""
        return self.parted(np.zeros(size))

    def rounded(self, total: Total) -> np.ndarray:
        """Round a sum to whole grid steps; it stays as it is without a grid."""
        return np.asarray(total.whole + np.rint(total.rest).astype(total.whole.dtype))

    def value(self, steps: np.ndarray) -> np.ndarray:
        """Return grid steps in the units of the vectors."""
        return np.asarray(steps * self.step if self.step else steps, "float64")


Bits = Callable[[int], np.ndarray]  # the number of words -> as many random words of 64 bits

WORD = 64
SIGN = np.uint64(1 << (WORD - 1))
# granted errors of `ndtri`, with those of its argument: a share of the result, and a constant near
# 0, where an error of the argument is not a share of the result. Tests measure less than a tenth.
RELATIVE, ABSOLUTE = 2.0**-44, 2.0**-49
# quantiles of larger standard deviations, up to 2^62, would not be whole numbers of 64 bits
LARGEST_SD, FARTHEST = 2.0**49, 2.0**62


def rounded_normal(sd: float, size: int, bits: Bits) -> np.ndarray:
    """Draw whole numbers round(N(0, sd^2)), shape (size,).

    Random bits name an interval of tail probabilities, one bit more halving it, and a draw is the
    rounded normal quantile on which both ends agree. Where 64 bits leave the ends apart, more are
    drawn: starting over would favour numbers that are decided early.
    """
    if not 0 < sd <= LARGEST_SD:
        raise ValueError("the standard deviation of rounded noise is in (0, 2^49]")
    words = bits(size)
    tails = words & ~SIGN
    least, most = _quantiles(tails, sd)
    for i in np.flatnonzero(least != most):
        bracket = int(least[i]), int(min(most[i], FARTHEST))
        least[i] = _decided(int(tails[i]), bracket, sd, bits)
    return np.where(words & SIGN, -least, least).astype(np.int64)


def _quantiles(tails: np.ndarray, sd: float) -> tuple[np.ndarray, np.ndarray]:
    """Bound the rounded quantiles of the tail probabilities from tails / 2^64 to the next."""
    low, high = tails.astype("float64"), (tails + np.uint64(1)).astype("float64")
    with np.errstate(divide="ignore"):  # of no probability the quantile is infinite
        smallest = -ndtri(high / 2.0**WORD) * (1 - RELATIVE) - ABSOLUTE
        largest = -ndtri(low / 2.0**WORD) * (1 + RELATIVE) + ABSOLUTE
    return np.floor(np.fmax(smallest, 0.0) * sd + 0.5), np.floor(largest * sd + 0.5)


def _decided(tail: int, bracket: tuple[int, int], sd: float, bits: Bits) -> int:
    """Draw more bits of a tail probability until both ends have the same rounded quantile."""
    length = WORD
    while True:
        tail, length = (tail << WORD) + int(bits(1)[0]), length + WORD
        least, most = (_quantile(end, length, bracket, sd) for end in (tail + 1, tail))
        if least == most:
            return least


def _quantile(tail: int, length: int, bracket: tuple[int, int], sd: float) -> int:
    """Return the rounded quantile of a tail probability, the largest k that the tail covers."""
    least, most = bracket
    with mpmath.workprec(length + 2 * WORD):
        probability = mpmath.ldexp(tail, -length)
        while least < most:
            k = (least + most + 1) // 2
            z = (k - mpmath.mpf(0.5)) / mpmath.mpf(sd)
            if mpmath.erfc(z / mpmath.sqrt(2)) / 2 >= probability:
                least = k
            else:
                most = k - 1
    return least


# set by pymc_dp.testing alone
TEST_SEED: ContextVar[int | None] = ContextVar("pymc_dp_test_seed", default=None)

KEY_BYTES = 32


def keyed(key: bytes) -> np.random.Generator:
    """Return the cryptographic generator of a key."""
    return np.random.Generator(ChaCha(key=int.from_bytes(key, "little")))


@secret
class SecretRandom:
    """A cryptographic generator, keyed by the operating system and keyed anew after a fork.

    It refuses to be pickled or copied. Inside `pymc_dp.testing.deterministic_noise` it is an
    ordinary seeded generator, and ``valid`` is false: there is no guarantee.
    """

    def __init__(self) -> None:
        self._test_seed, self._process = TEST_SEED.get(), -1
        self._keyed()

    @property
    def valid(self) -> bool:
        """Whether the randomness is secret."""
        return self._test_seed is None

    @property
    def label(self) -> str:
        """The description of the source in results."""
        if self.valid:
            return "ChaCha20 keyed by the operating system; Gaussian noise rounded to a grid"
        return "deterministic test mode: the guarantee is void"

    @property
    def generator(self) -> np.random.Generator:
        """The generator of batches; a child process gets a key of its own."""
        return self._keyed()[1]

    def rounded_gaussian(self, sd: float, step: float, size: int) -> np.ndarray:
        """Draw N(0, sd^2) noise as whole numbers of steps, shape (size,), exactly rounded."""
        generator = self._keyed()[0]
        return rounded_normal(sd / step, size, lambda n: generator.integers(0, 2**64, n, np.uint64))

    def _keyed(self) -> tuple[np.random.Generator, np.random.Generator]:
        """The generators of noise, and of batches: noise is the same however rows are kept."""
        if self._process != os.getpid():
            seed = self._test_seed
            if seed is None:
                self._generators = keyed(os.urandom(KEY_BYTES)), keyed(os.urandom(KEY_BYTES))
            else:
                self._generators = np.random.default_rng(seed), np.random.default_rng([seed, 1])
            self._process = os.getpid()
        return self._generators
