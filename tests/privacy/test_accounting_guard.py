"""Epsilon is at least what an adversary can show; accounting that claims less is caught.

One release has a privacy loss that fits on a page. It is written out here, apart from any
accountant, and used to judge the accountants and some faulty ones.
"""

import math

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from pymc_dp import accountants
from pymc_dp.accounting import epsilon
from pymc_dp.plans import Plan
from pymc_dp.release import Release


def exact_epsilon(q, sigma, neighbours, delta=1e-5):
    """Smallest epsilon at which one Poisson release keeps its delta, from the two densities."""
    return brentq(lambda eps: exact_delta(eps, q, sigma, neighbours) - delta, 1e-9, 60)


def exact_delta(eps, q, sigma, neighbours):
    """Mass by which a record at +1 exceeds e^eps times its absence, or its opposite at -1."""
    other = -1.0 if neighbours == "replace_one" else 0.0

    def log_ratio(x):
        return log_density(x, 1.0) - log_density(x, other)

    def log_density(x, mean):
        logs = (
            math.log1p(-q) + norm.logpdf(x, 0, sigma),
            math.log(q) + norm.logpdf(x, mean, sigma),
        )
        return max(logs) + math.log1p(math.exp(min(logs) - max(logs)))

    def above(x, mean):
        return (1 - q) * norm.sf(x, 0, sigma) + q * norm.sf(x, mean, sigma)

    edge = brentq(lambda x: log_ratio(x) - eps, -50 * sigma, 50 * sigma + 60 * sigma**2)
    return above(edge, 1.0) - math.exp(eps) * above(edge, other)


def claimed(q, sigma, neighbours="add_remove", **others):
    return epsilon(
        noise_multiplier=sigma,
        sample_rate=q,
        n=1,
        delta=1e-5,
        neighbours=neighbours,
        **others,
    )


ONE_RELEASE = [(0.1, 1.0), (0.5, 2.0), (0.02, 1.0)]


@pytest.mark.parametrize("neighbours", ["add_remove", "zero_out", "replace_one"])
@pytest.mark.parametrize(("q", "sigma"), ONE_RELEASE)
def test_one_release_costs_what_its_densities_show(q, sigma, neighbours):
    exact = exact_epsilon(q, sigma, neighbours)
    assert exact <= claimed(q, sigma, neighbours) <= 1.001 * exact


@pytest.mark.parametrize("accountant", ["rdp", "rdp_dp_accounting"])
@pytest.mark.parametrize(("q", "sigma"), ONE_RELEASE)
def test_renyi_accountants_claim_no_less_than_the_densities_show(q, sigma, accountant):
    assert claimed(q, sigma, accountant=accountant) >= exact_epsilon(q, sigma, "add_remove")


@pytest.mark.parametrize("accountant", ["rdp", "rdp_dp_accounting"])
@pytest.mark.parametrize(("q", "sigma"), ONE_RELEASE)
def test_fixed_size_claims_no_less_than_one_pair_of_neighbours_shows(q, sigma, accountant):
    # All other records contribute nothing; one is at +1, or at -1, in a share q of the batches.
    terms = {"sampling": "fixed_size", "accountant": accountant, "num_records": 1000}
    assert claimed(q, sigma, "replace_one", **terms) >= exact_epsilon(q, sigma, "replace_one")


@pytest.mark.parametrize("sigma", [0.9, 3.0])
def test_full_batch_costs_what_its_densities_show(sigma):
    def excess(eps, mu=1 / sigma):
        tail = math.exp(eps) * norm.cdf(-mu / 2 - eps / mu)
        return norm.cdf(mu / 2 - eps / mu) - tail - 1e-5

    assert claimed(1.0, sigma, sampling="full") == pytest.approx(brentq(excess, 0, 30), rel=1e-6)


@pytest.mark.parametrize(("q", "sigma"), ONE_RELEASE)
def test_replace_one_without_doubling_is_caught(q, sigma):
    undoubled = claimed(q, sigma, "add_remove")
    assert undoubled < 0.97 * exact_epsilon(q, sigma, "replace_one")


def test_replace_one_without_doubling_is_caught_in_renyi_accountants():
    terms = {"sampling": "fixed_size", "accountant": "rdp", "num_records": 1000}
    doubled = claimed(0.1, 4.0, "replace_one", **terms)
    undoubled = claimed(0.1, 8.0, "replace_one", **terms)  # as if sensitivity were the clip norm
    assert undoubled < 0.6 * doubled


@pytest.mark.parametrize(("q", "sigma"), ONE_RELEASE)
def test_noise_two_per_cent_short_is_caught(q, sigma):
    assert claimed(q, sigma) < exact_epsilon(q, 0.98 * sigma, "add_remove")


@pytest.mark.parametrize(
    ("accountant", "understated", "true"),
    [("rdp_dp_accounting", 2.87, 5.47), ("pld", 2.50, 4.58)],
)
def test_two_statistics_of_one_batch_are_not_two_releases(accountant, understated, true):
    # VIPS composes 2J releases for two statistics of J batches, each at sigma = 1. But both see
    # the same batch: together they are one release of sensitivity sqrt(2).
    setting = {"sample_rate": 0.02, "delta": 1e-5, "accountant": accountant}
    separate = epsilon(noise_multiplier=1.0, n=400, **setting)
    joint = epsilon(noise_multiplier=1 / math.sqrt(2), n=200, **setting)
    assert separate == pytest.approx(understated, abs=6e-3)
    assert joint == pytest.approx(true, abs=6e-3)


def test_a_statistic_released_once_is_not_amplified():
    once = Release("moments", "full", 1.0, 1.0, noise_multiplier=4.0, count=1)
    amplified = Release("moments", "poisson", 0.1, 1.0, noise_multiplier=4.0, count=1)
    full = Plan((once,), "add_remove", 1e-5, "pld").epsilon()
    assert Plan((amplified,), "add_remove", 1e-5, "pld").epsilon() < 0.5 * full


@pytest.mark.parametrize("impossible", [-0.0048, math.nan])
def test_an_impossible_epsilon_is_refused(monkeypatch, impossible):
    # What autodp's characteristic functions return with today's SciPy, without an exception.
    monkeypatch.setitem(accountants._ACCOUNTANTS, "rdp", lambda *plan: [impossible])
    with pytest.raises(ArithmeticError, match="which cannot be"):
        claimed(0.123, 4.56, accountant="rdp")
