"""Epsilon is at least what an adversary can show; accounting that claims less is caught.

One release has a privacy loss that fits on a page. It is written out here, apart from any
accountant, and used to judge the accountants and some faulty ones.
"""

import math

import dp_accounting as dp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from pymc_dp.accounting.accountants import ACCOUNTANTS
from pymc_dp.accounting.plan import (
    SAMPLERS,
    Full,
    Neighbours,
    Plan,
    Poisson,
    Release,
    ReleaseSpec,
    event_of_batch,
)
from pymc_dp.calibration.budget import CENTRAL_LIMIT, granting
from pymc_dp.driver.explain import epsilon
from pymc_dp.methods.method import with_shares
from pymc_dp.results.tree import plan_from_json
from tests.plans import batch_of, plan_from


def exact_epsilon(q, sigma, neighbours, delta=1e-5):
    """Smallest epsilon at which one Poisson release keeps its delta, from the two densities."""
    return brentq(lambda eps: exact_delta(eps, q, sigma, neighbours) - delta, 1e-9, 60)


def exact_delta(eps, q, sigma, neighbours):
    """Mass by which a record at +1 exceeds e^eps times its absence, or its opposite at -1."""
    other = -1.0 if neighbours == "replace_one" else 0.0

    def log_density(x, mean):
        without = math.log1p(-q) + norm.logpdf(x, 0, sigma)
        return np.logaddexp(without, math.log(q) + norm.logpdf(x, mean, sigma))

    def excess(x):
        return log_density(x, 1.0) - log_density(x, other) - eps

    def above(x, mean):
        return (1 - q) * norm.sf(x, 0, sigma) + q * norm.sf(x, mean, sigma)

    edge = brentq(excess, -50 * sigma, 50 * sigma + 60 * sigma**2)
    return above(edge, 1.0) - math.exp(eps) * above(edge, other)


def claimed(q, sigma, neighbours="add_remove", **others):
    return epsilon(
        noise_multiplier=sigma, sample_rate=q, n=1, delta=1e-5, neighbours=neighbours, **others
    )


ONE_RELEASE = [(0.1, 1.0), (0.5, 2.0), (0.02, 1.0)]


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("q", "sigma"), ONE_RELEASE)
def test_one_release_costs_what_its_densities_show(q, sigma, neighbours):
    exact = exact_epsilon(q, sigma, neighbours)
    assert exact <= claimed(q, sigma, neighbours) <= 1.001 * exact


@pytest.mark.parametrize("accountant", ["rdp", "rdp_dp_accounting"])
@pytest.mark.parametrize(("q", "sigma"), ONE_RELEASE)
def test_renyi_accountants_claim_no_less_than_the_densities_show(q, sigma, accountant):
    assert claimed(q, sigma, accountant=accountant) >= exact_epsilon(q, sigma, "add_remove")


@pytest.mark.parametrize(("q", "sigma"), ONE_RELEASE)
def test_replace_one_without_doubling_is_caught(q, sigma):
    undoubled = claimed(q, sigma, "add_remove")
    assert undoubled < 0.97 * exact_epsilon(q, sigma, "replace_one")


@pytest.mark.parametrize(("q", "sigma"), ONE_RELEASE)
def test_noise_two_per_cent_short_is_caught(q, sigma):
    assert claimed(q, sigma) < exact_epsilon(q, 0.98 * sigma, "add_remove")


@pytest.mark.parametrize("impossible", [-0.0048, math.nan])
def test_an_impossible_epsilon_is_refused(monkeypatch, impossible):
    # What autodp's characteristic functions return with today's SciPy, without an exception.
    faulty = ACCOUNTANTS["rdp"]._replace(of_sums=lambda *plan: [impossible])
    monkeypatch.setitem(ACCOUNTANTS, "rdp", faulty)
    with pytest.raises(ArithmeticError, match="which cannot be"):
        claimed(0.123, 4.56, accountant="rdp")


# --- samplers say what they draw ---


