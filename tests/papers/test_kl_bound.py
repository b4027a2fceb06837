"""Theorem 4.1 of the DP-SEP paper: what it says, and how often it does not apply."""

import numpy as np
import pytest

from pymc_dp import sep_kl_bound

COVARIANCE = np.array([[1.0, 0.3], [0.3, 0.5]])


def test_in_one_dimension_the_bound_is_its_formula():
    found = sep_kl_bound(np.array([[4.0]]), mean_sd=0.5, covariance_sd=0.1, threshold=2.0)
    spread = np.sqrt(2 * (0.1 / 4) ** 2 * np.log(2))
    sides = (found.upper + found.lower + spread - 1) / (found.upper * found.lower)
    expected = (np.log1p(spread) - 1 + (0.25 / 4 + 1) * sides) / 4
    assert found.bound == pytest.approx(expected)


@pytest.mark.parametrize("covariance_sd", [0.001, 0.05])
@pytest.mark.parametrize("threshold", [0.05, 0.5])
def test_simulated_divergences_stay_below_the_bound(covariance_sd, threshold):
    found = sep_kl_bound(COVARIANCE, mean_sd=0.1, covariance_sd=covariance_sd, threshold=threshold)
    assert found.exceeded <= found.bound


def test_noise_that_swallows_an_eigenvalue_leaves_no_bound():
    found = sep_kl_bound(COVARIANCE, mean_sd=0.1, covariance_sd=0.5, threshold=1.0)
    assert found.bound == np.inf
    # some of the simulated covariances are no covariances at all
    assert found.exceeded > 0.05


@pytest.mark.parametrize(
    ("covariance", "mean_sd", "words"),
    [(COVARIANCE, 0.0, "above 0"), (np.diag([1.0, -1.0]), 1.0, "positive definite")],
)
def test_bad_input_is_refused(covariance, mean_sd, words):
    with pytest.raises(ValueError, match=words):
        sep_kl_bound(covariance, mean_sd=mean_sd, covariance_sd=0.1, threshold=1.0)
