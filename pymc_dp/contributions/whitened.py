"""Scores and curvatures of records in whitened coordinates, clipped consistently.

What a record adds to a round: a score, its slope, counts of lengths, the curvature along one
direction, and two traces, each bounded by itself; with survey weights also the score's products
with itself. Clipping keeps the mean over outcomes at zero (conditionally unbiased bounded
influence: Künsch, Stefanski and Carroll 1989), and counts of lengths say how much it cuts off.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions.channels import (
    MANY_LATENTS,
    combined,
    coordinates,
    diagonals,
    orthonormal,
    sum_of_products,
)
from pymc_dp.contributions.layout import smat, svec
from pymc_dp.contributions.polya_gamma_and_sites import AT_POINT, Estimated, ratio
from pymc_dp.contributions.scores import (
    BOTH,
    CENTRING,
    WEIGHING,
    Draw,
    DrawnScores,
    UnitSums,
    lengths,
    probabilities,
    without_weighing,
)
from pymc_dp.privacy.contribution import (
    Batch,
    Contribution,
    FactoredContribution,
    RowContribution,
    UnitVector,
)
from pymc_dp.privacy.norms import (
    LARGEST_NORM,
    clip_factors,
    each_product,
    joint_norms,
    product,
    rounded_product,
    row_norms,
)

# bounds of the parts over the score's: for the slope, for each of the two traces, for the curvature
# along a direction, and for counts of lengths
SLOPE, TRACE, ALONG, COUNTS = 0.74, 0.19, 0.27, 0.36
# the same for products of scores, where weights ask for them
PRODUCTS = 0.5
# a record's curvature along a direction is clipped to this; it is about 1 on average, since
# whitened scores have about unit variance in every direction
ALONG_BOUND = 4.0
# sweeps of the fixed point, and the longest excess that a draw may add to it, in clip norms
SWEEPS, LONGEST_EXCESS = 6, 8.0
# bins of lengths are the powers of two from 2^LEAST
LEAST, BINS = -3, 14
CENTRES = 2.0 ** (LEAST + np.arange(BINS))
# the largest norm of a record's counts
COUNTS_NORM = 2**0.5


class Dispersion(NamedTuple):
    """The part of scores in latents of the dispersion of outcomes, quadratic in residuals."""

    latents: np.ndarray  # which they are, (d,)
    bound: float  # norm that this part is clipped to
    share: float  # of the squared norm of the whole score


class Scales(NamedTuple):
    """Factors of a vector's parts, in their order."""

    score: np.ndarray  # (c,)
    curvature: float = 1.0
    products: float = 1.0
    counts: float = 1.0
    along: float = 1.0
    traces: float = 1.0


class At(NamedTuple):
    """A point z, the coordinates of scores there, and the bounds of a vector's parts."""

    point: np.ndarray
    # W, shape (d, d): a score g becomes W g; its diagonal, (d,), for many latents. It is zero
    # between latents of the dispersion and others
    whitening: np.ndarray
    score_bound: float  # norm that W g is clipped to, in latents that are not of the dispersion
    # mean squared norm of W g from which on a record weighs less; its slope is clipped to it, too
    leverage_bound: float
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
    def is_dispersion(self) -> np.ndarray:
        """Which latents are of the dispersion, (d,)."""
        return self.dispersion.latents if self.dispersion else np.zeros(self.point.size, bool)

    @property
    def parts(self) -> int:
        """How many parts of scores are clipped by themselves, each with counts of its lengths."""
        return 2 if self.dispersion else 1

    @property
    def score_norm(self) -> float:
        """The largest norm of the whole score, the dispersion's part in the units of the vector."""
        own = self.dispersion.share if self.dispersion else 0.0
        return float(self.score_bound / (1 - own) ** 0.5)

    @property
    def clip_norm(self) -> float:
        """The largest norm of a record's whole vector."""
        return self.score_norm * joint_norm(self.products)

    @property
    def along_bound(self) -> float:
        """What the curvature along the direction is clipped to."""
        return np.inf if np.isinf(self.score_bound) else ALONG_BOUND

    def scales(self, dispersion: np.ndarray | None = None) -> Scales:
        """Return the factors of the vector's parts; ``dispersion``, (c,), are its coordinates."""
        dispersion = self.is_dispersion if dispersion is None else dispersion
        if np.isinf(self.score_bound):
            return Scales(np.ones(dispersion.size))
        norm, own = self.score_norm, self.dispersion
        of_dispersion = own.share**0.5 * norm / own.bound if own else 1.0
        return Scales(
            score=np.where(dispersion, of_dispersion, 1.0),
            curvature=SLOPE * norm / self.leverage_bound,
            products=self.products / norm,
            counts=COUNTS * norm / (COUNTS_NORM * self.parts**0.5),
            along=ALONG * norm / ALONG_BOUND,
            traces=TRACE * norm / self.leverage_bound,
        )


