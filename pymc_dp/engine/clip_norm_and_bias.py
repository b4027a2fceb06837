"""What a clip norm leaves out of scores, from counts of their lengths, and the norm of least error.

Every round counts the lengths of observed scores, octave by octave, less those of drawn ones. A
bias B(c) follows for every clip norm c: it is part of the width, and the next norm minimises B(c)^2
plus the variance of the noise. docs/engine.md has the formulas.
"""

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from pymc_dp.contributions.scores import CENTRING
from pymc_dp.contributions.whitened import BINS, CENTRES
from pymc_dp.engine.constants import CONSTANTS

# how many times as large as usual the counts of an octave may be: up to 3 every power of two is as
# likely, and more are less likely, with a finite variance; and how alike neighbouring factors are
FACTORS = 3.0 * 2.0 ** np.arange(12, -10, -1)
LIKELY = np.minimum(1.0, (FACTORS / 3.0) ** -3)
# for scores with a fourth moment no less than about .1: a few groups that the model fits ill have
# as much, and noise hides them
LIKELY_OF_LOCATION = np.where(FACTORS > 0.09, LIKELY, 0.0)
ALIKE = 2.0 ** -np.abs(np.arange(len(FACTORS))[:, None] - np.arange(len(FACTORS)))


class Part(NamedTuple):
    """Latents whose scores are clipped by themselves: those of the location, or the dispersion."""

    latents: np.ndarray  # which they are, (b, k)
    share: float  # of the squared norm of scores
    is_dispersion: bool

    @property
    def size(self) -> int:
        """How many latents there are: the mean squared length of whitened scores."""
        return int(self.latents.sum())


class LeftOut(NamedTuple):
    """What each of several clip norms leaves out of the sum of scores."""

    norms: np.ndarray  # (m,)
    bias: np.ndarray  # in white units of a latent, (m,)
    misfit: float  # chi squared of the counts over its critical value; nan if not known

    def at(self, norm: float) -> float:
        """Return the bias at another norm."""
        return float(np.interp(norm, self.norms, self.bias))

    def best(self, noise: float) -> float:
        """Return the norm of least squared error, where one of 1 has this noise."""
        return float(self.norms[(self.bias**2 + (noise * self.norms) ** 2).argmin()])


def left_out(
    lengths: np.ndarray, sd: float, part: Part, number: float, is_centred: bool
) -> LeftOut:
    """Estimate what norms leave out from mean counts, (BINS,), with noise of this sd."""
    d, t = part.size, CENTRES
    one_sign = part.is_dispersion or not is_centred
    # Chebyshev's bound by the mean square d of a whitened score, or by a normal one's fourth moment
    usual = number * np.minimum(1.0, d / t**2 if one_sign else 3 * (d / t**2) ** 2)
    # of the privacy noise, of records as a sample, and of the outcomes drawn for each
    variance = sd**2 + (1 + 1 / CENTRING) * np.minimum(usual, number / 4)
    prior = (FACTORS[:, None] * usual) ** 2
    both = prior + variance
    log = -(lengths**2 / both + np.log(both / variance)) / 2
    likely = LIKELY if one_sign else LIKELY_OF_LOCATION
    weights = _smoothed(likely[:, None] * np.exp(log - log.max(axis=0)))
    gain = prior / both
    # root mean square of what a count is, given what was released
    size = np.sqrt((((gain * lengths) ** 2 + gain * variance) * weights).sum(axis=0))
    norms = CONSTANTS.clip * d**0.5 * 2.0 ** np.arange(0, BINS, 0.5)
    cut = np.maximum(t - norms[:, None], 0.0) * size
    bias = cut.sum(axis=1) / (1.0 if one_sign else d**0.5)
    chance = float(chi2.isf(CONSTANTS.size_of_test, BINS))
    misfit = float((lengths**2 / (variance + 1)).sum()) / chance if is_centred else np.nan
    return LeftOut(norms, bias, misfit)


def _smoothed(fits: np.ndarray) -> np.ndarray:
    """Return how likely each factor is in each octave, (factors, BINS): forward and backward."""
    ahead, behind = np.ones_like(fits), np.ones_like(fits)
    for b in range(1, BINS):
        ahead[:, b] = ALIKE @ (ahead[:, b - 1] * fits[:, b - 1])
        behind[:, -1 - b] = ALIKE @ (behind[:, -b] * fits[:, -b])
        ahead[:, b] /= ahead[:, b].sum()
        behind[:, -1 - b] /= behind[:, -1 - b].sum()
    weights = fits * ahead * behind
    return np.asarray(weights / weights.sum(axis=0))