def likely(sampler, event_of=event_of_batch, number=400, steps=400):
    """Whether batches look like those of the sampler's event: their sizes, and their spread."""
    rng = np.random.default_rng(1)
    sizes = np.array([len(batch_of(sampler, rng, number)) for _ in range(steps)])
    event = event_of(sampler, dp.GaussianDpEvent(1.0))
    if isinstance(event, dp.PoissonSampledDpEvent):
        mean = number * event.sampling_probability
        variance = mean * (1 - event.sampling_probability)
        close = abs(sizes.mean() - mean) < 5 * (variance / steps) ** 0.5
        return close and 0.6 < sizes.var() / variance < 1.6
    return (sizes == number).all()


@pytest.mark.parametrize("sampler", [Poisson(0.1), Poisson(0.9), Poisson(1.0), Full()])
def test_a_sampler_says_the_event_of_what_it_draws(sampler):
    assert likely(sampler)
    gaussian = dp.GaussianDpEvent(1.0)
    assert (event_of_batch(sampler, gaussian) == gaussian) == (sampler.rate == 1)


class DrawsMore(Poisson):
    def sizes(self, rng, numbers):
        return rng.binomial(numbers, 1.1 * self.rate)


class DrawsItsShare(Poisson):
    def sizes(self, rng, numbers):
        return np.round(self.rate * np.array(numbers)).astype(int)


@pytest.mark.parametrize("sampler", [DrawsMore(0.1), DrawsItsShare(0.1), Full()])
def test_a_sampler_that_says_another_event_is_caught(sampler):
    assert not likely(sampler, lambda _, release: dp.PoissonSampledDpEvent(0.1, release))


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("faulty", [DrawsMore(0.1), DrawsItsShare(0.1)])
@pytest.mark.parametrize("accountant", ACCOUNTANTS.values())
def test_no_accountant_takes_a_sampler_that_it_does_not_know(accountant, faulty, neighbours):
    with pytest.raises(ValueError, match="No proof covers"):
        Plan((Release("s", faulty, 1.0, 4.0, 1),), neighbours, 1e-5, accountant, 400)


# --- which accountants have a proof for what ---


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("sampling", SAMPLERS)
@pytest.mark.parametrize("accountant", ACCOUNTANTS.values())
def test_an_accountant_takes_what_it_has_a_proof_for_and_no_more(accountant, sampling, neighbours):
    sampler = SAMPLERS[sampling](1.0 if sampling == "full" else 0.1)
    releases = (Release("s", sampler, 1.0, 8.0, 2),)
    sampled_and_replaced = (sampling, neighbours.value) == ("poisson", "replace_one")
    if accountant.name == "pld" or not sampled_and_replaced:
        plan = Plan(releases, neighbours, 1e-5, accountant, 400)
        assert 0 < plan.epsilon() < math.inf
        assert plan_from_json(plan.to_json()) == plan
        return
    with pytest.raises(ValueError, match="No proof covers"):
        Plan(releases, neighbours, 1e-5, accountant, 400)


def test_a_guess_covers_nothing():
    with pytest.raises(ValueError, match="No proof covers"):
        Plan((Release("s", Full(), 1.0, 8.0, 2),), Neighbours.ADD_REMOVE, 1e-5, CENTRAL_LIMIT)


# --- the shares of a budget ---


def test_shares_are_those_of_the_whole_budget():
    one = [ReleaseSpec("a", Poisson(0.1), 1.0, 50), ReleaseSpec("b", Poisson(0.3), 1.0, 5)]
    two = with_shares(one, ReleaseSpec("c", Full(), 1.0, 4, share=0.3))
    three = with_shares(two, ReleaseSpec("d", Poisson(0.5), 1.0, 2, share=0.2))
    granted = granting(plan_from((), "add_remove", 1e-5, "pld"), three, 4.0).releases
    cost = {r.name: r.count * (r.sampler.rate / r.noise_multiplier) ** 2 for r in granted}
    assert cost["d"] / sum(cost.values()) == pytest.approx(0.2)
    assert cost["c"] / (sum(cost.values()) - cost["d"]) == pytest.approx(0.3)
    assert [r.noise_multiplier for r in granted[:2]] == [4.0, 4.0]
    more = [*three, ReleaseSpec("e", Full(), 1.0, 1, share=0.6)]
    with pytest.raises(ValueError, match="leave nothing"):
        granting(plan_from((), "add_remove", 1e-5, "pld"), more, 4.0)
