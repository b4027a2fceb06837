"""The grid on which sums are released: whole numbers of a power of two.

On a grid sums of clipped vectors are exact, and so is noise that is rounded to it. What rounding
may add to the distance of two neighbouring sums is taken off the norm that vectors are clipped to.
"""

import math
from typing import NamedTuple, Self

import numpy as np

# No more units are read. Their sum, in grid steps, is a whole number of 64 bits.
MOST_UNITS = 2**30
FINEST = 2.0**-32  # the smallest grid step, over the clip norm: MOST_UNITS of them stay below 2^63
STEPS_OF_NOISE = 2.0**28  # grid steps in a standard deviation of the noise
# the largest share of the clip norm by which rounding may move a sum
SHARE_OF_ROUNDING = 2.0**-14

# rounding of a vector's norm and of its clipped entries: a share of the clip norm
NORM_MARGIN = 1e-6
# Floating-point sums of r vectors that are each split into parts, whose norms add up to at most
# L times its own, are off by at most r L 2^-53 of the sum of the norms (Higham 2002, 4.4). With
# r L at most 2^13 in each sum, and the errors of two neighbouring data sets, this is a share of
# 2 MOST_UNITS 2^-40 of the clip norm.
MOST_IN_FLOATING_SUM = 2**13
FLOATING_SUM_MARGIN = 2 * MOST_UNITS * MOST_IN_FLOATING_SUM * 2.0**-53


class Grid(NamedTuple):
    """A clip norm, and the step of the grid on which clipped vectors are added."""

    clip_norm: float
    step: float  # a power of two; 0 where no noise is added, and no grid is needed
    rounding: float  # how far rounding may move the distance of two neighbouring sums, in norm

    @classmethod
    def of(cls, clip_norm: float, sd: float, size: int, partitions: int) -> Self:
        """Choose the grid for vectors of a size, and noise of a standard deviation.

        Every partition rounds its sum once, by at most half a step in each entry; so does each
        vector that is rounded by itself.

        >>> Grid.of(1.0, 2.0, size=4, partitions=1).step == 2.0**-27
        True
        """
        if sd == 0:
            return cls(clip_norm, 0.0, 0.0)
        roundings = size**0.5 * (partitions + 1)
        step = min(sd / STEPS_OF_NOISE, SHARE_OF_ROUNDING * clip_norm / roundings)
        step = 2.0 ** math.floor(math.log2(max(step, FINEST * clip_norm)))
        return cls(clip_norm, step, roundings * step)

    def largest_norm(self, exact: bool) -> float:
        """Return the norm to which vectors are clipped.

        ``exact`` are sums of vectors that are rounded one by one; others are floating-point sums.
        """
        margin = NORM_MARGIN if exact or not self.step else NORM_MARGIN + FLOATING_SUM_MARGIN
        return self.clip_norm * (1 - margin) - self.rounding

    def in_steps(self, vectors: np.ndarray) -> np.ndarray:
        """Return vectors in grid steps, not rounded; as they are where there is no grid."""
        return vectors / self.step if self.step else vectors

    def rounded(self, vectors: np.ndarray) -> np.ndarray:
        """Round vectors in grid steps; not where there is no grid."""
        return np.rint(vectors) if self.step else vectors

    def parted(self, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Split a sum in grid steps into whole numbers, which add up without error, and a rest."""
        if not self.step:
            return total, np.zeros_like(total)
        whole = np.floor(total)
        return whole.astype(np.int64), total - whole

    def zeros(self, size: int) -> np.ndarray:
        """Return an empty sum in grid steps."""
        return np.zeros(size, np.int64 if self.step else np.float64)

    def value(self, total: np.ndarray) -> np.ndarray:
        """Return a sum in the units of the vectors."""
        return np.asarray(total * self.step if self.step else total, "float64")
