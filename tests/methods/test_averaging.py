"""Averages of noisy sums: weights, containers, and the variance of the noise that is left."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_dp.methods.normal import NoisyAverage, covariance_with_noise

WEIGHTS = st.lists(st.floats(0, 1), min_size=1, max_size=6)


@given(weights=WEIGHTS, seed=st.integers(0, 2**32))
def test_an_average_is_the_weighted_sum_of_the_releases(weights, seed):
    rng = np.random.default_rng(seed)
    values, variances = rng.normal(size=(7, 3)), rng.uniform(0, 2, (7, 3))
    average = NoisyAverage(values[0], variances[0])
    coefficients = np.array([1.0])
    for t, weight in enumerate(weights, start=1):
        average = average.add(values[t], variances[t], weight)
        coefficients = np.append((1 - weight) * coefficients, weight)
    used = len(coefficients)
    np.testing.assert_allclose(average.value, coefficients @ values[:used], atol=1e-12)
    np.testing.assert_allclose(average.variance, coefficients**2 @ variances[:used], atol=1e-12)


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
