"""What one release adds is computed once, and composed as dp-accounting's own accountant does."""

import pytest
from dp_accounting import pld

from pymc_dp.accounting import accountants as accountant
from pymc_dp.accounting import accountants as privacy_loss
from pymc_dp.accounting.accountants import PLD
from tests.plans import plan_from, release_from

DELTAS = (1e-5, 1e-3)
SAMPLED = ("poisson", 0.5, 1.0, 2.0, 7)
MIXED = (("poisson", 0.1, 1.0, 3.0, 5), ("full", 1.0, 1.0, 6.0, 4), ("poisson", 1.0, 2.0, 8.0, 2))


def plan_of(*settings, neighbours="add_remove"):
    releases = tuple(release_from(f"{k}", *terms) for k, terms in enumerate(settings))
    return plan_from(releases, neighbours, 1e-5, "pld", None)


def by_the_library(plan):
    sums = plan.merged()
    of_library = pld.PLDAccountant(sums.neighbours.relation, 1e-4)
    of_library.compose(PLD.event(sums))
    return [of_library.get_epsilon(delta) for delta in DELTAS]


@pytest.fixture
def made(monkeypatch):
    """The releases whose privacy loss was computed, with nothing known from before."""
    each = privacy_loss._of_few_kinds, privacy_loss._of_many_kinds
    for cached in (accountant._cached, privacy_loss._loss, *each):
        cached.cache_clear()
    calls = []
    genuine = pld.privacy_loss_distribution.from_gaussian_mechanism

    def seen(*args, **terms):
        calls.append(args)
        return genuine(*args, **terms)

    monkeypatch.setattr(pld.privacy_loss_distribution, "from_gaussian_mechanism", seen)
    return calls


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("settings", [(SAMPLED,), MIXED], ids=["sampled", "mixed"])
def test_it_is_the_librarys_epsilon_to_the_last_bit(settings, neighbours):
    plan = plan_of(*settings, neighbours=neighbours)
    for _ in range(2):  # computed, and known
        assert list(PLD.estimates(plan, DELTAS)) == by_the_library(plan)


def test_a_release_is_computed_once_whatever_is_asked_of_a_plan(made):
    plan = plan_of(SAMPLED)
    PLD.estimates(plan, DELTAS[:1])
    PLD.estimates(plan, DELTAS)
    along = [plan.prefix(k).epsilon() for k in (2, 5, 7)]
    assert along == sorted(along)
    assert len(made) == 1


def test_so_is_each_of_many_kinds(made):
    plan = plan_of(*[("poisson", 0.5, 1.0, 2.0 + k, 1) for k in range(40)])
    whole = plan.epsilon()
    assert plan.prefix(20).epsilon() < plan.prefix(30).epsilon() < whole
    assert len(made) == 40


def test_the_first_releases_of_a_plan_are_composed_once(monkeypatch, made):
    plan = plan_of(*[("poisson", 0.5, 1.0, 2.0 + k, 3) for k in range(6)])
    plan.epsilon()
    composed = []
    genuine = pld.privacy_loss_distribution.PrivacyLossDistribution.compose

    def seen(*args, **terms):
        composed.append(args)
        return genuine(*args, **terms)

    monkeypatch.setattr(pld.privacy_loss_distribution.PrivacyLossDistribution, "compose", seen)
    along = [plan.prefix(k).epsilon() for k in (3, 9, 15)]
    assert along == sorted(along)
    assert not composed


@pytest.mark.parametrize("other", [{"noise": 2.1}, {"rate": 0.4}, {"neighbours": "zero_out"}])
def test_releases_that_differ_are_computed_each(made, other):
    PLD.estimates(plan_of(SAMPLED), DELTAS)
    terms = ("poisson", other.get("rate", 0.5), 1.0, other.get("noise", 2.0), 7)
    PLD.estimates(plan_of(terms, neighbours=other.get("neighbours", "add_remove")), DELTAS)
    assert len(made) == 2
