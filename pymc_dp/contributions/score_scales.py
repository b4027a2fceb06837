"""The magnitudes of scores, latent by latent, as a histogram."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.drawn_scores import DrawnScores, Scores
from pymc_dp.contributions.spans import combined
from pymc_dp.contributions.unit_sums import UnitSums
from pymc_dp.privacy.contribution import Batch, FactoredContribution, UnitVector

# bins of |score|, by powers of two
LEAST, MOST = -32, 32
BINS = MOST - LEAST


class Binned(NamedTuple):
    """Scores of a batch, and their bins."""

    scores: Scores
    # (k, rows, histograms): those of outcomes that were not observed, where there are any; the last
    # are of the observed outcome
    bins: np.ndarray
    shares: np.ndarray  # (rows, k): what each counts
    counting: np.ndarray | None  # what of each record counts, (rows,), with survey weights
    good: np.ndarray  # (rows,): whether all scores of a record are finite


def score_scales(scores: DrawnScores, observed: Sequence[int] = ()) -> FactoredContribution:
    """Contribute, for every latent, the share of draws with a score between powers of two.

    The same follows for the scores of the ``observed`` latents at the outcome that was observed.
    The context is a point. The vector has (d + len(observed), BINS) entries; scores of 0 count in
    the first bin. With survey weights a record counts by its share of the largest weight.

    **Privacy.** The shares of a latent add up to 1, so the norm of a record's (or a unit's) vector
    is at most sqrt(d + len(observed)), and it is clipped as if it were as long.
    """
    d, count = scores.d, scores.outcomes_in_units
    sums = UnitSums(count, d, scores.survey is not None)
    also, histograms = list(observed), scores.d + len(observed)

    def prepare(batch: Batch, point: np.ndarray) -> Binned:
        found = scores.of_batch(batch, point)
        number = found.weights.shape[1]
        each = (found._replace(weights=found.weights[:, k : k + 1]) for k in range(number))
        every = (np.asarray(_formed(one)[:, 0]) for one in each)
        binned, finite = zip(*[(_bins(g), np.isfinite(g).all(axis=1)) for g in every], strict=True)
        good, counted = np.all(finite, axis=0), binned[min(1, number - 1) :]
        bins = np.stack([np.concatenate([b, binned[0][:, also]], axis=1) for b in counted])
        shares = found.probabilities if number > 1 else np.ones((len(good), 1))
        counting = scores.shares(batch)
        if counting is not None:
            shares = shares * counting[:, None]
        good &= np.isfinite(shares).all(axis=1)
        return Binned(found, bins, np.where(good[:, None], shares, 0.0), counting, good)

    def norms(held: Binned, point: np.ndarray) -> np.ndarray:
        return np.where(held.good, histograms**0.5, np.nan)

    def weighted_sum(held: Binned, point: np.ndarray, weights: np.ndarray) -> np.ndarray:
        total = np.zeros(histograms * BINS)
        for bins, share in zip(held.bins, held.shares.T, strict=True):
            places = bins + BINS * np.arange(histograms)
            each = np.repeat(weights * share, histograms)
            total += np.bincount(places.ravel(), each, minlength=histograms * BINS)
        return total

    def of_units(found: np.ndarray, point: np.ndarray) -> np.ndarray:
        scored, _, counting = sums.split(found)
        every = _bins(scored)
        drawn = every[:, min(1, count - 1) :]
        seen = np.broadcast_to(every[:, :1, also], (*drawn.shape[:2], len(also)))
        bins = np.concatenate([drawn, seen], axis=-1)
        shares = (bins[..., None] == np.arange(BINS)).mean(axis=1).reshape(len(found), -1)
        if counting is not None:
            shares = shares * counting[:, None]
        return np.where(np.isfinite(found).all(axis=1)[:, None], shares, np.nan)

    return FactoredContribution(
        size=histograms * BINS,
        width=2 * scores.width + 4 * d,
        norms=norms,
        weighted_sum=weighted_sum,
        prepare=prepare,
        unit=UnitVector(
            size=sums.size,
            vectors=of_units,
            rows=lambda held, point: sums.rows(_formed(held.scores), held.counting),
            draw=scores.draw_for_units,
        ),
        draw=scores.draw,
        together=scores.together,
        jumps=True,
    )


def _formed(scores: Scores) -> np.ndarray:
    weights, vectors = scores
    return combined(weights, vectors) if len(vectors) else weights


def _bins(scores: np.ndarray) -> np.ndarray:
    _, exponents = np.frexp(scores)  # |score| is at least 2^(exponent - 1), and below 2^exponent
    places = np.clip(exponents - 1 - LEAST, 0, BINS - 1)
    return np.where(scores == 0, 0, places).astype("int8")
