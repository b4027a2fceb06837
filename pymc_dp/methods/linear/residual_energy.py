"""Energies of residuals that are bounded and still right on average.

Where e has a Gamma(k, tau) distribution, as half the squared residual of a Normal outcome has with
k = 1/2, a clipped sum of energies is too small and the precision comes out too large, however many
records there are. So a record contributes what has the expectation 0 under the model at the public
precision tau_0, and slope k in the logarithm of tau_0 / tau:

    u = (min(tau_0 e, c) - E min(G, c)) k / E[G; G < c],    G ~ Gamma(k, 1).

It is bounded whatever c. Source: conditionally unbiased bounded influence (Kuensch, Stefanski and
Carroll 1989); for k = 1/2 it is Huber's proposal 2.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammainc, gammaincinv

from pymc_dp.methods.linear.defaults import DEFAULTS


class Bounded(NamedTuple):
    """The function u of a record's tau_0 e; numbers, or arrays over records."""

    shape: np.ndarray  # k
    largest: np.ndarray  # c
    centre: np.ndarray  # E min(G, c)
    slope: np.ndarray  # E[G; G < c] / k

    @classmethod
    def of(cls, shape: np.ndarray) -> "Bounded":
        """Cut off the same share of the records, whatever their shape."""
        largest = gammaincinv(shape, 1 - DEFAULTS.clipped_energies)
        below = gammainc(shape + 1, largest)
        above = 1 - gammainc(shape, largest)
        return cls(shape, largest, shape * below + largest * above, below)

    def __call__(self, energy: np.ndarray) -> np.ndarray:
        """Evaluate u at tau_0 e."""
        return np.asarray((np.clip(energy, 0.0, self.largest) - self.centre) / self.slope)

    @property
    def longest(self) -> np.ndarray:
        """The largest absolute value of u."""
        return np.asarray(np.maximum(self.centre, self.largest - self.centre) / self.slope)

    @property
    def loss(self) -> np.ndarray:
        """Variance of u over the k that G itself has, less 1."""
        below = self.shape * (self.shape + 1) * gammainc(self.shape + 2, self.largest)
        above = self.largest**2 * (1 - gammainc(self.shape, self.largest))
        variance = (below + above - self.centre**2) / self.slope**2
        return np.asarray(variance / self.shape - 1)


def energy_of(excess: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Estimate the sum of tau_0 e from the sum of u, given the sum of k.

    One step of Newton's method, in the logarithm where the sum is smaller than expected: a
    straight line would lead to energies below 0.

    >>> energy_of(np.array([5.0, -20.0]), np.array([10.0, 10.0])).round(2)
    array([15.  ,  1.35])
    """
    ratio = excess / shape
    return np.asarray(shape * np.where(ratio < 0, np.exp(np.minimum(ratio, 0.0)), 1 + ratio))