class Sums(NamedTuple):
    """Sums over records, in whitened coordinates."""

    score: np.ndarray  # (d,)
    curvature: np.ndarray  # (d, d): minus the slope of the expected score
    counts: np.ndarray  # of lengths, (parts, BINS)
    along: float  # the curvature along the direction, clipped by itself; 0 without one
    variance: float  # of the clipped scores, their squared norms
    information: float  # the same of scores that were neither weighted nor clipped
    # (d, d): products of the scores, as they are in the vector; of many latents (1, 1), their
    # squared norms; (0, 0) without weights
    products: np.ndarray


def ends_of_parts(c: int, diagonal: int, parts: int, weighted: bool) -> np.ndarray:
    """Return where a vector's parts end: score, curvature, products, counts, along, traces.

    It has ``c`` coordinates; curvatures are so many numbers on a ``diagonal``, and products their
    traces, or matrices where it is 0.
    """
    matrix = c * (c + 1) // 2
    products = int(weighted) * (1 if diagonal else matrix)
    return np.cumsum([c, diagonal or matrix, products, BINS * parts, 1, 2])


def vector_size(dispersion: np.ndarray, weighted: bool) -> int:
    """Return the length of the joint vector; ``dispersion``, (d,), are its latents."""
    d, parts = dispersion.size, 2 if dispersion.any() else 1
    return int(ends_of_parts(d, d if d > MANY_LATENTS else 0, parts, weighted)[-1])


def split(value: np.ndarray, at: At) -> Sums:
    """Split a released vector into its parts, without their scales."""
    diagonal = at.point.size if at.is_diagonal else 0
    ends = ends_of_parts(at.point.size, diagonal, at.parts, at.products > 0)
    scaled = zip(np.split(value, ends[:-1]), at.scales(), strict=True)
    score, curvature, products, counts, along, traces = (part / scale for part, scale in scaled)
    return Sums(
        score,
        np.diag(curvature) if diagonal else smat(curvature),
        counts.reshape(at.parts, BINS),
        float(along[0]),
        float(traces[0]),
        float(traces[1]),
        smat(products),
    )


def joint_norm(products: float = 0.0) -> float:
    """Return the norm of the joint vector over that of the score; ``products`` as in `At`."""
    return float((1 + SLOPE**2 + 2 * TRACE**2 + ALONG**2 + COUNTS**2 + products**2) ** 0.5)


def clip_consistently(scores: np.ndarray, bound: float) -> np.ndarray:
    """Shift and clip vectors (rows, k, d) so that the clipped ones keep each row's mean.

    With e(v) = v - clip(v), the shift is the fixed point of a = -mean e(s_k - a).
    """
    if np.isinf(bound):
        return scores
    factors = clip_factors(lengths(scores), bound)
    clipped: np.ndarray = scores * factors[:, :, None]
    long = np.flatnonzero((factors < 1).any(axis=1))
    if long.size and scores.shape[1] > 1:
        some = scores[long]
        shift = np.zeros_like(some[:, :1])
        for _ in range(SWEEPS):
            moved = some - shift
            norms = lengths(moved)
            beyond = np.minimum(
                1 - clip_factors(norms, bound), clip_factors(norms, LONGEST_EXCESS * bound)
            )
            shift = -(moved * beyond[:, :, None]).mean(axis=1, keepdims=True)
        moved = some - shift
        clipped[long] = moved * clip_factors(lengths(moved), bound)[:, :, None]
    return clipped


def clip_both(scores: np.ndarray, weights: np.ndarray, bound: float) -> np.ndarray:
    """Weight and clip (rows, 3, d): a score, and those of both outcomes that a record can have.

    The two are opposite vectors, and the shift that keeps their mean at zero makes them shorter by
    one factor, which brings the longer to the bound.
    """
    observed, no, yes = lengths(scores).T
    longest = np.maximum(np.maximum(no, yes), observed)
    factors = np.fmin(weights, clip_factors(longest, bound))
    return np.asarray(scores * factors[:, None, None])


