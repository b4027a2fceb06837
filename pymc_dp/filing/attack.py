"""How well anyone can tell from a result whether a unit was in the data, at most.

Whoever guesses between two neighbouring data sets makes two kinds of errors. A pair (epsilon,
delta) bounds the curve of both from below; a result has such a pair at each of many deltas, and
all hold at once (Kairouz, Oh and Viswanath 2015; Dong, Roth and Su 2022, proposition 6).
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import xarray as xr

FALSE_ALARMS = (0.001, 0.01, 0.1)
LARGEST_EXPONENT = 700.0


class AttackBounds(NamedTuple):
    """The largest success of any attack, whatever it computes and knows beside the unit."""

    advantage: float  # true positive rate less false positive rate
    # probability of a correct guess, where both data sets are equally likely beforehand
    correct: float
    odds: float  # factor by which the odds change, up to a probability of the result's delta
    true_positives: Mapping[float, float]  # the true positive rate at each false positive rate

    def __str__(self) -> str:
        rates = ", ".join(f"{hits:.3g} at {rate:g}" for rate, hits in self.true_positives.items())
        return (
            f"advantage at most {self.advantage:.3g}; a guess between two equally likely data sets "
            f"is right with probability at most {self.correct:.3g}; true positive rate at most "
            f"{rates} false positives"
        )


def attack_bounds(privacy: xr.Dataset) -> AttackBounds | None:
    """Return the bounds that a result's ``privacy`` group implies; None if it claims nothing."""
    if not math.isfinite(privacy.attrs["epsilon"]):
        return None
    epsilon, delta = privacy["epsilon"].values, privacy["delta"].values
    growth = np.exp(np.minimum(epsilon, LARGEST_EXPONENT))
    advantage = float(np.min(np.tanh(epsilon / 2) + 2 * delta / (growth + 1)).clip(0, 1))
    hits = {
        rate: float(np.minimum(delta + growth * rate, 1 - (1 - delta - rate) / growth).min())
        for rate in FALSE_ALARMS
    }
    hits = {rate: min(most, 1.0) for rate, most in hits.items()}
    odds = math.exp(min(privacy.attrs["epsilon"], LARGEST_EXPONENT))
    return AttackBounds(advantage, (1 + advantage) / 2, odds, hits)
