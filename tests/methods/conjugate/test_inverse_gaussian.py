"""Draws of generalised inverse Gaussian blocks have the moments that Bessel functions give."""

import numpy as np
import pytest
from scipy.special import kve

from pymc_dp.methods.conjugate.exponential import GENERALISED_INVERSE_GAUSSIAN

DRAWS = 40_000
ORDERS = np.array([-30.0, -1.5, 0.0, 0.4, 2.0, 40.0])


def expected(power, order, omega):
    return kve(order + power, omega) / kve(order, omega)


@pytest.mark.parametrize("omega", [0.05, 1.0, 30.0, 1e4])
def test_draws_have_the_moments_of_the_density(omega):
    eta = (ORDERS - 1, np.full(6, omega / 2), np.full(6, omega / 2))
    draws = GENERALISED_INVERSE_GAUSSIAN.sample(eta, DRAWS, np.random.default_rng(2))
    assert draws.shape == (DRAWS, 6)
    for power in (-0.5, 0.5):
        mean = expected(power, ORDERS, omega)
        sd = np.sqrt(np.maximum(expected(2 * power, ORDERS, omega) - mean**2, 0.0))
        score = (np.mean(draws**power, axis=0) - mean) / (sd / DRAWS**0.5 + 1e-6 * mean)
        assert np.abs(score).max() < 5.5  # alpha below 1e-6, over 48 comparisons
    np.testing.assert_allclose(
        GENERALISED_INVERSE_GAUSSIAN.moments(eta)[0], expected(1, ORDERS, omega), rtol=1e-12
    )


def test_parameters_at_the_edge_of_their_range_give_finite_draws():
    eta = (np.array([-401.0, -0.5, 1.0, 400.0]), np.zeros(4), np.full(4, 1e-300))
    draws = GENERALISED_INVERSE_GAUSSIAN.sample(eta, 50, np.random.default_rng(2))
    assert np.isfinite(draws).all()
    assert (draws > 0).all()
