"""What clipping and weights leave out of scores, from released counts of their lengths.

Outcomes need not be those of the model. How far their scores' lengths are from those of drawn ones
is released in every round, and what may be left of it beyond a clip norm follows: a bias that no
number of records makes smaller. It is part of the width, and of the choice of the norms.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax
from scipy.stats import chi2

from pymc_dp.contributions.drawn_scores import CENTRING
from pymc_dp.contributions.tails import (
    BINS,
    CENTRES,
    EXPECTED,
    LEAST,
    memberships,
    split_counts,
)
from pymc_dp.methods.gaussian.defaults import DEFAULTS

# no larger share of the scores can be so many times as long as is usual (Chebyshev)
POWER = 2
# how wrong a model may be, as a share of all records, before anything is released; and how much
# more often than such tails let expect records lie far out: every magnitude alike
SHARES, FACTORS = np.geomspace(1e-3, 0.3, 25), np.geomspace(1.0, 1e3, 25)
# how much larger a single count may be than all of them let expect, with a finite variance
ALONE, RARELY = np.geomspace(1.0, 1e3, 13), np.geomspace(1.0, 1e3, 13) ** -3
HIDDEN = 1e30  # variance of what was not measured
NORMS = np.geomspace(CENTRES[0], CENTRES[-1], 161)  # among which those of a round are chosen


class Left(NamedTuple):
    """What is known of the lengths of scores, by bins; all (BINS,).

    A score is as long as its leverage times its relative length, which no leverage changes.
    """

    excess: np.ndarray  # root mean square of observed less expected counts, by relative length
    expected: np.ndarray  # counts of drawn outcomes, by relative length
    leverage: np.ndarray  # counts of root mean square scores
    share: float  # how wrong the model is, as a share of all records
    number: float  # of records
    squares: float  # mean squared length
    directions: np.ndarray  # share of the bias that each latent may have, (d,)

    def bias(self, score_norm: float, weight_norm: float) -> np.ndarray:
        """Bound what is left out of the sum of all scores, (d,), in posterior standard deviations.

        That is what is longer than the norm of scores, of the observed ones that the model does
        not expect; and what weights take, so far as the model is wrong.
        """
        whole = self._of_clipping(score_norm) + self._of_weights(weight_norm)
        return np.asarray(whole * self.directions)

    def score_norm(self, noise: float, least: float) -> float:
        """Return the norm of scores, ``least`` or longer, whose squared errors are least.

        Errors are the bias, the ``noise`` of a norm of 1, in posterior standard deviations, and
        what clipping costs if the model is right.
        """
        each, share = NORMS[NORMS >= least], float((self.directions**2).mean())
        errors = [
            (noise * c) ** 2 + share * self._of_clipping(c) ** 2 + self._lost_by_clipping(c)
            for c in each
        ]
        return float(each[np.argmin(errors)])

    def _of_clipping(self, norm: float) -> float:
        return float(self._by_leverage(_cut(norm)) @ self.excess / self.number**0.5)

    def _of_weights(self, norm: float) -> float:
        return float(self.share * (_less(norm) @ self.leverage) / self.number**0.5)

    def _lost_by_clipping(self, norm: float) -> float:
        """Return the variance of what is cut off if the model is right, as a share of them all."""
        lost = float(self._by_leverage(_cut(norm) ** 2) @ self.expected)
        return lost / (self.number * self.squares)

    def _by_leverage(self, left: np.ndarray) -> np.ndarray:
        """Average what is left of a length, (2 BINS,), over leverages, by relative length."""
        shares = self.leverage / max(float(self.leverage.sum()), 1.0)
        places = np.arange(BINS)
        return np.asarray(left[np.add.outer(places, places)] @ shares)


def _cut(norm: float) -> np.ndarray:
    """Return what clipping takes of a product of lengths, by the sum of their bins, (2 BINS,)."""
    products = 2.0 ** (2 * LEAST + np.arange(2 * BINS))
    return np.asarray(np.maximum(products - norm, 0.0))


def _less(norm: float) -> np.ndarray:
    """Return what the weight of a squared norm takes."""
    return np.asarray(CENTRES * (1 - np.minimum(1.0, norm / CENTRES**2)))


class Tails(NamedTuple):
    """Sums of counts over rounds, by precision; (BINS,) or numbers."""

    excess: np.ndarray
    weight_of_excess: np.ndarray
    expected: np.ndarray
    leverage: np.ndarray
    weight: float

    @classmethod
    def nothing(cls) -> "Tails":
        """Return what is known before the first round."""
        zero = np.zeros(BINS)
        return cls(zero, zero, zero, zero, 0.0)

    def add(self, counts: np.ndarray, noise_sd: float, off: float) -> "Tails":
        """Add a round's released counts, with noise of this standard deviation.

        Its point is ``off`` the mode by so many whitened units, which may move all counts.
        """
        excess, expected, leverage = split_counts(counts)
        weight = max(noise_sd, 1e-6) ** -2
        drawn = np.maximum(expected, noise_sd / EXPECTED)
        own = 1 / (max(noise_sd, 1e-6) ** 2 + (off * drawn) ** 2)
        return Tails(
            self.excess + own * excess,
            self.weight_of_excess + own,
            self.expected + weight * expected,
            self.leverage + weight * leverage,
            self.weight + weight,
        )

    def left(self, number: float, squares: float, centred: bool, shapes: np.ndarray) -> Left:
        """Say what clipping may leave out of so many records' scores of this mean square.

        Long scores point wherever predictors do, but those of latents of the scale and of the
        ``shapes`` of outcomes, (d,), have one sign. Where no outcomes are drawn all that is cut off
        is left out, and tails are taken to be exponential.
        """
        excess, variance, of_counts = self._means()
        directions = np.where(shapes, 1.0, len(shapes) ** -0.5)
        if not centred:  # nor have records weights, or leverages
            mean = _exponential_mean(excess, number) if self.weight else squares**0.5
            tail, one = number * _exponential(mean), number * memberships(np.array(1.0))
            return Left(tail, np.zeros(BINS), one, 0.0, number, squares, directions)
        usual, far = (number * np.minimum(1.0, (x / CENTRES) ** POWER) for x in (1.0, squares**0.5))
        found = _estimated(excess, variance, usual, SHARES)
        expected = _estimated(self._pooled(self.expected), of_counts, usual, FACTORS).mean
        leverage = _estimated(self._pooled(self.leverage), of_counts, far, FACTORS).mean
        leverage = np.maximum(leverage, 0.0)
        hidden = max(number - float(leverage.sum()), 0.0)
        return Left(
            found.rms,
            np.maximum(expected, 0.0),
            leverage + hidden * memberships(np.array(squares**0.5)),
            found.amplitude,
            number,
            squares,
            directions,
        )

    def misfit(self) -> float:
        """Return chi squared of the excess of all bins, over its critical value.

        A single record in a bin is never a surprise.
        """
        if self.weight == 0:
            return np.nan
        excess, variance, _ = self._means()
        statistic = (excess**2 / (variance + 1)).sum()
        return float(statistic / chi2.isf(DEFAULTS.size_of_test, BINS))

    def _means(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the mean excess, its variance, and that of other counts; inf before a round."""
        with np.errstate(divide="ignore", invalid="ignore"):
            of_noise = 1 / self.weight_of_excess
            excess = np.nan_to_num(self.excess / self.weight_of_excess)
            of_counts = np.full(BINS, 1 / np.float64(self.weight)) / EXPECTED**2
        drawn = np.maximum(self._pooled(self.expected), 0.0) * (1 + 1 / CENTRING)
        return excess, of_noise + drawn, of_counts

    def _pooled(self, sums: np.ndarray) -> np.ndarray:
        return sums / self.weight if self.weight else np.zeros(BINS)


