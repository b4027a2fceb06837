"""How rounds share the budget."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.estimating import AVERAGED, Estimating
from pymc_dp.contributions.joint_vector import joint_norm
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.options import Options
from pymc_dp.tables.weights import SurveyWeights

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
    noise: float  # noise multiplier of a single release with the whole budget
    estimating: Estimating | None = AVERAGED  # what a record adds; None for its score at the point
    survey: SurveyWeights | None = None  # weights of the records

    @classmethod
    def of(cls, options: Options, releases: int, shifts: bool) -> "RoundTerms":
        """Count the rounds of so many releases: scales, and rounds."""
        rounds = releases - 1
        share = DEFAULTS.shift_rounds / ROUNDS if shifts and rounds >= FEWEST_WITH_SHIFTS else 0.0
        return cls(
            rounds,
            round(rounds * share),
            options.num_records,
            options.of_units,
            options.noise,
            survey=getattr(options, "weights", None),
        )

    @property
    def counted(self) -> int | None:
        """What records count together, where it is declared; of weights nothing is."""
        return self.number if self.survey is None else None

    def share_of_scales(self, histograms: int) -> float:
        """Return the share of the budget of rounds with which the first shows scales of scores.

        It is as large as brings the noise on the counts of all ``histograms`` to a share of the
        number of records, within limits, as if rounds had the whole budget of the fit.

        >>> few, many = (RoundTerms(13, 0, n, False, noise=30.0) for n in (1_000, 100_000))
        >>> few.share_of_scales(5), many.share_of_scales(5)
        (0.2, 0.04)
        """
        share = self._share_for_counts(histograms, DEFAULTS.noise_of_scales)
        return float(np.clip(share, *DEFAULTS.scales_share))

    def _share_for_counts(self, squared_sensitivity: float, noise: float) -> float:
        """Return the share that brings noise on counts to this share of the number of records."""
        number = self.number or DEFAULTS.undeclared_number
        return squared_sensitivity * (self.noise / (noise * number)) ** 2


class Shares(NamedTuple):
    """Shares of the budget that a round's curvature and score take."""

    curvature: float
    score: float
    products: float = 0.0  # the part of products of scores in the joint vector, over the score's

    @property
    def of_release(self) -> float:
        """The share of the round's joint release."""
        return self.score * joint_norm(self.ratio, self.products) ** 2

    @property
    def ratio(self) -> float:
        """The curvature's part of the joint vector over the score's."""
        return float((self.curvature / self.score) ** 0.5)


class BudgetShares(NamedTuple):
    """Shares of the budget, in the order of the releases."""

    of_scales: float  # of the first release, that of the scales of scores
    of_rounds: list[Shares]

    def parted(self, first: int) -> "tuple[BudgetShares, BudgetShares]":
        """Return the shares of so many of the first rounds, and of the others."""
        early, late = self.of_rounds[:first], self.of_rounds[first:]
        return self._replace(of_rounds=early), self._replace(of_rounds=late)


def schedule(
    rounds: int,
    of_scales: float,
    of_curvature: float = 1.0,
    of_shifts: int = 0,
    products: float = 0.0,
) -> BudgetShares:
    """Return the shares of all rounds; plans of other lengths stretch those of the default.

    The release of scales before them has the share ``of_scales``. Curvatures have ``of_curvature``
    times their shares. So many of the rounds ``of_shifts`` take the shares of the
    first ones: they need little. ``products`` are as in `Shares`.
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
    shares = [Shares(float(c), float(s), products) for c, s in zip(curvature, score, strict=True)]
    left = (1 - of_scales) / sum(own.of_release for own in shares)
    of_rounds = [Shares(left * own.curvature, left * own.score, products) for own in shares]
    return BudgetShares(of_scales, of_rounds)
