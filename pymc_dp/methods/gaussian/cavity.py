"""Cavities of expectation propagation: a Gaussian posterior without one of N equal sites."""

from typing import NamedTuple

import numpy as np


class Cavity(NamedTuple):
    """Mean (d,) and covariance (d, d), or the diagonal of one, shape (d,)."""

    mean: np.ndarray
    covariance: np.ndarray


def site_share(number: float) -> float:
    """Return 1 / N for a noisy number of records N; at least half of the sites stay."""
    return 1 / max(number, 2.0)


def cavity(
    linear: np.ndarray, precision: np.ndarray, sites: np.ndarray, mean: np.ndarray, number: float
) -> Cavity:
    """Divide a posterior of mean (d,) by one of its sites; diagonals may stand for matrices.

    ``linear`` (d,) and ``precision`` (d, d) are natural parameters of the prior, and ``sites`` is
    the precision of the product of all sites. Source: Li et al. (2015), equation 3.

    >>> linear, unit, mean = np.zeros(1), np.ones((1, 1)), np.array([0.9])
    >>> cavity(linear, unit, 9 * unit, mean, number=9.0)  # all sites have mean 1
    Cavity(mean=array([0.88888889]), covariance=array([[0.11111111]]))
    """
    share = site_share(number)
    if precision.ndim == 1:
        variance = 1 / (precision + (1 - share) * sites)
        return Cavity(mean + share * variance * (linear - precision * mean), variance)
    covariance = np.linalg.inv(precision + (1 - share) * sites)
    return Cavity(mean + share * covariance @ (linear - precision @ mean), covariance)
