"""The vector that a record adds to a round, and the bounds of its parts.

It holds a score, its curvature, counts of lengths, the curvature along one direction, and a
variance.
"""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.contributions.layout import smat
from pymc_dp.contributions.tails import COUNTS_NORM, SIZE

# bounds of the parts for the variance, for the curvature along a direction, and for counts of
# lengths, over the score's
VARIANCE, ALONG, COUNTS = 0.1, 0.2, 0.4
# a record's curvature along a direction is clipped to this; it is about 1 on average, since
# whitened scores have about unit variance in every direction
ALONG_BOUND = 4.0


def joint_norm(ratio: float) -> float:
    """Return the norm of the joint vector over that of the score.

    ``ratio`` is the curvature's part over that of the score.
    """
    return float((1 + ratio**2 + VARIANCE**2 + ALONG**2 + COUNTS**2) ** 0.5)


class At(NamedTuple):
    """A point z, the coordinates of scores there, and the bounds of a vector's parts."""

    point: np.ndarray
    # W, shape (d, d): a score g becomes W g; its diagonal, (d,), for many latents
    whitening: np.ndarray
    score_bound: float  # norm that W g is clipped to
    curvature_bound: float  # norm that the slope of W g is clipped to, and weights follow from
    ratio: float  # of the curvature's part of the joint vector to the score's
    # the direction in which the curvature is released by itself, a whitened vector of length 1,
    # (d,); None for none
    direction: np.ndarray | None = None
    # the covariance of the posterior q that earlier releases gave is this times W'W: what records
    # add is averaged over q, or taken at the point where it is 0
    spread: float = 0.0
    # in the place of that, (d, d): the covariance of a whitened score under q is root'root
    root: np.ndarray | None = None
    # whether the curvature's part holds what records add to the precision of q, and not the slope
    of_precision: bool = False

    @property
    def is_diagonal(self) -> bool:
        """Whether each latent is whitened by itself, and curvatures are diagonals."""
        return self.whitening.ndim == 1

    @property
    def clip_norm(self) -> float:
        """The largest norm of a record's whole vector."""
        return self.score_bound * joint_norm(self.ratio)

    @property
    def curvature_scale(self) -> float:
        """The factor of curvatures in the vector."""
        if np.isinf(self.score_bound):
            return 1.0
        return self.ratio * self.score_bound / self.curvature_bound

    @property
    def variance_scale(self) -> float:
        """The factor of squared norms of scores in the vector."""
        return 1.0 if np.isinf(self.score_bound) else VARIANCE / self.score_bound

    @property
    def along_bound(self) -> float:
        """What the curvature along the direction is clipped to."""
        return np.inf if np.isinf(self.score_bound) else ALONG_BOUND

    @property
    def along_scale(self) -> float:
        """The factor of the curvature along the direction in the vector."""
        return 1.0 if np.isinf(self.score_bound) else ALONG * self.score_bound / ALONG_BOUND

    @property
    def counts_scale(self) -> float:
        """The factor of counts of lengths in the vector."""
        return 1.0 if np.isinf(self.score_bound) else COUNTS * self.score_bound / COUNTS_NORM


class Sums(NamedTuple):
    """Sums over records, in whitened coordinates."""

    score: np.ndarray  # (d,)
    curvature: np.ndarray  # (d, d): minus the slope of the expected score
    counts: np.ndarray  # of lengths
    along: float  # the curvature along the direction, clipped by itself; 0 without one
    variance: float  # of the scores, their squared norms


def split(value: np.ndarray, at: At) -> Sums:
    """Split a released vector into its parts, without their scales."""
    d = at.point.size
    packed = value[d : -2 - SIZE] / at.curvature_scale
    curvature = np.diag(packed) if at.is_diagonal else smat(packed)
    along, variance = value[-2] / at.along_scale, value[-1] / at.variance_scale
    counts = value[-2 - SIZE : -2] / at.counts_scale
    return Sums(value[:d], curvature, counts, float(along), float(variance))


def vector_size(d: int) -> int:
    """Return the length of the joint vector for ``d`` latents."""
    return d + (d if d > MANY_LATENTS else d * (d + 1) // 2) + SIZE + 2
