"""A plan is an ordered multiset of named releases, and refuses what it cannot account."""

import json
import math

import numpy as np
import pytest
from dp_accounting import pld
from scipy.special import log_ndtr

from pymc_dp.accounting.plan import Release
from pymc_dp.calibration.budget import warn_if_weak
from pymc_dp.errors import PrivacyWarning
from tests.plans import plan_from, release_from

SCORE = release_from("score", "poisson", 0.1, clip_norm=1.0, noise_multiplier=3.0, count=60)
CURVATURE = release_from("curvature", "poisson", 0.2, clip_norm=0.5, noise_multiplier=6.0, count=5)
MOMENTS = release_from("moments", "full", 1.0, clip_norm=2.0, noise_multiplier=10.0, count=1)


def plan_of(*releases, neighbours="add_remove", delta=1e-5, accountant="pld", num_records=None):
    return plan_from(releases, neighbours, delta, accountant, num_records)


def changed(release=SCORE, **fields):
    return release_from(**{**release.to_dict(), **fields})


@pytest.mark.parametrize("accountant", ["pld", "rdp", "rdp_dp_accounting"])
def test_spend_depends_on_the_multiset_alone(accountant):
    split = (changed(count=20), MOMENTS, changed(name="other", clip_norm=9.0, count=40))
    spend = plan_of(SCORE, MOMENTS, accountant=accountant).epsilon()
    assert plan_of(*split, accountant=accountant).epsilon() == spend


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("releases", [(SCORE,), (SCORE, CURVATURE, MOMENTS)], ids=len)
def test_epsilon_is_dp_accountings_to_the_last_bit(releases, neighbours):
    plan = plan_of(*releases, neighbours=neighbours)
    library = pld.PLDAccountant(plan.neighbours.relation, 1e-4).compose(plan.event)
    for _ in range(2):  # computed, and from the cache
        assert plan.epsilon() == library.get_epsilon(1e-5)


def test_profile_is_epsilon_at_each_delta():
    plan, deltas = plan_of(SCORE, MOMENTS), [1e-3, 1e-5, 1e-9]
    profile = plan.epsilon_profile(deltas)
    assert profile.tolist() == [plan.epsilon(delta) for delta in deltas]
    assert np.all(np.diff(profile) > 0)
    assert plan.epsilon() == plan.epsilon(1e-5)


def test_prefix_keeps_the_order():
    plan = plan_of(SCORE, MOMENTS, CURVATURE)
    assert plan.prefix(60).releases == (SCORE,)
    assert plan.prefix(63).releases == (SCORE, MOMENTS, changed(CURVATURE, count=2))
    assert plan.prefix(plan.total) == plan


def test_spend_along_a_plan_rises_to_the_plans():
    plan = plan_of(SCORE, CURVATURE, MOMENTS)
    along = [plan.prefix(k).epsilon() for k in (0, 1, 30, 60, 63, 66)]
    assert along[0] == 0
    assert np.all(np.diff(along) > 0)
    assert along[-1] == plan.epsilon()


@pytest.mark.parametrize("k", [-1, 67])
def test_prefix_refuses_what_the_plan_does_not_hold(k):
    with pytest.raises(ValueError, match="the plan holds 66 releases"):
        plan_of(SCORE, CURVATURE, MOMENTS).prefix(k)


def test_one_release_without_noise_makes_the_whole_plan_infinite():
    assert plan_of(SCORE, changed(MOMENTS, noise_multiplier=0.0)).epsilon() == math.inf


def test_json_carries_settings_and_event():
    bare = changed(MOMENTS, clip_norm=math.inf, noise_multiplier=0.0, count=np.int64(1))
    told = json.loads(plan_of(SCORE, bare, num_records=50).to_json())
    assert told["releases"][0] == SCORE.to_dict()
    assert told["releases"][1]["clip_norm"] == "inf"
    terms = ("neighbours", "accountant", "num_records")
    assert [told[term] for term in terms] == ["add_remove", "pld", 50]
    event = told["event"]["events"][0]
    assert event["count"] == 60
    assert event["event"]["class_name"] == "PoissonSampledDpEvent"
    assert event["event"]["event"]["noise_multiplier"] == 3.0


