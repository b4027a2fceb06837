"""The magnitudes of scores, latent by latent, as a histogram."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.drawn_scores import DrawnScores, Scores
from pymc_dp.contributions.spans import combined
from pymc_dp.privacy.contribution import Batch, FactoredContribution, UnitVector

# bins of |score|, by powers of two
LEAST, MOST = -32, 32
BINS = MOST - LEAST


class Binned(NamedTuple):
    """Scores of a batch, and their bins."""

    scores: Scores
    bins: np.ndarray  # (k, rows, d): not those of observed outcomes, where there are others
    shares: np.ndarray  # (rows, k): what each counts
    good: np.ndarray  # (rows,): whether all scores of a record are finite


def score_scales(scores: DrawnScores) -> FactoredContribution:
    """Contribute, for every latent, the share of draws with a score between powers of two.

    The context is a point. The vector has (d, BINS) entries; scores of 0 count in the first bin.

    **Privacy.** The shares of a latent add up to 1, so the norm of a record's (or a unit's) vector
    is at most sqrt(d), and it is clipped as if it were as long.
    """
    d, count = scores.d, scores.outcomes_in_units

    def prepare(batch: Batch, point: np.ndarray) -> Binned:
        found = scores.of_batch(batch, point)
        number = found.weights.shape[1]
        each = (found._replace(weights=found.weights[:, k : k + 1]) for k in range(number))
        every = (np.asarray(_formed(one)[:, 0]) for one in each)
        binned, finite = zip(*[(_bins(g), np.isfinite(g).all(axis=1)) for g in every], strict=True)
        good, counted = np.all(finite, axis=0), np.stack(binned[min(1, number - 1) :])
        shares = found.probabilities if number > 1 else np.ones((len(good), 1))
        return Binned(found, counted, shares, good)

    def norms(held: Binned, point: np.ndarray) -> np.ndarray:
        return np.where(held.good, d**0.5, np.nan)

    def weighted_sum(held: Binned, point: np.ndarray, weights: np.ndarray) -> np.ndarray:
        total = np.zeros(d * BINS)
        for bins, share in zip(held.bins, held.shares.T, strict=True):
            places, each = bins + BINS * np.arange(d), np.repeat(weights * share, d)
            total += np.bincount(places.ravel(), each, minlength=d * BINS)
        return total

    def of_units(sums: np.ndarray, point: np.ndarray) -> np.ndarray:
        bins = _bins(sums.reshape(len(sums), count, d)[:, min(1, count - 1) :])
        shares = (bins[..., None] == np.arange(BINS)).mean(axis=1).reshape(len(sums), d * BINS)
        return np.where(np.isfinite(sums).all(axis=1)[:, None], shares, np.nan)

    return FactoredContribution(
        size=d * BINS,
        width=2 * scores.width + 4 * d,
        norms=norms,
        weighted_sum=weighted_sum,
        prepare=prepare,
        unit=UnitVector(
            size=count * d,
            vectors=of_units,
            rows=lambda held, point: _formed(held.scores).reshape(-1, count * d),
            draw=scores.draw_for_units,
        ),
        draw=scores.draw,
        together=scores.together,
    )


def _formed(scores: Scores) -> np.ndarray:
    weights, vectors = scores
    return combined(weights, vectors) if len(vectors) else weights


def _bins(scores: np.ndarray) -> np.ndarray:
    _, exponents = np.frexp(scores)  # |score| is at least 2^(exponent - 1), and below 2^exponent
    places = np.clip(exponents - 1 - LEAST, 0, BINS - 1)
    return np.where(scores == 0, 0, places).astype("int8")
