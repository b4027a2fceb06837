"""Whitened scores where few vectors span those that a record has at all outcomes.

Their clipping and their slopes are computed in coordinates of that span, and no score is formed.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.contributions.clipped_scores import Clipped
from pymc_dp.contributions.drawn_scores import DrawnScores
from pymc_dp.contributions.joint_vector import At, parts_of, vector_size
from pymc_dp.contributions.layout import smat, svec
from pymc_dp.contributions.points_of_draws import draw_at_point
from pymc_dp.contributions.spans import (
    combined,
    coordinates,
    diagonals,
    orthogonal,
    scaled_pairs,
    sum_of_products,
)
from pymc_dp.contributions.tails import SIZE
from pymc_dp.contributions.whitened_vectors import (
    Coordinates,
    joint_vectors,
    of_units,
    times,
    whitened,
)
from pymc_dp.privacy.contribution import Batch, FactoredContribution
from pymc_dp.privacy.norms import joint_norms
from pymc_dp.privacy.rowwise import product


class InSpan(NamedTuple):
    """Records' vectors in coordinates of the span of their scores."""

    basis: np.ndarray  # (c, rows, d): orthogonal, each in latents of one part of scores
    shares: np.ndarray  # (c, rows), or (c, 1): the factors that make it orthonormal, or 0
    scores: np.ndarray  # (rows, outcomes, c): whitened scores in this basis
    # (rows, ...): score, its slope, counts, that along a direction, and variance. Their norms are
    # those of the vectors: a change of coordinates keeps the norms of scores and of curvatures.
    vectors: np.ndarray
    counting: np.ndarray | None  # what of each record counts, (rows,), with survey weights

    def in_latents(self) -> np.ndarray:
        """Return whitened scores, (rows, outcomes, d)."""
        return combined(self.scores * self.shares.T[:, None], self.basis)

    def sum_of_pairs(self, packed: np.ndarray) -> np.ndarray:
        """Sum the records' symmetric matrices, (rows, c (c + 1) / 2), as one of the latents."""
        return svec(sum_of_products(self.basis, scaled_pairs(packed, self.shares)))


class _ScoresInSpan(NamedTuple):
    """Scores of few vectors, with the coordinates that each part of the latents has."""

    scores: DrawnScores
    # the latents of each part of scores, and the channels that read them
    spans: list[tuple[np.ndarray, np.ndarray]]

    @property
    def parted(self) -> Any:
        """The function that computes vectors and weights, which scores of few vectors have."""
        return self.scores.parted

    @property
    def own(self) -> np.ndarray:
        """Which coordinates are of the dispersion, (c,)."""
        return np.repeat([False, True], [int(reach.sum()) for _, reach in self.spans])

    def prepare(self, batch: Batch, at: At) -> InSpan:
        """Compute the vectors of a batch."""
        parts = self.parted(batch, at.point)
        vectors = whitened(parts.vectors, at)
        basis, shares, R = _basis(vectors, self.spans)
        made = self.scores.estimated(parts, _root(vectors, at))
        z = coordinates(R, made.weights)
        slopes = partial(_of_latents, basis, shares) if at.is_diagonal else Clipped.slopes
        direction = None if at.direction is None else (product(basis, at.direction) * shares).T
        counting = self.scores.shares(batch)
        each = joint_vectors(z, at, Coordinates(self.own, direction, slopes), made, counting)
        return InSpan(basis, shares, z, each, counting)

    def weighted_sum(self, prepared: InSpan, at: At, weights: np.ndarray) -> np.ndarray:
        """Sum the vectors of a batch, in coordinates of the latents."""
        c, counted = len(self.own), -3 - SIZE * parts_of(self.scores.dispersion)
        has_pairs = self.scores.survey is not None and self.scores.d <= MANY_LATENTS
        pairs = c * (c + 1) // 2 if has_pairs else int(self.scores.survey is not None)
        weighted = prepared.vectors * weights[:, None]
        in_basis = weighted[:, :c].T * prepared.shares
        score = np.sum([u @ q for u, q in zip(in_basis, prepared.basis, strict=True)], axis=0)
        paired = counted - pairs
        curvature, products = weighted[:, c:paired], weighted[:, paired:counted]
        total = curvature.sum(axis=0) if at.is_diagonal else prepared.sum_of_pairs(curvature)
        squares = prepared.sum_of_pairs(products) if has_pairs else products.sum(axis=0)
        return np.concatenate([score, total, squares, weighted[:, counted:].sum(axis=0)])


def in_span(scores: DrawnScores) -> FactoredContribution:
    """Return `whitened_scores` of scores that lie in the span of few vectors."""
    dispersion, is_weighted = scores.dispersion, scores.survey is not None
    spans = [(part, scores.reach[:, part].any(axis=1)) for part in (~dispersion, dispersion)]
    spanned = _ScoresInSpan(scores, spans)
    c = len(spanned.own)
    return FactoredContribution(
        size=vector_size(scores.d, parts_of(dispersion), is_weighted),
        width=5 * scores.width + 2 * scores.d,
        norms=lambda prepared, at: joint_norms(*prepared.vectors.T),
        weighted_sum=spanned.weighted_sum,
        prepare=spanned.prepare,
        unit=of_units(scores, lambda prepared, at: (prepared.in_latents(), prepared.counting)),
        draw=scores.draw and draw_at_point(scores.draw),
        together=scores.together,
        # of c vectors of a score, and for each matrix twice of c (c + 1) / 2 pairs of them,
        # orthogonal but for the order; and of all else
        parts_norm=(c + (1 + is_weighted) * c * (c + 1) + 1) ** 0.5,
    )


def _of_latents(basis: np.ndarray, shares: np.ndarray, clipped: Clipped) -> np.ndarray:
    return diagonals(basis, smat(scaled_pairs(clipped.slopes(), shares)))


def _basis(
    vectors: np.ndarray, spans: list[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Q, S and R as `orthogonal`, part by part of the latents."""
    if not spans[1][0].any():
        return orthogonal(vectors)
    each, rows = [orthogonal(vectors[reach] * part) for part, reach in spans], vectors.shape[1]
    Q = np.concatenate([basis for basis, _, _ in each])
    S = np.concatenate([np.broadcast_to(shares, (len(shares), rows)) for _, shares, _ in each])
    R, first = np.zeros((len(Q), *vectors.shape[:2])), 0
    for (_, reach), (_, _, own) in zip(spans, each, strict=True):
        R[first : first + len(own), reach] = own
        first += len(own)
    return Q, S, R


def _root(vectors: np.ndarray, at: At) -> np.ndarray | None:
    """Return A, (k, c, rows): A'A is the covariance of whitened vectors' predictors under q.

    None where scores are taken at the point, which public numbers alone decide.
    """
    return None if at.root is None else orthogonal(times(vectors, at.root))[2]