def shared(norms: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Share norms, (rows, k), each times its chance, between the two bins beside their logarithms.

    Shares, (rows, BINS), are continuous in the norms, not negative, and sum to the chances.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        places = np.clip(np.nan_to_num(np.log2(norms) - LEAST), 0, BINS - 1)
    low = np.minimum(places.astype(int), BINS - 2)
    above = chances * (places - low)
    bins = np.arange(len(norms))[:, None] * BINS + low
    into, shares = np.stack([bins, bins + 1], axis=-1), np.stack([chances - above, above], axis=-1)
    total = np.bincount(into.ravel(), shares.ravel(), minlength=len(norms) * BINS)
    return total.reshape(len(norms), BINS)


def counts(norms: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Return counts of observed lengths, the first of ``norms``, less those of drawn ones.

    **Privacy.** A row's norm is at most COUNTS_NORM: shares o and e are not negative and sum to
    one, so |o - e|^2 is convex in each of them, and largest where both are unit vectors. Without
    drawn outcomes e is zero.
    """
    observed = shared(norms[:, :1], np.ones((len(norms), 1)))
    return np.asarray(observed - shared(norms[:, 1:], chances))


class Clipped(NamedTuple):
    """Records' clipped scores; their slopes are means of products of ``scores`` and ``whole``."""

    score: np.ndarray  # (rows, d): at the observed outcome
    scores: np.ndarray  # (rows, k, d): at k outcomes
    whole: np.ndarray  # (rows, k, d): these before they were clipped
    traces: np.ndarray  # (2, rows): mean squared norms of ``scores``, and of ``whole``
    counts: np.ndarray  # (rows, parts * BINS): of lengths before they were weighted and clipped

    def slopes(self) -> np.ndarray:
        """Return the slopes of the expected scores: symmetric parts, as vectors."""
        slope = each_product(np.swapaxes(self.scores, 1, 2), self.whole) / self.scores.shape[1]
        return svec((slope + np.swapaxes(slope, 1, 2)) / 2)

    def diagonals(self) -> np.ndarray:
        """Return the diagonals of the slopes alone, (rows, d)."""
        return np.asarray((self.scores * self.whole).mean(axis=1))

    def along(self, direction: np.ndarray | None, kept: np.ndarray, bound: float) -> np.ndarray:
        """Return ``kept`` of the slopes along a direction, (d,) or (rows, d), clipped; (rows,)."""
        if direction is None:
            return np.zeros(len(self.score))
        u, whole = (np.vecdot(x, direction[..., None, :]) for x in (self.scores, self.whole))
        return np.asarray(np.clip(kept * (u * whole).mean(axis=1), -bound, bound))

    def averaged(self, slope_share: np.ndarray | None, at: At) -> "Clipped":
        """Bring slopes and variances of scores that were averaged over q to what they are.

        Products of such scores at outcomes drawn from q hold the variance of means under q, too.
        With h the mean square of a whitened score, they are h + h^2 times q's variance.
        """
        if slope_share is None:
            if at.root is None:
                return self
            squares = np.maximum(np.vecdot(self.scores, self.whole).mean(axis=1), 0.0)
            slope_share = 2 / (1 + np.sqrt(1 + 4 * at.spread * squares))
        return self._replace(
            whole=self.whole * slope_share[:, None, None],
            traces=np.maximum(self.traces * slope_share, 0.0),
        )


def clipped_scores(z: np.ndarray, at: At, dispersion: np.ndarray) -> Clipped:
    """Weight and clip scores (rows, 1 + draws, c); ``dispersion``, (c,), are its coordinates."""
    z = np.ascontiguousarray(z)  # what is added up in another order has other last bits
    clip = _from_both if z.shape[1] == 1 + len(BOTH) else _from_draws
    if at.dispersion is None:
        return clip(z, at.score_bound, at.leverage_bound)
    location, own = (
        clip(np.ascontiguousarray(z[..., part]), bound, at.leverage_bound)
        for part, bound in ((~dispersion, at.score_bound), (dispersion, at.dispersion.bound))
    )
    joined = []
    for x, y in zip(location[:3], own[:3], strict=True):
        both = np.empty((*y.shape[:-1], dispersion.size))
        both[..., dispersion], both[..., ~dispersion] = y, x
        joined.append(both)
    counted = np.concatenate([location.counts, own.counts], axis=1)
    score, scores, whole = joined
    return Clipped(score, scores, whole, location.traces + own.traces, counted)


def _from_draws(z: np.ndarray, bound: float, weight_bound: float) -> Clipped:
    """Clip observed scores; estimate their slopes and variances from drawn ones."""
    weighted, drawn = z[:, :1], z[:, :1]
    if z.shape[1] > 1:
        variance = (z[:, 1 : 1 + WEIGHING] ** 2).sum(axis=-1).mean(axis=1)
        drawn = without_weighing(z)
        weighted = record_weights(variance, weight_bound)[:, None, None] * drawn
    u = clip_consistently(weighted, bound)
    first = min(1, drawn.shape[1] - 1)  # means over drawn outcomes alone, where there are any
    traces = np.array([(x[:, first:] ** 2).sum(axis=-1).mean(axis=1) for x in (u, drawn)])
    return Clipped(u[:, 0], u[:, first:], drawn[:, first:], traces, _counts(z))


def _from_both(z: np.ndarray, bound: float, weight_bound: float) -> Clipped:
    """Clip observed scores beside those of both outcomes, from which all means follow."""
    # those of probabilities q and p = 1 - q are -p x and q x: the mean of products is p q x x'
    no, yes = z[:, 1:2], z[:, 2:]
    variance = np.maximum(-(no * yes).sum(axis=(1, 2)), 0.0)
    u = clip_both(z, record_weights(variance, weight_bound), bound)
    of_clipped = np.maximum(-(u[:, 1] * u[:, 2]).sum(axis=-1), 0.0)
    return Clipped(u[:, 0], -u[:, 1:2], yes, np.array([of_clipped, variance]), _counts(z))


def record_weights(variance: np.ndarray, bound: float) -> np.ndarray:
    """Return weights of records, (rows,): one of large variance weighs less."""
    return clip_factors(variance, bound)


def _counts(z: np.ndarray) -> np.ndarray:
    norms = np.minimum(lengths(z), LARGEST_NORM)
    return counts(norms, probabilities(norms[:, 1:]))


class Coordinates(NamedTuple):
    """Coordinates in which scores are clipped: those of latents, or of a basis of each record."""

    dispersion: np.ndarray  # which are of the dispersion of outcomes, (c,)
    direction: np.ndarray | None  # that of the round, (c,), or (rows, c)
    slopes: Callable[[Clipped], np.ndarray]  # as vectors: symmetric matrices, or diagonals alone


def times(vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Multiply vectors (..., d) by a matrix, (d, d), or a diagonal, (d,)."""
    return np.asarray(vectors * matrix if matrix.ndim == 1 else rounded_product(vectors, matrix.T))


def vectors(scores: np.ndarray, at: At, counting: np.ndarray | None = None) -> np.ndarray:
    """Return records' vectors from scores (rows, 1 + draws, d), the observed outcome's first."""
    return joint_vectors(times(scores, at.whitening), None, counting, at)


def joint_vectors(
    z: np.ndarray,
    whole: np.ndarray | None,
    counting: np.ndarray | None,
    at: At,
    own: Coordinates | None = None,
    made: Estimated = AT_POINT,
) -> np.ndarray:
    """Return records' vectors from whitened scores (rows, 1 + draws, c), the observed one first.

    With survey weights ``counting``, (rows,), is what of a record counts, and ``whole`` are a
    unit's scores in which all of its records count alike.
    """
    slopes = Clipped.diagonals if at.is_diagonal else Clipped.slopes
    own = own or Coordinates(at.is_dispersion, at.direction, slopes)
    clipped = clipped_scores(z, at, own.dispersion)
    if whole is not None:
        clipped = clipped._replace(whole=without_weighing(whole)[:, -clipped.whole.shape[1] :])
    clipped = clipped.averaged(slope_share(made), at)
    curvature = own.slopes(clipped)
    if at.of_precision and made.precision is not None and made.slope is not None:
        curvature *= ratio(made.precision, made.slope)[:, None]
    kept = kept_of_curvature(curvature, at)
    along = clipped.along(own.direction, kept, at.along_bound)
    scales = at.scales(own.dispersion)
    score = clipped.score * scales.score
    parts = [
        score.T,
        scales.curvature * (curvature * kept[:, None]).T,
        scales.products * _products(score, counting, at).T,
        scales.counts * clipped.counts.T,
        scales.along * along[None],
        scales.traces * np.fmin(clipped.traces, at.leverage_bound),
    ]
    each = np.concatenate(parts)  # in this order in memory, loops over records are long
    return each.T if counting is None else (each * counting).T


def slope_share(made: Estimated) -> np.ndarray | None:
    """Return slopes as shares of what products of scores say, (rows,); None where these do."""
    if made.slope is None:
        return None
    if made.weights.shape[1] == 1 + len(BOTH):
        return ratio(made.slope, -made.weights[:, 1, 0] * made.weights[:, 2, 0])
    drawn = without_weighing(made.weights)[:, 1:, 0]
    return ratio(made.slope, (drawn**2).mean(axis=1))


def kept_of_curvature(curvature: np.ndarray, at: At) -> np.ndarray:
    """Return the factors, (rows,), that clip curvatures."""
    return clip_factors(row_norms(curvature), at.leverage_bound)


def _products(score: np.ndarray, counting: np.ndarray | None, at: At) -> np.ndarray:
    """Return products of clipped scores, or their traces, times what counts, as vectors."""
    if counting is None:
        return np.zeros((len(score), 0))
    if at.is_diagonal:
        each = row_norms(score)[:, None] ** 2
    else:
        each = svec(score[:, :, None] * score[:, None, :])
    return np.asarray(each * counting[:, None])


def draw_at_point(draw: Draw | None) -> Callable[[Batch, At, np.random.Generator], Batch] | None:
    """Draw outcomes at the point of a round, or each at a point of q."""
    return draw and (lambda batch, at, generator: draw(batch, points_of_draws(at), generator))


def points_of_draws(at: At) -> np.ndarray:
    """Return the point, (d,), or points of q for all draws, (DRAWS, d), which are public."""
    if at.root is None:
        return at.point
    every = _directions_of_draws(at.point.size)
    if at.is_diagonal:
        return np.asarray(at.point + every * (at.root * at.whitening))
    return np.asarray(at.point + every @ (at.root @ at.whitening))


@cache
def _directions_of_draws(d: int) -> np.ndarray:
    """Return vectors as long as standard normal ones; those that centre lie opposite each other."""
    far = np.random.Generator(np.random.PCG64(0)).normal(size=(WEIGHING + CENTRING // 2, d))
    far *= (d / (far**2).sum(axis=1, keepdims=True)) ** 0.5
    return np.concatenate([far, -far[WEIGHING:]])


def whitened_scores(scores: DrawnScores) -> Contribution:
    """Contribute the joint vector: score, slope, products, counts of lengths, slope along, traces.

    The context is an `At`; docs/engine.md says what a record adds. With survey weights all of it is
    multiplied by the record's share of the largest weight, and products of the score by its square.

    **Privacy.** The norm of a record's (or a unit's) vector is at most `At.clip_norm`, also before
    the wall clips it: the squares of its parts' bounds add up to the square of `At.clip_norm`.
    Draws are made for each record alone, from random numbers that never leave the wall.
    """
    if scores.channels:
        return _in_span(scores)
    size = vector_size(scores.dispersion, scores.survey is not None)
    return RowContribution(
        size=size,
        width=3 * scores.width + 2 * size,
        rows=lambda held, at: vectors(held[0], at, held[1]),
        prepare=lambda batch, at: (scores.of_batch(batch, at.point)[0], scores.shares(batch)),
        unit=_of_units(scores, lambda held, at: (times(held[0], at.whitening), held[1])),
        draw=draw_at_point(scores.draw),
        together=scores.together,
    )


def _of_units(
    scores: DrawnScores, made: Callable[[Any, At], tuple[np.ndarray, np.ndarray | None]]
) -> UnitVector:
    """Return how units are formed; ``made`` are whitened scores of records, and what counts."""
    sums = UnitSums(scores.outcomes_in_units, scores.d, scores.survey is not None)
    return UnitVector(
        size=sums.size,
        vectors=lambda summed, at: joint_vectors(*sums.split(summed), at),
        rows=lambda held, at: sums.rows(*made(held, at)),
        draw=draw_at_point(scores.draw_for_units),
    )


# the latents of each part of scores, (d,), and the channels that read them, (c,)
Spans = list[tuple[np.ndarray, np.ndarray]]


class InSpan(NamedTuple):
    """Records' vectors in coordinates of the span of their scores."""

    basis: np.ndarray  # (c, rows, d): orthonormal, or 0, each in latents of one part of scores
    scores: np.ndarray  # (rows, outcomes, c): whitened scores in this basis
    # (rows, ...): all parts of the joint vector, in this basis. Their norms are
    # those of the vectors: a change of coordinates keeps the norms of scores and of curvatures.
    vectors: np.ndarray
    counting: np.ndarray | None  # what of each record counts, (rows,), with survey weights


def _in_span(scores: DrawnScores) -> FactoredContribution:
    """Return `whitened_scores` of scores that lie in the span of few vectors."""
    dispersion, is_weighted = scores.dispersion, scores.survey is not None
    spans = [(part, scores.reach[:, part].any(axis=1)) for part in (~dispersion, dispersion)]
    c = sum(int(reach.sum()) for _, reach in spans)
    return FactoredContribution(
        size=vector_size(dispersion, is_weighted),
        width=5 * scores.width + 2 * scores.d,
        norms=lambda held, at: joint_norms(*held.vectors.T),
        weighted_sum=_sum_in_span,
        prepare=partial(_vectors_in_span, scores, spans),
        unit=_of_units(
            scores,
            lambda held, at: (combined(held.scores, held.basis), held.counting),
        ),
        draw=draw_at_point(scores.draw),
        together=scores.together,
        # of c vectors of a score, and for each matrix twice of c (c + 1) / 2 pairs of them,
        # orthogonal but for the order; and of all else
        parts_norm=(c + (1 + is_weighted) * c * (c + 1) + 1) ** 0.5,
    )


def _vectors_in_span(scores: DrawnScores, spans: Spans, batch: Batch, at: At) -> InSpan:
    parts = scores.parted(batch, at.point)
    of_records = times(parts.vectors, at.whitening)
    basis, R = _basis(of_records, spans)
    # A, (k, c, rows): A'A is the covariance of the predictors under q
    root = None if at.root is None else orthonormal(times(of_records, at.root))[1]
    made = scores.estimated(parts, root)
    z = coordinates(R, made.weights)
    own = np.repeat([False, True], [int(reach.sum()) for _, reach in spans])
    direction = None if at.direction is None else product(basis, at.direction).T

    def slopes(clipped: Clipped) -> np.ndarray:
        each = clipped.slopes()
        return diagonals(basis, smat(each)) if at.is_diagonal else each

    counting = scores.shares(batch)
    each = joint_vectors(z, None, counting, at, Coordinates(own, direction, slopes), made)
    return InSpan(basis, z, each, counting)


def _basis(vectors: np.ndarray, spans: Spans) -> tuple[np.ndarray, np.ndarray]:
    """Return Q and R as `orthonormal`, part by part of the latents."""
    if not spans[1][0].any():
        return orthonormal(vectors)
    each = [orthonormal(vectors[reach] * part) for part, reach in spans]
    R, first = np.zeros((sum(len(own) for _, own in each), *vectors.shape[:2])), 0
    for (_, reach), (_, own) in zip(spans, each, strict=True):
        R[first : first + len(own), reach] = own
        first += len(own)
    return np.concatenate([basis for basis, _ in each]), R


def _sum_in_span(held: InSpan, at: At, weights: np.ndarray) -> np.ndarray:
    """Sum the vectors of a batch, in coordinates of the latents."""
    diagonal = at.point.size if at.is_diagonal else 0
    ends = ends_of_parts(len(held.basis), diagonal, at.parts, at.products > 0)
    weighted = held.vectors * weights[:, None]
    score, *matrices = np.split(weighted[:, : ends[2]], ends[:2], axis=1)
    sums = [np.sum([u @ q for u, q in zip(score.T, held.basis, strict=True)], axis=0)]
    for packed in matrices:
        if diagonal or not packed.size:
            sums.append(packed.sum(axis=0))
        else:
            sums.append(svec(sum_of_products(held.basis, packed)))
    return np.concatenate([*sums, weighted[:, ends[2] :].sum(axis=0)])
