"""Scores and curvatures of records in whitened coordinates, clipped consistently.

Where few vectors span the scores that a record has at all outcomes, their clipping and their slopes
are computed in coordinates of that span, and no score is formed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions.consistent_clipping import clip_both, clip_consistently, lengths
from pymc_dp.contributions.drawn_scores import (
    CENTRING,
    WEIGHING,
    DrawnScores,
    probabilities,
    without_weighing,
)
from pymc_dp.contributions.estimating import AT_POINT, Estimated
from pymc_dp.contributions.joint_vector import At, vector_size
from pymc_dp.contributions.layout import smat, svec
from pymc_dp.contributions.outcomes import BOTH, Draw
from pymc_dp.contributions.spans import (
    combined,
    coordinates,
    diagonals,
    orthogonal,
    scaled_pairs,
    sum_of_products,
)
from pymc_dp.contributions.tails import SIZE, counts, of_others
from pymc_dp.privacy.contribution import (
    Batch,
    Contribution,
    FactoredContribution,
    RowContribution,
    UnitVector,
)
from pymc_dp.privacy.norms import LARGEST_NORM, clip_factors, joint_norms, row_norms
from pymc_dp.privacy.rowwise import each_product, product, rounded_product


class InSpan(NamedTuple):
    """Records' vectors in coordinates of the span of their scores."""

    basis: np.ndarray  # (c, rows, d): orthogonal
    shares: np.ndarray  # (c, rows), or (c, 1): the factors that make it orthonormal, or 0
    scores: np.ndarray  # (rows, outcomes, c): whitened scores in this basis
    # (rows, ...): score, its slope, counts, that along a direction, and variance. Their norms are
    # those of the vectors: a change of coordinates keeps the norms of scores and of curvatures.
    vectors: np.ndarray


# (clipped, whitened scores), each (rows, k, d) -> means of their products, as vectors: of symmetric
# parts, or of diagonals alone
Slopes = Callable[[np.ndarray, np.ndarray], np.ndarray]


def whitened_scores(scores: DrawnScores) -> Contribution:
    """Contribute the score, its slope, counts of lengths, slope along a direction, squared norm.

    The context is an `At`.

    A record of weight w adds u = clip(w W g - a), where a is the shift that makes u zero on average
    over outcomes of the model at ``At.point``; w depends on other draws of the outcome, never on
    the outcome itself. By the likelihood's score identity the slope of E[u] is -E[u (W g)'], and
    the same draws estimate it. Where a method averages over a posterior q, whose covariance is
    ``At.spread`` W'W, g is what its `Estimating` makes of scores under q, and q draws outcomes.

    **Privacy.** The norm of a record's (or a unit's) vector is at most `At.clip_norm`, also before
    the wall clips it: the squares of its parts' bounds add up to the square of `At.clip_norm`.
    Draws are made for each record alone, from random numbers that never leave the wall.
    """
    return _formed(scores) if scores.channels == 0 else _in_span(scores)


def _formed(scores: DrawnScores) -> RowContribution:
    d, count = scores.d, scores.outcomes_in_units
    return RowContribution(
        size=vector_size(d),
        width=3 * scores.width + 2 * vector_size(d),
        rows=vectors,
        prepare=lambda batch, at: scores.of_batch(batch, at.point).weights,
        unit=UnitVector(
            size=count * d,
            vectors=lambda sums, at: vectors(sums.reshape(len(sums), count, d), at),
            rows=lambda each, at: each.reshape(len(each), count * d),
            draw=scores.draw_for_units and draw_at_point(scores.draw_for_units),
        ),
        draw=scores.draw and draw_at_point(scores.draw),
        together=scores.together,
    )


