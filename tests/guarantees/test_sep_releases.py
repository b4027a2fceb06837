"""What a DP-SEP fit asks, releases and hands out depends on the data through releases alone.

Soundness, rule 8: the number of records leaves no trace under add_remove, and how much of lambda
is kept does not depend on the batch; rule 16: epsilon is the plan's; rule 23: structure is decided
on made-up rows.
"""

import pickle

import numpy as np
import pytest

from pymc_dp.privacy.query import Noisy
from tests.guarantees import vips_toys
from tests.guarantees.test_allow_list import build, everything, found_in, saved
from tests.guarantees.test_vips_releases import (
    bumps,
    check_first_query,
    differ,
    fitted,
    on_other_data,
    shape_of,
)
from tests.guarantees.vips_toys import N, prepared
from tests.plans import plan_from, release_from

pytestmark = pytest.mark.filterwarnings("ignore:form='algorithm3' is for reproduction")

DAMPED = {"method": "dp_sep", "form": "damped"}
LITERAL = {"method": "dp_sep", "form": "algorithm3", "num_records": N, "sampling": "poisson"}
# what is asked does not depend on the link
ASKED = [vips_toys.two_outcomes, vips_toys.unknown_shares]


@pytest.mark.parametrize("model", ASKED)
def test_the_first_query_is_the_same_for_any_data(model, monkeypatch):
    check_first_query(monkeypatch, model, **DAMPED)


def test_the_first_query_of_algorithm_3_is_the_same_for_any_data(monkeypatch):
    # three batches of everyone, so that the later queries differ
    check_first_query(monkeypatch, vips_toys.logistic, **LITERAL, sample_rate=1.0)


def last_state(model, settings, start=0.5):
    """Where a fit stands after three releases that are made up."""
    found = prepared(model, 3, noise_multiplier=2.0, **settings)
    compiled, method = found.method.compile("python"), found.method
    rng = np.random.default_rng(7)
    state = method.init(rng)
    for value in (start, 1.0, 2.0):
        query = method.query(state, rng=rng)
        noisy = Noisy(value * rng.normal(1.0, 1.0, method.size), 0.1, 0.5)
        state = compiled.update(state, query, noisy)
    return state


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (vips_toys.log_link, DAMPED),
        (vips_toys.unknown_shares, DAMPED),
        (vips_toys.logistic, LITERAL),
    ],
)
def test_releases_alone_say_where_a_fit_stands(model, settings, monkeypatch):
    before, other = last_state(model, settings), last_state(model, settings, start=0.6)
    on_other_data(monkeypatch)
    np.testing.assert_equal(last_state(model, settings), before)
    # another first release would have been seen
    assert differ(other, before)


# --- what leaves ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [build, bumps])
def test_no_canary_is_in_a_byte_of_the_result(make, tmp_path):
    idata = fitted(make, method="dp_sep")
    assert found_in(*everything(idata), saved(idata, tmp_path)) == set()


@pytest.mark.parametrize(
    ("make", "settings"), [(build, DAMPED), (bumps, DAMPED), (build, LITERAL | {"n": 5})]
)
def test_the_number_of_records_leaves_no_trace(make, settings):
    few, many = (fitted(make, rows, **settings) for rows in (25, 60))
    for idata in (few, many):
        for group in ("posterior", "noise_sd"):
            idata[group] = idata[group].to_dataset() * 0
    assert shape_of(few) == shape_of(many)
    assert len(pickle.dumps(few)) == len(pickle.dumps(many))


@pytest.mark.parametrize(
    ("make", "settings", "neighbours"),
    [
        (build, DAMPED, "add_remove"),
        (bumps, DAMPED, "replace_one"),
        (build, LITERAL, "replace_one"),
    ],
)
def test_epsilon_is_that_of_the_releases_that_were_made(make, settings, neighbours):
    idata = fitted(make, neighbours=neighbours, **settings)
    release = release_from("any", "poisson", 0.5, 1.0, noise_multiplier=2.0, count=7)
    epsilon = plan_from((release,), neighbours, 1e-5, "pld", settings.get("num_records")).epsilon()
    assert idata["privacy"].attrs["epsilon"] == epsilon
    assert len(idata["fit_stats"]["release"]) == release.count
