"""Bounds on attacks hold against the best attack that there is, and come close to it."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

from pymc_dp.deployment_registry import attack_bounds

DELTAS = np.geomspace(1e-10, 0.1, 19)


def gaussian_delta(epsilon, mu):
    """The exact delta of one Gaussian release (Balle and Wang 2018)."""
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def profile(mu):
    """The ``privacy`` group of a result whose releases are one Gaussian release of mean mu."""
    grid = np.linspace(0, 60, 60_001)
    epsilons = [grid[np.argmax(gaussian_delta(grid, mu) <= delta)] for delta in DELTAS]
    group = xr.Dataset({"epsilon": ("delta", epsilons)}, {"delta": DELTAS})
    return group.assign_attrs(epsilon=epsilons[10], delta=DELTAS[10])


@pytest.mark.parametrize("mu", [0.1, 0.3, 1.0, 2.0, 4.0])
def test_no_attack_does_better_than_the_bounds(mu):
    bounds = attack_bounds(profile(mu))
    assert 2 * norm.cdf(mu / 2) - 1 <= bounds["advantage"] <= 1
    assert bounds["correct"] == (1 + bounds["advantage"]) / 2
    for rate, hits in bounds["true_positives"].items():
        assert norm.cdf(mu + norm.ppf(rate)) <= hits <= 1


@pytest.mark.parametrize("mu", [0.1, 0.3, 0.5])
def test_the_best_attack_on_a_private_result_comes_close_to_the_bounds(mu):
    bounds = attack_bounds(profile(mu))
    assert bounds["advantage"] < 1.3 * (2 * norm.cdf(mu / 2) - 1) + 0.03
    for rate, hits in bounds["true_positives"].items():
        assert hits < 1.5 * norm.cdf(mu + norm.ppf(rate)) + 1e-3


@pytest.mark.parametrize(
    "fault",
    [
        lambda group: group.assign(epsilon=group["epsilon"] * 0.8),
        lambda group: group.assign_coords(delta=group["delta"] * 0.05),
    ],
)
def test_a_profile_that_claims_too_much_fails_against_the_best_attack(fault):
    bounds = attack_bounds(fault(profile(1.0)))
    best = {rate: norm.cdf(1.0 + norm.ppf(rate)) for rate in bounds["true_positives"]}
    too_low = [bounds["true_positives"][rate] < hits for rate, hits in best.items()]
    assert any(too_low) or bounds["advantage"] < 2 * norm.cdf(0.5) - 1


def test_a_large_epsilon_bounds_nothing_and_overflows_nowhere():
    group = profile(1.0)
    group = group.assign(epsilon=group["epsilon"] + 5000).assign_attrs(epsilon=5000.0)
    bounds = attack_bounds(group)
    assert bounds["advantage"] == 1
    assert set(bounds["true_positives"].values()) == {1.0}


def test_a_result_that_claims_nothing_has_no_bound():
    assert attack_bounds(profile(1.0).assign_attrs(epsilon=np.nan)) is None
