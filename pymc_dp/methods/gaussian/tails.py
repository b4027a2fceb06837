"""What clipping and weights leave out of scores, from released counts of their lengths.

Outcomes need not be those of the model. How far their scores' lengths are from those of drawn ones
is released in every round, and what may be left of it beyond a clip norm follows: a bias that no
number of records makes smaller. It is part of the width, and of the choice of the norms.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from pymc_dp.contributions.drawn_scores import CENTRING
from pymc_dp.contributions.tails import BINS, CENTRES, EXPECTED, memberships, split_counts
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.estimated_counts import estimated_counts, size_of_sum

# finite moments of lengths over their root mean square, and their powers: the fourth of residuals,
# 3 if they are normal, and the second of their squares and of leverages. By Chebyshev, no
# larger share than the moment over t to this power is t times as long as is usual
LOCATION, DISPERSION, LEVERAGE = (3.0, 4), (1.0, 2), (1.0, 2)
# among which the norms of a round, and the share of the dispersion's part, are chosen
NORMS, DISPERSION_SHARES = np.geomspace(CENTRES[0], CENTRES[-1], 161), np.geomspace(0.01, 0.5, 18)


class Part(NamedTuple):
    """A part of scores that is clipped by itself."""

    squares: float  # mean squared length of whitened scores: about the number of latents
    moment: tuple[float, int]  # of lengths that is finite, and its power
    of_latent: float  # the share of what is left out that each latent may have
    # how errors of counts of different lengths add up: 2, as the root of their squares, if they are
    # independent; 1, as their sum, if all have one sign
    order: int

    @classmethod
    def location(cls, squares: float, latents: int) -> "Part":
        """Return the part of the location: long scores point wherever predictors do."""
        return cls(squares, LOCATION, latents**-0.5, order=2)

    @classmethod
    def dispersion(cls, latents: int) -> "Part":
        """Return the part of the dispersion: long scores have one sign."""
        return cls(float(latents), DISPERSION, 1.0, order=1)


class Left(NamedTuple):
    """What is known of the lengths of one part of scores, by bins; arrays are (BINS,)."""

    excess: np.ndarray  # observed less expected counts: mean, and sd
    excess_sd: np.ndarray
    expected: np.ndarray  # counts of drawn outcomes
    leverage: np.ndarray  # counts of root mean square scores
    share: float  # of all records: how many have lengths that the model does not expect
    number: float  # of records
    part: Part

    def bias(self, score_norm: float, weight_norm: float) -> float:
        """Return what is left out of the sum of all scores, in posterior sds of a latent.

        That is what is longer than the norm of scores, of the observed ones that the model does
        not expect, as a root mean square; and what weights take, so far as the model is wrong.
        """
        clipped = float(self._clipped(np.array([score_norm]))[0]) ** 0.5
        weighted = float(self.share * (_less(weight_norm) @ self.leverage))
        return float(self.part.of_latent * (clipped + weighted) / self.number**0.5)

    def errors(self) -> np.ndarray:
        """Return squared errors without noise at each of `NORMS`, in posterior variances.

        Errors are the bias, and what clipping costs if the model is right.
        """
        bias = self._clipped(NORMS) / self.number
        lost = _cut(NORMS) ** 2 @ self.expected / (self.number * self.part.squares)
        return np.asarray(self.part.of_latent**2 * bias + lost)

    def _clipped(self, norms: np.ndarray) -> np.ndarray:
        """Return the mean square of what these norms cut off of scores not expected."""
        cut = _cut(norms)
        return size_of_sum(cut * self.excess, cut * self.excess_sd, self.part.order) ** 2


def _cut(norms: np.ndarray) -> np.ndarray:
    """Return what these norms cut off of the lengths of all bins: (norms, BINS)."""
    return np.asarray(np.maximum(CENTRES - norms[:, None], 0.0))


class Norms(NamedTuple):
    """Norms that the parts of scores are clipped to, and the second's share of the vector."""

    location: float
    dispersion: float = 0.0
    share: float = 0.0


def norms_of(parts: Sequence[Left], noise: float) -> Norms:
    """Return the norms of parts of scores, none shorter than is usual, of least error.

    ``noise`` is that of a norm of 1, in posterior sds. The noise of a part falls as its share of
    the vector grows; that share is the one that makes the volume of the posterior least.
    """
    shares = DISPERSION_SHARES if parts[1:] else np.zeros(1)
    volume, best = np.zeros(len(shares)), []
    for left, own in zip(parts, (1 - shares, shares), strict=False):
        size = left.part.squares
        each = np.where(NORMS**2 >= size, left.errors(), np.inf)
        with_noise = each + (noise * NORMS) ** 2 / own[:, None]
        best.append(NORMS[with_noise.argmin(axis=1)])
        volume += size * np.log1p(with_noise.min(axis=1))
    least = int(volume.argmin())
    return Norms(*(float(norms[least]) for norms in best), *shares[[least] if parts[1:] else []])


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

    def left(self, number: float, part: Part, centred: bool) -> Left:
        """Say what clipping may leave out of so many records' scores.

        Where no outcomes are drawn all that is cut off is left out, and tails are taken to be
        exponential.
        """
        excess, variance, of_counts = self._means()
        whole = part.squares**0.5
        if not centred:  # nor have records weights, or leverages
            mean = _exponential_mean(excess, number) if self.weight else whole
            tail, one = number * _exponential(mean), number * memberships(np.array(1.0))
            return Left(tail, 0 * tail, 0 * tail, one, 0.0, number, part)
        far = number * _chebyshev(*LEVERAGE, whole)
        leverage = np.maximum(
            estimated_counts(self._pooled(self.leverage), of_counts, far).mean, 0.0
        )
        hidden = max(number - float(leverage.sum()), 0.0)
        leverage = leverage + hidden * memberships(np.array(whole))
        usual = leverage @ _chebyshev(*part.moment, CENTRES[:, None])
        unexpected = estimated_counts(excess, variance, usual)
        unlike = size_of_sum(np.abs(unexpected.mean), unexpected.sd, part.order)
        expected = estimated_counts(self._pooled(self.expected), of_counts, usual).mean
        return Left(
            unexpected.mean,
            unexpected.sd,
            np.maximum(expected, 0.0),
            leverage,
            min(1.0, float(unlike) / (2 * number)),
            number,
            part,
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


def _chebyshev(moment: float, power: int, unit: float | np.ndarray) -> np.ndarray:
    """Bound the shares, (BINS,), of lengths that are as long or longer, by a moment."""
    return np.asarray(np.minimum(1.0, moment * (unit / CENTRES) ** power))


def _exponential(mean: float) -> np.ndarray:
    """Return the memberships, (BINS,), of exponential lengths of this mean."""
    chances = (np.arange(1000) + 0.5) / 1000
    return memberships(-np.log(chances) * mean).mean(axis=0)


def _exponential_mean(counts: np.ndarray, number: float) -> float:
    """Estimate the mean of exponential lengths from that of their logarithms.

    It is one that no few lengths far out can move.
    """
    return float(np.exp(np.log(CENTRES) @ counts / number + np.euler_gamma))
