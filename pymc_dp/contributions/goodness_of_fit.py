"""Observed outcomes beside those that the model draws: histograms of how far out scores are.

A record counts in the bin of its observed outcome, and takes from each bin the share of its drawn
outcomes there. If the model is right, the sum is zero on average in every bin, whatever the
predictors are.
"""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.consistent_clipping import lengths
from pymc_dp.contributions.drawn_scores import (
    CENTRING,
    WEIGHING,
    DrawnScores,
    Scores,
    without_weighing,
)
from pymc_dp.contributions.joint_vector import At
from pymc_dp.contributions.outcomes import both_outcomes, drawn_name
from pymc_dp.contributions.spans import combined, coordinates, orthogonal
from pymc_dp.contributions.whitened import draw_at_point, weights_of, whitened
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch, RowContribution, UnitVector

# bins of the norms of scores, by powers of two; 1 is the norm that rounds clip to
LEAST, MOST = -3, 3
BINS = 2 * (MOST - LEAST)  # of outcomes at or below the median of all of a record's, then above
# the part of the expected counts in the vector: they need to be known less exactly
EXPECTED = 0.5
# one count less shares that sum to one, and these once more: at most two counts of 1 apart
CLIP_NORM = (2 + EXPECTED**2) ** 0.5

OUTCOMES = 1 + CENTRING  # that are compared


class Compared(NamedTuple):
    """Scores of a batch at observed and drawn outcomes, and where the outcomes are."""

    norms: np.ndarray  # (rows, 1 + draws): of whitened scores
    scores: np.ndarray  # (rows, 1 + draws, c): these, in the basis
    basis: np.ndarray  # (c, rows, d): orthogonal; none where c is d
    shares: np.ndarray  # (c, rows), or (c, 1): the factors that make it orthonormal, or 0
    balance: np.ndarray  # (rows, OUTCOMES): numbers above the median less those below


class Comparison(NamedTuple):
    """Sums over records, by bins."""

    excess: np.ndarray  # (BINS,): how many more outcomes were observed than are expected
    expected: np.ndarray  # (BINS,)


def compares_outcomes(records: Records, of_units: bool) -> bool:
    """Whether outcomes can be drawn, and a record (or unit) has more than two that it may have."""
    return records.outcomes is not None and (of_units or both_outcomes(records) is None)


def goodness_of_fit(records: Records, scores: DrawnScores) -> RowContribution:
    """Contribute observed less expected counts by bins, and expected ones.

    The context is an `At`. The vector has 2 BINS entries. Scores have the weights of rounds, which
    follow from other draws.

    **Privacy.** A record (or a unit) has one observed outcome, and shares of drawn ones that sum to
    one. With o and e the two, of which o is a unit vector and e has a sum of one, the squared norm
    |o - e|^2 + EXPECTED^2 |e|^2 is convex in e, and so largest where e is a unit vector, too: there
    it is at most 2 + EXPECTED^2.
    """
    d, outcomes = scores.d, scores.outcomes_in_units

    def prepare(batch: Batch, at: At) -> Compared:
        z, basis, shares = _in_basis(scores.of_batch(batch, at.point), at)
        norms = lengths(z)
        return Compared(norms, z, basis, shares, _of_scored(_balance(records, batch), norms))

    def rows_of_units(held: Compared, at: At) -> np.ndarray:
        z = held.scores
        if len(held.basis):
            z = combined(z * held.shares.T[:, None], held.basis)
        return np.concatenate([z.reshape(len(z), -1), held.balance], axis=1)

    def of_units(sums: np.ndarray, at: At) -> np.ndarray:
        z = sums[:, : outcomes * d].reshape(len(sums), outcomes, d)
        return _vectors(lengths(z), sums[:, outcomes * d :], at)

    return RowContribution(
        size=2 * BINS,
        width=3 * scores.width + (OUTCOMES + 3) * BINS,
        rows=lambda held, at: _vectors(held.norms, held.balance, at),
        prepare=prepare,
        unit=UnitVector(
            size=outcomes * d + OUTCOMES,
            vectors=of_units,
            rows=rows_of_units,
            draw=scores.draw_for_units and draw_at_point(scores.draw_for_units),
        ),
        draw=scores.draw and draw_at_point(scores.draw),
        together=scores.together,
        jumps=True,
    )


def compared(value: np.ndarray) -> Comparison:
    """Split a released vector into its parts, without their scales."""
    return Comparison(value[:BINS], value[BINS:] / EXPECTED)


def _in_basis(scores: Scores, at: At) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return whitened scores in the basis, the basis, and its shares, as `Compared` holds them."""
    if not len(scores.vectors):
        return whitened(scores.weights, at), scores.vectors, np.ones((0, 1))
    basis, shares, R = orthogonal(whitened(scores.vectors, at))
    return coordinates(R, scores.weights), basis, shares


def _balance(records: Records, batch: Batch) -> np.ndarray:
    """Return how many numbers of every outcome are above the median less how many are below."""
    total = np.zeros((1, OUTCOMES))
    for leaf in records.drawn:
        drawn = batch[drawn_name(leaf)][:, WEIGHING:]
        observed = np.moveaxis(batch[leaf], records.batch.axes[leaf], 0)
        every = np.concatenate([observed[:, None], drawn], axis=1).astype("float64")
        signs = np.sign(every - np.median(every, axis=1, keepdims=True))
        total = total + np.nansum(signs.reshape(len(signs), OUTCOMES, -1), axis=-1)
    return total


def _of_scored(balance: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Leave out records of which no outcome has a score: where it is missing, others stand in."""
    return np.where((norms == 0).all(axis=1)[:, None], 0.0, balance)


def _vectors(norms: np.ndarray, balance: np.ndarray, at: At) -> np.ndarray:
    """Return records' vectors from norms (n, 1 + draws), and the balance of their outcomes."""
    weights = weights_of((norms[:, 1 : 1 + WEIGHING] ** 2).mean(axis=1), at)
    kept = without_weighing(norms)
    _, exponents = np.frexp(weights[:, None] * kept / at.score_bound)
    side = np.where(balance > 0, MOST - LEAST, 0)
    bins = side + np.clip(exponents - 1 - LEAST, 0, MOST - LEAST - 1)
    bins = np.where(kept == 0, side, bins)  # of 0 there is no exponent
    counts = (bins[:, :, None] == np.arange(BINS)).astype("float64")
    expected = counts[:, 1:].mean(axis=1)
    vectors = np.concatenate([counts[:, 0] - expected, EXPECTED * expected], axis=1)
    return np.where(np.isfinite(norms).all(axis=1)[:, None], vectors, np.nan)
