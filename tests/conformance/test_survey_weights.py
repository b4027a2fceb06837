"""A fit with survey weights keeps the promises of fits without."""

from functools import cache

import numpy as np
import pytest

import pymc_dp
from pymc_dp.tables.weights import SurveyWeights
from tests.conformance import checks
from tests.conformance.model_classes import draw_data, model_of
from tests.conformance.recording import record

WEIGHTS = SurveyWeights("weight", upper=2.0)
# both outcomes; drawn ones and a dispersion; counts; scores that are formed
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("log_linear", "network")]
CLASSES = ["logistic", "linear", *SLOW]
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")


@cache
def weighted(name, **more):
    data = draw_data(checks.ROWS, seed=0)
    columns = {column: data[column] for column in ("weight", *more.values())}
    return record(model_of(name, data, **columns), "dp_advi", weights=WEIGHTS, **more)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("unit", [False, True])
def test_no_record_or_household_moves_a_sum_by_more_than_the_clip_norm(name, unit):
    found = weighted(name, **({"unit": "person_id"} if unit else {}))
    checks.check_noise(found)
    # no record has the largest score, curvature and products at once
    assert checks.check_sensitivity(found, name, unit=unit) > 0.75


def shares_of_any_size(weights, values):
    return values / weights.upper


def test_vectors_that_grow_with_the_weight_are_rejected(monkeypatch):
    """The planted fault: nothing holds a weight to the largest one, nor a vector to its norm."""
    found = weighted("logistic")
    [scores] = [c for c in found.contributions.values() if c.jumps]
    batch = {name: column.zeros(2) for name, column in found.spec.items()}
    batch["weight"][:] = 8.0
    point = found.exchanges[0].query.context

    def longest():
        given = batch | scores.draw(batch, point, np.random.default_rng(0))
        total = scores.weighted_sum(scores.prepare(given, point), point, np.array([1.0, 0.0]))
        return float(np.linalg.norm(total))

    bound = scores.norms(scores.prepare(batch | scores.draw(batch, point, None), point), point)[0]
    assert longest() <= bound
    monkeypatch.setattr(SurveyWeights, "shares", shares_of_any_size)
    assert longest() > bound


def test_weights_enter_through_releases_alone():
    found = weighted("linear")
    other = draw_data(checks.OTHER_ROWS, seed=5)
    other["weight"] = other["weight"] ** 2 / 2
    model = model_of("linear", other, weight=other["weight"])
    answers = [exchange.answer for exchange in found.exchanges]
    checks.check_same_result(found, record(model, "dp_advi", answers, weights=WEIGHTS))


def test_no_weight_is_saved(tmp_path):
    found = weighted("linear")
    checks.check_nothing_of_the_data_is_saved(found, tmp_path)
    pymc_dp.save(found.idata, tmp_path / "again.nc")
    content = (tmp_path / "again.nc").read_bytes()
    for weight in draw_data(checks.ROWS, seed=0)["weight"]:
        assert weight.tobytes() not in content
        assert (weight / WEIGHTS.upper).tobytes() not in content
