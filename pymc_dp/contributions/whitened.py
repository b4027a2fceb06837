"""Scores and curvatures of records in whitened coordinates, clipped consistently.

Where few vectors span the scores that a record has at all outcomes, no score is formed:
`whitened_in_span` computes their clipping and their slopes in coordinates of that span.
"""

from pymc_dp.contributions.drawn_scores import DrawnScores
from pymc_dp.contributions.joint_vector import parts_of, vector_size
from pymc_dp.contributions.points_of_draws import draw_at_point
from pymc_dp.contributions.whitened_in_span import in_span
from pymc_dp.contributions.whitened_vectors import of_units, vectors, whitened
from pymc_dp.privacy.contribution import Contribution, RowContribution


def whitened_scores(scores: DrawnScores) -> Contribution:
    """Contribute the score, its slope, counts of lengths, slope along a direction, squared norm.

    The context is an `At`. Scores of the latents of the dispersion, if there are any, are weighted,
    clipped and counted by themselves.

    A record of weight w adds u = clip(w W g - a), where a is the shift that makes u zero on average
    over outcomes of the model at ``At.point``; w depends on other draws of the outcome, never on
    the outcome itself. By the likelihood's score identity the slope of E[u] is -E[u (W g)'], and
    the same draws estimate it. Where a method averages over a posterior q, whose root is
    ``At.root``, g is what its `Estimating` makes of scores under q, and q draws outcomes.
    With survey weights all of it is multiplied by the record's share of the largest weight, and
    the products of the score by its square.

    **Privacy.** The norm of a record's (or a unit's) vector is at most `At.clip_norm`, also before
    the wall clips it: the squares of its parts' bounds add up to the square of `At.clip_norm`.
    Draws are made for each record alone, from random numbers that never leave the wall.
    """
    return in_span(scores) if scores.channels else _formed(scores)


def _formed(scores: DrawnScores) -> RowContribution:
    size = vector_size(scores.d, parts_of(scores.dispersion), scores.survey is not None)
    return RowContribution(
        size=size,
        width=3 * scores.width + 2 * size,
        rows=lambda held, at: vectors(held[0], at, held[1]),
        prepare=lambda batch, at: (scores.of_batch(batch, at.point).weights, scores.shares(batch)),
        unit=of_units(scores, lambda held, at: (whitened(held[0], at), held[1])),
        draw=scores.draw and draw_at_point(scores.draw),
        together=scores.together,
    )