def _exponential(mean: float) -> np.ndarray:
    """Return the memberships, (BINS,), of exponential lengths of this mean."""
    chances = (np.arange(1000) + 0.5) / 1000
    return memberships(-np.log(chances) * mean).mean(axis=0)


def _exponential_mean(counts: np.ndarray, number: float) -> float:
    """Estimate the mean of exponential lengths from that of their logarithms.

    It is one that no few lengths far out can move.
    """
    return float(np.exp(np.log(CENTRES) @ counts / number + np.euler_gamma))


class Estimated(NamedTuple):
    """Counts that were measured with noise, under a heavy-tailed prior of unknown amplitude."""

    mean: np.ndarray
    rms: np.ndarray
    amplitude: float  # root mean square


def _estimated(
    measured: np.ndarray, variance: np.ndarray, usual: np.ndarray, amplitudes: np.ndarray
) -> Estimated:
    """Estimate counts x ~ N(0, (a b usual)^2), where all amplitudes a are equally likely.

    Every count has a factor b of its own.

    >>> usual, amplitudes = np.array([100.0, 10.0, 1.0]), np.array([0.01, 1.0])
    >>> seen, hidden = (
    ...     _estimated(np.array([90.0, 0.0, 0.0]), np.full(3, v), usual, amplitudes)
    ...     for v in (9, 1e9)
    ... )
    >>> seen.rms.round(), round(seen.amplitude, 1), round(hidden.amplitude, 1)
    (array([90.,  3.,  1.]), 1.0, 0.7)
    """
    prior = (amplitudes[:, None, None] * ALONE[:, None] * usual) ** 2
    known = 1 / (prior + np.minimum(variance, HIDDEN))
    shrunk, surprise = prior * known, measured**2 * known - np.log(known)
    alone = np.log(RARELY / RARELY.sum())[:, None] - surprise / 2
    together = np.logaddexp.reduce(alone, axis=1)  # by amplitude and count
    likely = softmax(together.sum(axis=1))
    weights = likely[:, None, None] * np.exp(alone - together[:, None])
    means = shrunk * measured
    squares = (weights * (means**2 + (1 - shrunk) * prior)).sum(axis=(0, 1))
    amplitude = float(likely @ amplitudes**2) ** 0.5
    return Estimated((weights * means).sum(axis=(0, 1)), np.sqrt(squares), amplitude)
