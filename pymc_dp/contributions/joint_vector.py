"""The vector that a record adds to a round, and the bounds of its parts.

It holds a score, its slope, counts of lengths, the curvature along one direction, and two traces:
the variance of the clipped score, and the information in it before it was clipped. With survey
weights it also holds the score's products with itself.
"""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.contributions.layout import smat
from pymc_dp.contributions.tails import COUNTS_NORM, SIZE

# bounds of the parts over the score's: for the slope, for each of the two traces, for the curvature
# along a direction, and for counts of lengths
SLOPE, TRACE, ALONG, COUNTS = 0.74, 0.19, 0.27, 0.36
# the same for products of scores, where weights ask for them
PRODUCTS = 0.5
# a record's curvature along a direction is clipped to this; it is about 1 on average, since
# whitened scores have about unit variance in every direction
ALONG_BOUND = 4.0


def joint_norm(products: float = 0.0) -> float:
    """Return the norm of the joint vector over that of the score; ``products`` as in `At`."""
    return float((1 + SLOPE**2 + 2 * TRACE**2 + ALONG**2 + COUNTS**2 + products**2) ** 0.5)


class Dispersion(NamedTuple):
    """The part of scores in latents of the dispersion of outcomes, which is clipped by itself.

    Its scores are quadratic in residuals, so that a few outcomes far out have nearly all of it.
    """

    latents: np.ndarray  # which they are, (d,)
    bound: float  # norm that this part is clipped to
    share: float  # of the squared norm of the whole score


class At(NamedTuple):
    """A point z, the coordinates of scores there, and the bounds of a vector's parts."""

    point: np.ndarray
    # W, shape (d, d): a score g becomes W g; its diagonal, (d,), for many latents. It is zero
    # between latents of the dispersion and others
    whitening: np.ndarray
    score_bound: float  # norm that W g is clipped to, in latents that are not of the dispersion
    curvature_bound: float  # norm that the slope of W g is clipped to
    # the direction in which the curvature is released by itself, a whitened vector of length 1,
    # (d,); None for none
    direction: np.ndarray | None = None
    dispersion: Dispersion | None = None
    # of the posterior q that earlier releases gave, (d, d), or a diagonal, (d,): its covariance is
    # W'root'root W. What records add is averaged over q, or taken at the point where there is none
    root: np.ndarray | None = None
    # whether the curvature's part holds what records add to the precision of q, and not the slope
    of_precision: bool = False
    # the part of products of scores over the score's, 0 where the vector has none
    products: float = 0.0

    @property
    def spread(self) -> float:
        """The variance of q in whitened coordinates, averaged over directions."""
        return 0.0 if self.root is None else float((self.root**2).sum() / self.point.size)

    @property
    def is_diagonal(self) -> bool:
        """Whether each latent is whitened by itself, and curvatures are diagonals."""
        return self.whitening.ndim == 1

    @property
    def score_norm(self) -> float:
        """The largest norm of the whole score, the dispersion's part in the units of the vector."""
        own = self.dispersion.share if self.dispersion else 0.0
        return float(self.score_bound / (1 - own) ** 0.5)

    @property
    def dispersion_scale(self) -> float:
        """The factor of the dispersion's part of the score in the vector."""
        if self.dispersion is None or np.isinf(self.score_bound):
            return 1.0
        return float(self.score_norm * self.dispersion.share**0.5 / self.dispersion.bound)

    @property
    def is_dispersion(self) -> np.ndarray:
        """Which latents are of the dispersion, (d,)."""
        return self.dispersion.latents if self.dispersion else np.zeros(self.point.size, bool)

    @property
    def score_scales(self) -> np.ndarray:
        """The factors of the latents' scores in the vector, (d,)."""
        return np.where(self.is_dispersion, self.dispersion_scale, 1.0)

    @property
    def clip_norm(self) -> float:
        """The largest norm of a record's whole vector."""
        return self.score_norm * joint_norm(self.products)

    @property
    def curvature_scale(self) -> float:
        """The factor of curvatures in the vector."""
        if np.isinf(self.score_bound):
            return 1.0
        return SLOPE * self.score_norm / self.curvature_bound

    @property
    def trace_scale(self) -> float:
        """The factor of the two traces in the vector."""
        return 1.0 if np.isinf(self.score_bound) else TRACE * self.score_norm / self.curvature_bound

    @property
    def products_scale(self) -> float:
        """The factor of products of scores in the vector."""
        if np.isinf(self.score_bound):
            return 1.0
        return self.products / self.score_norm

    @property
    def along_bound(self) -> float:
        """What the curvature along the direction is clipped to."""
        return np.inf if np.isinf(self.score_bound) else ALONG_BOUND

    @property
    def along_scale(self) -> float:
        """The factor of the curvature along the direction in the vector."""
        return 1.0 if np.isinf(self.score_bound) else ALONG * self.score_norm / ALONG_BOUND

    @property
    def parts(self) -> int:
        """How many parts of scores are clipped by themselves, each with counts of its lengths."""
        return 2 if self.dispersion else 1

    @property
    def counts_scale(self) -> float:
        """The factor of counts of lengths in the vector."""
        if np.isinf(self.score_bound):
            return 1.0
        return float(COUNTS * self.score_norm / (COUNTS_NORM * self.parts**0.5))


class Sums(NamedTuple):
    """Sums over records, in whitened coordinates."""

    score: np.ndarray  # (d,)
    curvature: np.ndarray  # (d, d): minus the slope of the expected score
    counts: np.ndarray  # of lengths, (parts, SIZE)
    along: float  # the curvature along the direction, clipped by itself; 0 without one
    variance: float  # of the clipped scores, their squared norms
    information: float  # the same of scores that were neither weighted nor clipped
    # (d, d): products of the scores, as they are in the vector; of many latents (1, 1), their
    # squared norms; (0, 0) without weights
    products: np.ndarray


def split(value: np.ndarray, at: At) -> Sums:
    """Split a released vector into its parts, without their scales."""
    d, counted = at.point.size, -3 - SIZE * at.parts
    paired = counted - products_size(d, at.products > 0)
    packed = value[d:paired] / at.curvature_scale
    curvature = np.diag(packed) if at.is_diagonal else smat(packed)
    along, (variance, information) = value[-3] / at.along_scale, value[-2:] / at.trace_scale
    counts = value[counted:-3].reshape(at.parts, SIZE) / at.counts_scale
    products = smat(value[paired:counted] / at.products_scale)
    score = value[:d] / at.score_scales
    return Sums(
        score, curvature, counts, float(along), float(variance), float(information), products
    )


def vector_size(d: int, parts: int = 1, weighted: bool = False) -> int:
    """Return the length of the joint vector for ``d`` latents and so many parts of scores."""
    curvature = d if d > MANY_LATENTS else d * (d + 1) // 2
    return d + curvature + products_size(d, weighted) + SIZE * parts + 3


def parts_of(dispersion: np.ndarray) -> int:
    """Return how many parts of scores are clipped by themselves."""
    return 2 if dispersion.any() else 1


def products_size(d: int, weighted: bool) -> int:
    """Return the length of the part of products of scores: a matrix, or a trace of many latents."""
    if not weighted:
        return 0
    return 1 if d > MANY_LATENTS else d * (d + 1) // 2
