"""Several results cost together what all their releases cost, if nothing was learned in between."""

import json
import math

import pytest

import pymc_dp
from pymc_dp import compose
from pymc_dp.testing import deterministic_noise
from tests.checking.models import coin
from tests.plans import plan_from, release_from

DELTA = 1e-5
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")


@pytest.fixture(scope="module")
def model():
    return coin(70, 30)


def fit(model, **settings):
    plain = {"noise_aware": False, "delta": DELTA}
    settings = {"n": 20, "noise_multiplier": 5.0, **plain, **settings}
    return pymc_dp.fit(model=model, draws=2, progressbar=False, **settings)


@pytest.fixture(scope="module")
def result(model):
    return fit(model)


def relabelled(result, **attrs):
    """The same result with other words in its privacy group."""
    copy = result.copy()
    copy["privacy"] = copy["privacy"].to_dataset().assign_attrs(attrs)
    return copy


def test_results_cost_what_all_their_releases_cost(model, result):
    other = fit(model, n=40, noise_multiplier=7.0)
    by_hand = plan_from(
        (
            release_from("score", "poisson", 0.1, 1.0, 5.0, 20),
            release_from("score", "poisson", 0.1, 1.0, 7.0, 40),
        ),
        "add_remove",
        DELTA,
        "pld",
    )
    found = compose([result, other], delta=DELTA)
    assert found.epsilon == by_hand.epsilon()
    parts = [idata["privacy"].attrs["epsilon"] for idata in (result, other)]
    assert max(parts) < found.epsilon < sum(parts)


def test_releases_that_were_not_made_count(model, result):
    def stop(state, _, i):
        raise StopIteration

    stopped = fit(model, callbacks=[stop])
    assert stopped["privacy"].attrs["releases_made"] == 1
    assert compose([stopped], delta=DELTA).epsilon == compose([result], delta=DELTA).epsilon


def test_the_text_says_when_the_number_holds(result):
    text = str(compose([result, result], delta=DELTA))
    assert "2 fits together" in text
    assert "fixed before the first one ran" in text
    assert "use a ledger" in text


@pytest.mark.parametrize(("term", "value"), [("neighbours", "zero_out"), ("unit", "person_id")])
def test_different_neighbours_and_units_are_refused(result, term, value):
    told = json.loads(result["privacy"].attrs["dp_event"]) | {term: value}
    other = relabelled(result, dp_event=json.dumps(told))
    with pytest.raises(ValueError, match=f"Result 1 has {term}='{value}' and result 0 has"):
        compose([result, other], delta=DELTA)


def test_a_fit_in_test_mode_is_refused(model, result):
    with deterministic_noise(1):
        void = fit(model)
    assert math.isnan(void["privacy"].attrs["epsilon"])
    with pytest.raises(ValueError, match="Result 1 cannot be composed.*'none: test mode'"):
        compose([result, void], delta=DELTA)


def test_an_epsilon_that_is_not_finite_is_refused_whatever_the_words_say(result):
    with pytest.raises(ValueError, match="cannot be composed.* with epsilon=inf"):
        compose([result, relabelled(result, epsilon=math.inf)], delta=DELTA)


def test_a_tuned_result_is_refused(model):
    tuned = pymc_dp.tune(
        model, [{"n": 8}, {"n": 9}], epsilon=2.0, delta=DELTA, draws=2, backend="python"
    )
    with pytest.raises(ValueError, match="Result 0 was tuned: its epsilon is that of the search"):
        compose([tuned], delta=DELTA)


def test_what_is_not_a_list_of_results_is_refused(result):
    with pytest.raises(ValueError, match="Give a list of results"):
        compose(result, delta=DELTA)
