"""Records' vectors from whitened scores, in coordinates of the latents or of each record's span."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.contributions.clipped_scores import Clipped, clipped_scores
from pymc_dp.contributions.drawn_scores import DrawnScores, without_weighing
from pymc_dp.contributions.estimating import AT_POINT, Estimated, ratio
from pymc_dp.contributions.joint_vector import At
from pymc_dp.contributions.layout import svec
from pymc_dp.contributions.outcomes import BOTH
from pymc_dp.contributions.points_of_draws import draw_at_point
from pymc_dp.contributions.unit_sums import UnitSums
from pymc_dp.privacy.contribution import UnitVector
from pymc_dp.privacy.norms import clip_factors, rounded_product, row_norms


class Coordinates(NamedTuple):
    """Coordinates in which scores are clipped: those of latents, or of a basis of each record."""

    dispersion: np.ndarray  # which are of the dispersion of outcomes, (c,)
    direction: np.ndarray | None  # that of the round, (c,), or (rows, c)
    slopes: Callable[[Clipped], np.ndarray]  # as vectors: symmetric matrices, or diagonals alone


def whitened(scores: np.ndarray, at: At) -> np.ndarray:
    """Bring vectors (..., d) to the coordinates of a round."""
    return times(scores, at.whitening)


def times(vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Multiply vectors (..., d) by a matrix, (d, d), or a diagonal, (d,)."""
    return np.asarray(vectors * matrix if matrix.ndim == 1 else rounded_product(vectors, matrix.T))


def vectors(scores: np.ndarray, at: At, counting: np.ndarray | None = None) -> np.ndarray:
    """Return records' vectors from scores (rows, 1 + draws, d), the observed outcome's first."""
    z = whitened(scores, at)
    return _of_whitened(z, z, counting, at)


def _of_whitened(
    z: np.ndarray, whole: np.ndarray, counting: np.ndarray | None, at: At
) -> np.ndarray:
    slopes = Clipped.diagonals if at.is_diagonal else Clipped.slopes
    coordinates = Coordinates(at.is_dispersion, at.direction, slopes)
    return joint_vectors(z, at, coordinates, AT_POINT, counting, whole)


def joint_vectors(
    z: np.ndarray,
    at: At,
    coordinates: Coordinates,
    made: Estimated = AT_POINT,
    counting: np.ndarray | None = None,
    whole: np.ndarray | None = None,
) -> np.ndarray:
    """Return records' vectors from whitened scores (rows, 1 + draws, c), the observed one first.

    ``made`` says what the slopes of scores are that were not taken at a point. With survey weights
    ``counting``, (rows,), is what of a record counts, and ``whole`` are a unit's scores in which
    all of its records count alike.
    """
    clipped = clipped_scores(z, at, coordinates.dispersion)
    if whole is not None and whole is not z:
        clipped = clipped._replace(whole=without_weighing(whole)[:, -clipped.whole.shape[1] :])
    clipped = clipped.averaged(slope_share(made), at)
    curvature = coordinates.slopes(clipped)
    if at.of_precision and made.precision_share is not None:
        curvature *= made.precision_share[:, None]
    kept = clip_factors(row_norms(curvature), at.curvature_bound)
    along = clipped.along(coordinates.direction, kept, at.along_bound)
    scale = np.where(coordinates.dispersion, at.dispersion_scale, 1.0)
    score = clipped.score * scale
    parts = [
        score.T,
        at.curvature_scale * (curvature * kept[:, None]).T,
        at.products_scale * _products(score, counting, at).T,
        at.counts_scale * clipped.counts.T,
        at.along_scale * along[None],
        at.trace_scale * np.fmin([clipped.variance, clipped.information], at.curvature_bound),
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


def _products(score: np.ndarray, counting: np.ndarray | None, at: At) -> np.ndarray:
    """Return products of clipped scores, or their traces, times what counts, as vectors."""
    if counting is None:
        return np.zeros((len(score), 0))
    if at.point.size > MANY_LATENTS:
        each = row_norms(score)[:, None] ** 2
    else:
        each = svec(score[:, :, None] * score[:, None, :])
    return np.asarray(each * counting[:, None])


def of_units(
    scores: DrawnScores, made: Callable[[Any, At], tuple[np.ndarray, np.ndarray | None]]
) -> UnitVector:
    """Return how units are formed; ``made`` are whitened scores of records, and what counts."""
    sums = UnitSums(scores.outcomes_in_units, scores.d, scores.survey is not None)
    return UnitVector(
        size=sums.size,
        vectors=lambda found, at: _of_whitened(*sums.split(found), at),
        rows=lambda held, at: sums.rows(*made(held, at)),
        draw=scores.draw_for_units and draw_at_point(scores.draw_for_units),
    )