def test_only_noisy_sums_are_read_back():
    draw = SCORE.to_dict() | {"mechanism": "exponential", "sampling": "full", "sample_rate": 1.0}
    with pytest.raises(ValueError, match="mechanism='exponential' is not that of noisy sums"):
        Release.from_dict(draw)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"sampling": "shuffled"}, "Shuffled epochs are not offered"),
        ({"sample_rate": 0.0}, "sample_rate=0.0: it must be above 0"),
        ({"sample_rate": 1.1}, "sample_rate=1.1: it must be above 0"),
        ({"sample_rate": math.nan}, "sample_rate=nan"),
        ({"sampling": "full"}, "sampling='full' takes every row"),
        ({"clip_norm": 0.0}, "clip_norm=0.0"),
        ({"clip_norm": math.nan}, "clip_norm=nan"),
        ({"clip_norm": math.inf}, "give a finite clip_norm"),
        ({"noise_multiplier": -1.0}, "noise_multiplier=-1.0"),
        ({"noise_multiplier": math.inf}, "noise_multiplier=inf"),
        ({"noise_multiplier": math.nan}, "noise_multiplier=nan"),
        ({"count": 0}, "count=0: it must be at least 1"),
    ],
)
def test_a_release_out_of_range_is_refused(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        changed(**fields)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"neighbours": "edit"}, "neighbours='edit' is unknown"),
        ({"delta": 0.0}, "strictly between 0 and 1"),
        ({"delta": 1.0}, "strictly between 0 and 1"),
        ({"delta": math.nan}, "strictly between 0 and 1"),
        ({"delta": 1e-11}, "understates epsilon below 1e-10"),
    ],
)
def test_a_plan_out_of_range_is_refused(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan_of(SCORE, **fields)


def test_a_small_delta_is_refused_of_pld_wherever_it_is_asked():
    with pytest.raises(ValueError, match="understates epsilon below 1e-10"):
        plan_of(SCORE).epsilon(1e-12)
    assert plan_of(SCORE, accountant="rdp").epsilon(1e-12) > plan_of(SCORE).epsilon()


@pytest.mark.parametrize(("neighbours", "least"), [("add_remove", 0.3), ("replace_one", 0.6)])
def test_noise_that_is_too_low_for_the_accountants_is_refused(neighbours, least):
    with pytest.raises(ValueError, match="not reliable below 0.3"):
        plan_of(changed(noise_multiplier=0.99 * least), neighbours=neighbours)
    with pytest.warns(PrivacyWarning, match="below 0.5"):
        warn_if_weak(plan_of(changed(noise_multiplier=least), neighbours=neighbours))
    warn_if_weak(plan_of(changed(noise_multiplier=least / 0.6), neighbours=neighbours))


@pytest.mark.parametrize("accountant", ["pld", "rdp", "rdp_dp_accounting"])
@pytest.mark.parametrize(("noise", "count"), [(1e-7, 10**6), (1e-4, 2), (0.29, 2), (3.0, 4)])
@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
def test_batches_of_all_records_cost_what_one_gaussian_mechanism_does(accountant, noise, count):
    repeated = changed(MOMENTS, noise_multiplier=count**0.5 * noise, count=count)
    plan = plan_of(repeated, accountant=accountant)
    epsilon, delta = plan.epsilon(), 1e-5
    # delta = P(Z > a - b) - exp(epsilon) P(Z > a + b) with a = epsilon noise, b = 1 / (2 noise)
    a, b = epsilon * noise, 1 / (2 * noise)
    beyond, other = log_ndtr(b - a), epsilon + log_ndtr(-a - b)
    exact = np.exp(beyond) * -np.expm1(other - beyond)
    assert exact <= delta * (1 + 1e-6)
    if accountant != "rdp_dp_accounting":
        assert exact == pytest.approx(delta, rel=1e-3)


def test_low_noise_of_all_records_is_refused_beside_batches_of_some():
    whole = changed(MOMENTS, noise_multiplier=0.01)
    assert plan_of(whole).epsilon() > 5000
    with pytest.raises(ValueError, match="not reliable below 0.3"):
        plan_of(whole, SCORE)
    with pytest.raises(ValueError, match="0.0001 if full"):
        plan_of(changed(MOMENTS, noise_multiplier=0.99e-4))


def test_a_delta_that_allows_publishing_a_record_is_warned_about():
    with pytest.warns(PrivacyWarning, match="not below 1/num_records"):
        warn_if_weak(plan_of(SCORE, delta=1e-3, num_records=1000))
