"""Latents of persons that are integrated out: the promises of a method hold for whole persons."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp.contributions.local_latents as local_latents
from tests.conformance import checks
from tests.conformance.model_classes import draw_data, model_of
from tests.conformance.recording import record

BY_PERSON = {"unit": "person_id"}


@pytest.fixture(scope="module", params=["dp_advi", "dp_sgld"])
def method(request):
    return request.param


@pytest.fixture(scope="module")
def found(method):
    return record(model_of("persons", draw_data(checks.ROWS, seed=0)), method, **BY_PERSON)


def test_every_release_carries_the_noise_of_the_plan(found):
    checks.check_noise(found)


def test_data_enter_through_releases_alone(found, method):
    other = model_of("persons", draw_data(checks.OTHER_ROWS, seed=5))
    answers = [exchange.answer for exchange in found.exchanges]
    checks.check_same_result(found, record(other, method, answers, **BY_PERSON))


def test_no_person_moves_a_sum_by_more_than_the_clip_norm(found):
    assert checks.check_sensitivity(found, "persons", unit=True) > 0.9


def test_nothing_of_the_data_is_saved(found, tmp_path):
    checks.check_nothing_of_the_data_is_saved(found, tmp_path)
    assert "own" not in found.idata["posterior"]
    persons = len(np.unique(draw_data(checks.ROWS, seed=0)["person_id"]))
    assert all(persons not in node.sizes.values() for node in found.idata.subtree)


@pytest.mark.parametrize("known", [False, True])
def test_numbers_that_equal_the_number_of_records_leave_no_trace(known):
    """A size that equals a number of the author's would be counted once with it."""
    listed = []
    for rows in (20, 21):
        y = np.zeros(rows)
        with pm.Model() as model:
            u = pm.Normal("u", pm.Normal("m"), 20.0 if known else 7.0, shape=rows)
            pm.Normal("y", u, 20.0, observed=y)
        found = record(model, "dp_advi").idata["privacy"].attrs["trusted_constants"]
        listed.append(found)
    assert listed[0] == listed[1]
    assert "likelihood of y" in listed[0]


def test_modes_that_start_from_the_persons_before_are_rejected(found, monkeypatch):
    """A search that shares what it found among persons lets one of them move the others."""
    exact = local_latents.find_modes

    def shared(density, here):
        modes, spread = exact(density, here)
        return modes + 30 * np.sin(modes.sum()), spread

    monkeypatch.setattr(local_latents, "find_modes", shared)
    with pytest.raises(AssertionError):
        checks.check_sensitivity(found, "persons", unit=True)
