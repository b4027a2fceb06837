"""Averages of noisy sums: weights, containers, and the variance of the noise that is left."""

import numpy as np
import pytest

from pymc_dp.methods.normal import covariance_with_noise

# --- never wider than the prior ------------------------------------------------------------------


def matrices(seed, d=5):
    """Covariance and noise on any scale, and a prior's precision."""
    rng = np.random.default_rng(seed)
    of_prior, of_records, of_noise = (
        (lambda A: A @ A.T)(rng.normal(size=(d, d)) * 10.0 ** rng.uniform(-1.5, 1.5, size=d))
        for _ in range(3)
    )
    precision = of_prior + 1e-6 * np.eye(d)
    covariance = np.linalg.inv(precision + of_records)
    return covariance, covariance @ of_noise @ covariance * 10.0 ** rng.uniform(-3, 3), precision


def widest(covariance, precision):
    """The largest variance over that of the prior, over all directions."""
    root = np.linalg.cholesky(precision)
    return np.linalg.eigvalsh(root.T @ covariance @ root).max()


@pytest.mark.parametrize("seed", range(20))
def test_no_noise_makes_a_posterior_wider_than_its_prior(seed):
    covariance, noise, precision = matrices(seed)
    found = covariance_with_noise(covariance, noise, precision)
    assert widest(found, precision) < 1 + 1e-4
    unit = np.sqrt(np.diag(covariance))
    assert np.linalg.eigvalsh((found - covariance) / np.outer(unit, unit)).min() > -1e-6