def _in_span(scores: DrawnScores) -> FactoredContribution:
    d, c, count = scores.d, scores.channels, scores.outcomes_in_units
    parted: Any = scores.parted  # scores of few vectors have it

    def prepare(batch: Batch, at: At) -> InSpan:
        found = parted(batch, at.point)
        vectors = whitened(found.vectors, at)
        basis, shares, R = orthogonal(vectors)
        made = scores.estimated(found, _root(vectors, R, at))
        z = coordinates(R, made.weights)

        def of_latents(u: np.ndarray, z: np.ndarray) -> np.ndarray:
            return diagonals(basis, smat(scaled_pairs(_matrices(u, z), shares)))

        slopes = of_latents if at.is_diagonal else _matrices
        direction = None if at.direction is None else (product(basis, at.direction) * shares).T
        return InSpan(basis, shares, z, joint_vectors(z, at, slopes, direction, made))

    def weighted_sum(held: InSpan, at: At, weights: np.ndarray) -> np.ndarray:
        weighted = held.vectors * weights[:, None]
        in_basis = weighted[:, :c].T * held.shares
        score = np.sum([u @ q for u, q in zip(in_basis, held.basis, strict=True)], axis=0)
        curvature = weighted[:, c : -2 - SIZE]
        if at.is_diagonal:
            total = curvature.sum(axis=0)
        else:
            total = svec(sum_of_products(held.basis, scaled_pairs(curvature, held.shares)))
        return np.concatenate([score, total, weighted[:, -2 - SIZE :].sum(axis=0)])

    return FactoredContribution(
        size=vector_size(d),
        width=5 * scores.width + 2 * d,
        norms=lambda held, at: joint_norms(*held.vectors.T),
        weighted_sum=weighted_sum,
        prepare=prepare,
        unit=UnitVector(
            size=count * d,
            vectors=lambda sums, at: _of_whitened(sums.reshape(len(sums), count, d), at),
            rows=lambda held, at: combined(
                held.scores * held.shares.T[:, None], held.basis
            ).reshape(-1, count * d),
            draw=scores.draw_for_units and draw_at_point(scores.draw_for_units),
        ),
        draw=scores.draw and draw_at_point(scores.draw),
        together=scores.together,
        # of c vectors of a score, and of c (c + 1) / 2 pairs of them, orthogonal but for the order
        parts_norm=c + 1,
    )


def _root(vectors: np.ndarray, R: np.ndarray, at: At) -> np.ndarray:
    """Return A, (c, c, rows): A'A is the covariance of whitened vectors' predictors under q."""
    if at.root is None or len(vectors) > 1:
        return np.asarray(at.spread**0.5 * R)
    return np.asarray(row_norms(rounded_product(vectors[0], at.root.T))[None, None])


def whitened(scores: np.ndarray, at: At) -> np.ndarray:
    """Bring vectors (..., d) to the coordinates of a round."""
    return np.asarray(
        scores * at.whitening if at.is_diagonal else rounded_product(scores, at.whitening.T)
    )


def vectors(scores: np.ndarray, at: At) -> np.ndarray:
    """Return records' vectors from scores (rows, 1 + draws, d), the observed outcome's first."""
    return _of_whitened(whitened(scores, at), at)


def _of_whitened(z: np.ndarray, at: At) -> np.ndarray:
    return joint_vectors(z, at, _diagonals if at.is_diagonal else _matrices, at.direction)


def joint_vectors(
    z: np.ndarray,
    at: At,
    slopes: Slopes,
    direction: np.ndarray | None,
    made: Estimated = AT_POINT,
) -> np.ndarray:
    """Return records' vectors from whitened scores (rows, 1 + draws, d), the observed one first.

    ``direction`` is that of the round in coordinates of the scores, (d,), or (rows, d) where each
    record has its own. ``made`` says what the slopes of scores are that were not taken at a point.
    """
    z = np.ascontiguousarray(z)  # what is added up in another order has other last bits
    of_both = z.shape[1] == 1 + len(BOTH)
    clipped = (_from_both if of_both else _from_draws)(z, at)
    clipped = _averaged(clipped, made.slope_share, at)
    curvature = slopes(clipped.scores, clipped.whole)
    if at.of_precision and made.precision_share is not None:
        curvature *= made.precision_share[:, None]
    curvature *= clip_factors(row_norms(curvature), at.curvature_bound)[:, None]
    along = _along(clipped, direction, at.along_bound)
    parts = [
        clipped.score.T,
        at.curvature_scale * curvature.T,
        at.counts_scale * _counts(z).T,
        at.along_scale * along[None],
        at.variance_scale * clipped.variance[None],
    ]
    return np.concatenate(parts).T  # in this order in memory, loops over records are long


def _counts(z: np.ndarray) -> np.ndarray:
    """Count the lengths of whitened scores, before they are weighted and clipped."""
    norms = np.minimum(lengths(z), LARGEST_NORM)
    observed, drawn = norms[:, :1], norms[:, 1:]
    if not drawn.shape[1]:
        return counts(observed, np.ones_like(observed), np.zeros((len(z), 0)))
    if drawn.shape[1] == len(BOTH):
        usual = np.sqrt(drawn[:, :1]) * np.sqrt(drawn[:, 1:])
        return counts(norms, np.repeat(usual, 3, axis=1), probabilities(drawn))
    # under the model all outcomes are alike, and so is each as a multiple of the others
    return counts(norms, of_others(norms), np.full(drawn.shape, 1 / drawn.shape[1]))


