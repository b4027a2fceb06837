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


class _Histograms(NamedTuple):
    """One histogram a latent, and one more for each of ``observed`` at the observed outcome."""

    scores: DrawnScores
    observed: list[int]

    @property
    def number(self) -> int:
        """How many there are."""
        return self.scores.d + len(self.observed)

    @property
    def sums(self) -> UnitSums:
        """The layout of sums over a unit's records."""
        return UnitSums(
            self.scores.outcomes_in_units, self.scores.d, self.scores.survey is not None
        )

    def prepare(self, batch: Batch, point: np.ndarray) -> Binned:
        """Bin the scores at each outcome by themselves."""
        scores = self.scores.of_batch(batch, point)
        number = scores.weights.shape[1]
        each = (scores._replace(weights=scores.weights[:, k : k + 1]) for k in range(number))
        every = (np.asarray(_formed(one)[:, 0]) for one in each)
        binned, finite = zip(*[(_bins(g), np.isfinite(g).all(axis=1)) for g in every], strict=True)
        good, drawn = np.all(finite, axis=0), binned[min(1, number - 1) :]
        seen = binned[0][:, self.observed]
        bins = np.stack([np.concatenate([b, seen], axis=1) for b in drawn])
        shares = scores.probabilities if number > 1 else np.ones((len(good), 1))
        counting = self.scores.shares(batch)
        if counting is not None:
            shares = shares * counting[:, None]
        good &= np.isfinite(shares).all(axis=1)
        return Binned(scores, bins, np.where(good[:, None], shares, 0.0), counting, good)

    def norms(self, binned: Binned, point: np.ndarray) -> np.ndarray:
        """Return the largest norm that a record's vector can have, for each of them."""
        return np.where(binned.good, self.number**0.5, np.nan)

    def weighted_sum(self, binned: Binned, point: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Count the bins of all records, each times its weight."""
        total = np.zeros(self.number * BINS)
        for bins, share in zip(binned.bins, binned.shares.T, strict=True):
            places = bins + BINS * np.arange(self.number)
            each = np.repeat(weights * share, self.number)
            total += np.bincount(places.ravel(), each, minlength=len(total))
        return total

    def of_units(self, sums: np.ndarray, point: np.ndarray) -> np.ndarray:
        """Return the vectors of units from sums of scores over their records."""
        scores, _, counting = self.sums.split(sums)
        every = _bins(scores)
        drawn = every[:, min(1, scores.shape[1] - 1) :]
        shape = (*drawn.shape[:2], len(self.observed))
        bins = np.concatenate([drawn, np.broadcast_to(every[:, :1, self.observed], shape)], axis=-1)
        shares = (bins[..., None] == np.arange(BINS)).mean(axis=1).reshape(len(sums), -1)
        if counting is not None:
            shares = shares * counting[:, None]
        return np.where(np.isfinite(sums).all(axis=1)[:, None], shares, np.nan)


def score_scales(scores: DrawnScores, observed: Sequence[int] = ()) -> FactoredContribution:
    """Contribute, for every latent, the share of draws with a score between powers of two.

    The same follows for the scores of the ``observed`` latents at the outcome that was observed.
    The context is a point. The vector has (d + len(observed), BINS) entries; scores of 0 count in
    the first bin. With survey weights a record counts by its share of the largest weight.

    **Privacy.** The shares of a latent add up to 1, so the norm of a record's (or a unit's) vector
    is at most sqrt(d + len(observed)), and it is clipped as if it were as long.
    """
    histograms = _Histograms(scores, list(observed))
    sums = histograms.sums
    return FactoredContribution(
        size=histograms.number * BINS,
        width=2 * scores.width + 4 * scores.d,
        norms=histograms.norms,
        weighted_sum=histograms.weighted_sum,
        prepare=histograms.prepare,
        unit=UnitVector(
            size=sums.size,
            vectors=histograms.of_units,
            rows=lambda binned, point: sums.rows(_formed(binned.scores), binned.counting),
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
