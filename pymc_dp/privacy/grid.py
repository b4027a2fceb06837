"""The grid on which sums are released: whole numbers of a power of two.

On a grid sums of clipped vectors are exact, and so is noise that is rounded to it. What rounding
may add to the distance of two neighbouring sums is taken off the norm that vectors are clipped to.
"""

import math
from typing import NamedTuple, Self

import numpy as np

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

        >>> Grid.of(1.0, 2.0, size=4, in_floating_point=False).step == 2.0**-27
        True
        """
        if sd == 0:
            return cls(clip_norm, 0.0, clip_norm * (1 - NORM_MARGIN))
        step = min(sd / STEPS_OF_NOISE, SHARE_OF_ROUNDING * clip_norm / size**0.5)
        step = 2.0 ** math.floor(math.log2(max(step, 2 * FINEST * clip_norm)))
        margin = NORM_MARGIN + (FLOATING_SUM_MARGIN if in_floating_point else 0.0)
        return cls(clip_norm, step, clip_norm * (1 - margin) - size**0.5 * step)

    def sum_of(self, vectors: np.ndarray) -> Total:
        """Round vectors (n, size) to the grid, and add them up.

        In grid steps the entries are whole numbers, whose sum is below 2^53 for n up to 2^20: it is
        exact in any order.
        """
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

    def nothing(self, size: int) -> Total:
        """Return the sum of no vectors."""
        return self.parted(np.zeros(size))

    def rounded(self, total: Total) -> np.ndarray:
        """Round a sum to whole grid steps; it stays as it is without a grid."""
        return np.asarray(total.whole + np.rint(total.rest).astype(total.whole.dtype))

    def value(self, steps: np.ndarray) -> np.ndarray:
        """Return grid steps in the units of the vectors."""
        return np.asarray(steps * self.step if self.step else steps, "float64")
