"""How rounds share the budget."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.joint_vector import joint_norm
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.options import Options

ROUNDS = len(DEFAULTS.score_shares)
# releases of the shortest rounds: scales, then two of scores and curvatures
FEWEST_RELEASES = 3
FEWEST_WITH_SHIFTS = 4  # rounds of which some may take shifts


def default_length(noisy: bool) -> int:
    """Return the number of releases: twice as many rounds without noise, as they cost no budget."""
    return (ROUNDS if noisy else 2 * ROUNDS) + 1


def check_length(releases: int) -> int:
    """Return how many releases rounds make; too few raise ValueError."""
    if releases < FEWEST_RELEASES:
        raise ValueError(
            f"{releases} releases are too few for the rounds that make the posterior noise-aware, "
            f"which need {FEWEST_RELEASES}: give a larger n=, or noise_aware=False."
        )
    return releases


class RoundTerms(NamedTuple):
    """How many rounds there are, and how many records."""

    rounds: int
    of_shifts: int  # in so many of the first the groups of an array may shift
    number: int | None  # of records (or units), where it is declared
    of_units: bool  # whether a unit of several records is clipped as one

    @classmethod
    def of(cls, options: Options, releases: int, shifts: bool) -> "RoundTerms":
        """Count the rounds of so many releases: scales, and rounds."""
        rounds = releases - 1
        share = DEFAULTS.shift_rounds / ROUNDS if shifts and rounds >= FEWEST_WITH_SHIFTS else 0.0
        return cls(rounds, round(rounds * share), options.num_records, options.of_units)


class Shares(NamedTuple):
    """Shares of the budget that a round's curvature and score take."""

    curvature: float
    score: float

    @property
    def of_release(self) -> float:
        """The share of the round's joint release."""
        return self.score * joint_norm(self.ratio) ** 2

    @property
    def ratio(self) -> float:
        """The curvature's part of the joint vector over the score's."""
        return float((self.curvature / self.score) ** 0.5)


def schedule(rounds: int, of_curvature: float = 1.0, of_shifts: int = 0) -> list[Shares]:
    """Return the shares of all rounds; plans of other lengths stretch those of the default.

    Curvatures have ``of_curvature`` times their shares. So many of the rounds ``of_shifts`` take
    the shares of the first ones: they need little.
    """
    last = ROUNDS - 1.0
    if of_shifts:
        first = DEFAULTS.shares_of_shifts
        of_latents = np.linspace(first + 1, last, rounds - of_shifts)
        places = np.concatenate([np.linspace(0, first, of_shifts), of_latents])
    else:
        places = np.linspace(0, last, rounds) if rounds > 1 else np.array([last])
    every = np.arange(ROUNDS)
    curvature = of_curvature * np.interp(places, every, DEFAULTS.curvature_shares)
    score = np.interp(places, every, DEFAULTS.score_shares)
    shares = [Shares(float(c), float(s)) for c, s in zip(curvature, score, strict=True)]
    left = (1 - DEFAULTS.scales_share) / sum(own.of_release for own in shares)
    return [Shares(left * own.curvature, left * own.score) for own in shares]
