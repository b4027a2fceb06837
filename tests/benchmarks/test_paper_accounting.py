"""The papers' own accountants reproduce the papers, and show what a modern one saves."""

import math

import pytest

from benchmarks.papers.paper_accounting import advanced_composition, moments_accountant
from pymc_dp.driver.explain import epsilon

# sigma, releases -> the paper's epsilon, PLD's for the same noise
DP_ADVI = [
    (1, 100, 128.4, 0.227),
    (2, 1000, 52.21, 0.353),
    (4, 1000, 7.201, 0.150),
    (8, 1000, 2.177, 0.063),
    (16, 1000, 0.875, 0.025),
]

# batch size of 50000 -> the paper's epsilon, PLD's for the same noise
SIGMOID_BELIEF_NET = [
    (400, 2.3468, 0.481),
    (800, 2.3980, 0.772),
    (1600, 3.2262, 1.213),
    (3200, 4.8253, 1.828),
]


@pytest.mark.parametrize(("sigma", "n", "paper", "pld"), DP_ADVI)
def test_dp_advi_is_reproduced(sigma, n, paper, pld):
    setting = {"sample_rate": 0.02, "n": n, "delta": 1e-3}
    assert advanced_composition(sigma=sigma, **setting) == pytest.approx(paper, rel=5e-4)
    assert epsilon(noise_multiplier=2 * sigma, **setting) == pytest.approx(pld, abs=5e-4)


@pytest.mark.parametrize(("batch", "paper", "pld"), SIGMOID_BELIEF_NET)
def test_vips_sigmoid_belief_net_is_reproduced(batch, paper, pld):
    setting = {"sample_rate": batch / 50_000, "n": 60_000 // batch, "delta": 1e-4}
    assert moments_accountant(sigma=1 + 1e-6, **setting) == pytest.approx(paper, abs=5e-5)
    assert epsilon(noise_multiplier=1 + 1e-6, **setting) == pytest.approx(pld, abs=5e-4)


def test_vips_lda_is_reproduced():
    setting = {"sample_rate": 0.05, "n": 20, "delta": 1e-4}
    assert moments_accountant(sigma=1.24, **setting) == pytest.approx(2.4411, abs=5e-5)
    assert epsilon(noise_multiplier=1.24, **setting) == pytest.approx(0.932, abs=5e-4)


def test_too_large_a_batch_leaves_the_moments_accountant_no_order():
    assert moments_accountant(sigma=1.0, sample_rate=0.9, n=1, delta=1e-4) == math.inf


@pytest.mark.parametrize("slack", [0.0, 1e-3, math.nan])
def test_composition_must_leave_some_delta(slack):
    with pytest.raises(ValueError, match="strictly between 0 and delta"):
        advanced_composition(sigma=1.0, sample_rate=0.02, n=10, delta=1e-3, slack=slack)
