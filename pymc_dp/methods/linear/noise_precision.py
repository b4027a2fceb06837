"""The precision of Normal noise, from a noisy sum of the records' energies.

The energies e of records, half their squared residuals say, have densities in which the precision
tau stands as tau^a exp(-tau e). They integrate to 1 whatever tau, so a sum S of energies with
coefficients that sum to A has a Gamma(A, tau) distribution. Where S is released with noise, what
is known of S is the noise's density times what prior and A expect of it: a release that is mostly
noise leaves tau where the prior has it, and cannot carry it away.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
from scipy.special import softmax

from pymc_dp.methods.conjugate.exponential import GAMMA, Natural

# the grid of log S: its points, how often it is narrowed to where the mass is, how far below the
# largest log density there is no mass, and how far from it the search begins
POINTS, ROUNDS, NO_MASS, EXTENT = 301, 5, 40.0, 30.0
# standard deviations of noise that it covers at least
DEVIATIONS = 10.0
TINY = 1e-300


class Energies(NamedTuple):
    """What was released of the records' energies; numbers of one noise precision."""

    shape: float  # A, the sum of coefficients of log tau
    value: float  # the sum of the energies, with noise
    variance: float  # of the noise


class NoisePrecision(NamedTuple):
    """Posterior of a noise precision: a mixture of Gammas over the true sum of energies."""

    prior: Natural  # (a - 1, b) of the prior
    energies: Energies
    sums: np.ndarray  # possible values of the true sum, and their probabilities
    probabilities: np.ndarray

    @classmethod
    def of(cls, prior: Natural, energies: Energies) -> Self:
        """Combine the prior and a release.

        Given S, tau has the Gamma density of shape a + A and rate b + S, and the prior expects S
        with density S^(A - 1) (b + S)^-(a + A).
        """
        a, b = (float(np.asarray(x).item()) for x in prior)
        shape, value, variance = energies
        if variance == 0:
            return cls(prior, energies, np.array([max(value, 0.0)]), np.ones(1))

        def log_density(log_sum: np.ndarray) -> np.ndarray:
            total = np.exp(log_sum)
            expected = shape * log_sum - (a + 1 + shape) * np.log(b + total)
            return np.asarray(expected - (total - value) ** 2 / (2 * variance))

        sd = variance**0.5
        typical = shape * b / (a + 1)
        low = np.log(max(min(typical, max(value, sd)), TINY)) - EXTENT
        high = np.log(max(value, 0.0) + DEVIATIONS * sd + typical)
        log_sums, probabilities = _narrowed(log_density, low, high)
        return cls(prior, energies, np.exp(log_sums), probabilities)

    @property
    def of_records(self) -> tuple[float, float]:
        """Shape and rate that bring the prior to the posterior's expectation of tau."""
        b = self.prior[1]
        rate = 1 / (self.probabilities @ (1 / np.maximum(b + self.sums, TINY)))
        return self.energies.shape, float(rate - b)

    def draw(self, draws: int, rng: np.random.Generator) -> np.ndarray:
        """Draw tau, shape (draws, *shape of the prior's parameters)."""
        a, b = self.prior
        sums = rng.choice(self.sums, draws, p=self.probabilities)
        return np.stack([GAMMA.sample((a + self.energies.shape, b + s), 1, rng)[0] for s in sums])


def _narrowed(
    log_density: Callable[[np.ndarray], np.ndarray], low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return an even grid over all the mass of a density, and the probabilities of its points."""
    for _ in range(ROUNDS):
        points = np.linspace(low, high, POINTS)
        values = log_density(points)
        [some] = np.nonzero(values > values.max() - NO_MASS)
        low, high = points[max(some[0] - 1, 0)], points[min(some[-1] + 1, POINTS - 1)]
    return points, softmax(values)