class Clipped(NamedTuple):
    """Records' clipped scores; their slopes are means of products of ``scores`` and ``whole``."""

    score: np.ndarray  # (rows, d): at the observed outcome
    scores: np.ndarray  # (rows, k, d): at k outcomes
    whole: np.ndarray  # (rows, k, d): these before they were clipped
    variance: np.ndarray  # (rows,)


def _averaged(clipped: Clipped, slope_share: np.ndarray | None, at: At) -> Clipped:
    """Bring slopes and variances of scores that were averaged over q to what they are on average.

    Products of such scores at outcomes drawn from q hold the variance of means under q, too. With h
    the mean square of a whitened score, they are h + spread h^2.
    """
    if slope_share is None:
        if not at.spread:
            return clipped
        squares = np.maximum(np.vecdot(clipped.scores, clipped.whole).mean(axis=1), 0.0)
        slope_share = 2 / (1 + np.sqrt(1 + 4 * at.spread * squares))
    return clipped._replace(
        whole=clipped.whole * slope_share[:, None, None],
        variance=clipped.variance * np.minimum(slope_share, 1.0),
    )


def _along(clipped: Clipped, direction: np.ndarray | None, bound: float) -> np.ndarray:
    """Return the slopes along the direction of a round, (rows,), clipped."""
    if direction is None:
        return np.zeros(len(clipped.score))
    u, whole = (np.vecdot(x, direction[..., None, :]) for x in (clipped.scores, clipped.whole))
    return np.asarray(np.clip((u * whole).mean(axis=1), -bound, bound))


def _from_draws(z: np.ndarray, at: At) -> Clipped:
    """Clip observed scores; estimate their slopes and variances from drawn ones."""
    weighted, drawn = z[:, :1], z[:, :1]
    if z.shape[1] > 1:
        weights = weights_of((z[:, 1 : 1 + WEIGHING] ** 2).sum(axis=-1).mean(axis=1), at)
        kept = without_weighing(z)
        weighted, drawn = weights[:, None, None] * kept, kept
    u = clip_consistently(weighted, at.score_bound)
    first = min(1, drawn.shape[1] - 1)  # means over drawn outcomes alone, where there are any
    variance = (u[:, first:] ** 2).sum(axis=-1).mean(axis=1)
    return Clipped(u[:, 0], u[:, first:], drawn[:, first:], variance)


def _from_both(z: np.ndarray, at: At) -> Clipped:
    """Clip observed scores beside those of both outcomes, from which all means follow.

    Scores have zero mean: those of probabilities q and p = 1 - q are -p x and q x, so that every
    mean of their products, p q x x', is minus their product.
    """
    no, yes = z[:, 1:2], z[:, 2:]
    variance = np.maximum(-(no * yes).sum(axis=(1, 2)), 0.0)
    u = clip_both(z, weights_of(variance, at), at.score_bound)
    of_clipped = np.maximum(-(u[:, 1] * u[:, 2]).sum(axis=-1), 0.0)
    return Clipped(u[:, 0], -u[:, 1:2], yes, of_clipped)


def weights_of(variance: np.ndarray, at: At) -> np.ndarray:
    """Return the weights of records whose scores have these variances."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.fmin(1.0, at.curvature_bound / variance))


def _diagonals(u: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Average the products of clipped and whitened scores, latent by latent."""
    return np.asarray((u * z).mean(axis=1))


def _matrices(u: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Average the products of clipped and whitened scores; symmetric parts as vectors."""
    slope = each_product(np.swapaxes(u, 1, 2), z) / u.shape[1]
    return svec((slope + np.swapaxes(slope, 1, 2)) / 2)


def draw_at_point(draw: Draw) -> Callable[[Batch, At, np.random.Generator], Batch]:
    """Draw outcomes at the point of a round, or each at a point of q."""
    return lambda batch, at, generator: draw(batch, points_of_draws(at), generator)


def points_of_draws(at: At) -> np.ndarray:
    """Return the point, (d,), or points of q for all draws, (DRAWS, d), which are public.

    Those of the draws that centre scores lie opposite each other.
    """
    if not at.spread:
        return at.point
    d = at.point.size
    far = np.random.default_rng(0).normal(size=(WEIGHING + CENTRING // 2, d))
    far *= (d / (far**2).sum(axis=1, keepdims=True)) ** 0.5
    every = np.concatenate([far, -far[WEIGHING:]])
    whole = every * at.whitening if at.is_diagonal else every @ at.whitening
    return np.asarray(at.point + at.spread**0.5 * whole)
