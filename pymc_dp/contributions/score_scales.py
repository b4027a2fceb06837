"""The magnitudes of scores, latent by latent: how many records have one, and its mean logarithm."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.drawn_scores import DrawnScores, Scores
from pymc_dp.contributions.spans import combined
from pymc_dp.contributions.unit_sums import UnitSums
from pymc_dp.privacy.contribution import Batch, RowContribution, UnitVector

# binary logarithms of magnitudes are clipped to this, and divided by it
BITS = 32.0


def size_of_scales(d: int, observed: int) -> int:
    """Return the length of the vector, which is also the square of its largest norm."""
    return 1 + 2 * d + observed


class Magnitudes(NamedTuple):
    """What the sums of records say, without their factor."""

    number: float  # of records
    counts: np.ndarray  # of those whose score is not 0, (d,)
    bits: np.ndarray  # sum of the logarithms of these scores' root mean squares, (d,)
    observed: np.ndarray  # the same of the observed scores themselves, (observed,)


def split_scales(value: np.ndarray, d: int) -> Magnitudes:
    """Split a released vector into its parts."""
    counts, bits, observed = np.split(value[1:], [d, 2 * d])
    return Magnitudes(float(value[0]), counts, BITS * bits, BITS * observed)


def score_scales(scores: DrawnScores, observed: Sequence[int] = ()) -> RowContribution:
    """Contribute 1, and for every latent whether its score is not 0, and the score's magnitude.

    The magnitude is the binary logarithm of the root mean square over drawn outcomes, over `BITS`.
    That of the ``observed`` latents at the observed outcome follows. The context is a point. With
    survey weights all is multiplied by the record's share of the largest weight.

    **Privacy.** No entry is larger than 1, so the norm of a record's (or a unit's) vector is at
    most the root of `size_of_scales`.
    """
    sums = UnitSums(scores.outcomes_in_units, scores.d, scores.survey is not None)
    last = list(observed)

    def prepare(batch: Batch, point: np.ndarray) -> tuple[Scores, np.ndarray | None]:
        return scores.of_batch(batch, point), scores.shares(batch)

    def rows(prepared: tuple[Scores, np.ndarray | None], point: np.ndarray) -> np.ndarray:
        of_batch, counting = prepared
        chances = of_batch.probabilities if of_batch.weights.shape[1] > 1 else None
        return _vectors(_formed(of_batch), chances, last, counting)

    def of_units(summed: np.ndarray, point: np.ndarray) -> np.ndarray:
        each, _, counting = sums.split(summed)
        drawn = each.shape[1] - 1
        chances = np.full((len(each), drawn), 1 / drawn) if drawn else None
        return _vectors(each, chances, last, counting)

    return RowContribution(
        size=size_of_scales(scores.d, len(last)),
        width=2 * scores.width + 4 * scores.d,
        rows=rows,
        prepare=prepare,
        unit=UnitVector(
            size=sums.size,
            vectors=of_units,
            rows=lambda prepared, point: sums.rows(_formed(prepared[0]), prepared[1]),
            draw=scores.draw_for_units,
        ),
        draw=scores.draw,
        together=scores.together,
        jumps=True,
    )


def _formed(scores: Scores) -> np.ndarray:
    weights, vectors = scores
    return combined(weights, vectors) if len(vectors) else weights


def _vectors(
    g: np.ndarray, chances: np.ndarray | None, observed: list[int], counting: np.ndarray | None
) -> np.ndarray:
    """Return records' vectors from scores (rows, outcomes, d), the observed one's first."""
    with np.errstate(all="ignore"):  # what is not finite adds nothing
        largest = np.abs(g).max(axis=1, keepdims=True)
        each = np.abs(g if chances is None else g[:, 1:]) / np.where(largest > 0, largest, 1.0)
        shares = np.ones(each.shape[:2]) if chances is None else chances
        mean_square = (shares[:, :, None] * each**2).sum(axis=1)
        bits = np.log2(largest[:, 0]) + np.log2(mean_square) / 2
        of_observed = np.log2(np.abs(g[:, 0, observed]))
    some = (bits > -BITS).astype("float64")
    parts = [np.ones((len(g), 1)), some, some * np.clip(bits, -BITS, BITS) / BITS]
    vectors = np.concatenate([*parts, np.clip(of_observed, -BITS, BITS) / BITS], axis=1)
    finite = np.isfinite(g).all(axis=(1, 2))
    vectors = np.where(finite[:, None], vectors, np.nan)
    return vectors if counting is None else vectors * counting[:, None]
