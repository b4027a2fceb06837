"""The papers' own accountants reproduce the papers, and show what a modern one saves."""

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

# sample rate, releases, sigma -> the paper's epsilon, PLD's for the same noise: three batch sizes
# of a sigmoid belief net, and LDA
VIPS = [
    (0.008, 150, 1 + 1e-6, 2.3468, 0.481),
    (0.016, 75, 1 + 1e-6, 2.3980, 0.772),
    (0.064, 18, 1 + 1e-6, 4.8253, 1.828),
    (0.05, 20, 1.24, 2.4411, 0.932),
]


@pytest.mark.parametrize(("sigma", "n", "paper", "pld"), DP_ADVI)
def test_dp_advi_is_reproduced(sigma, n, paper, pld):
    setting = {"sample_rate": 0.02, "n": n, "delta": 1e-3}
    assert advanced_composition(sigma=sigma, **setting) == pytest.approx(paper, rel=5e-4)
    assert epsilon(noise_multiplier=2 * sigma, **setting) == pytest.approx(pld, abs=5e-4)


@pytest.mark.parametrize(("sample_rate", "n", "sigma", "paper", "pld"), VIPS)
def test_vips_is_reproduced(sample_rate, n, sigma, paper, pld):
    setting = {"sample_rate": sample_rate, "n": n, "delta": 1e-4}
    assert moments_accountant(sigma=sigma, **setting) == pytest.approx(paper, abs=5e-5)
    assert epsilon(noise_multiplier=sigma, **setting) == pytest.approx(pld, abs=5e-4)
