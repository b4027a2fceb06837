"""Latents of records and of persons that are integrated out leave no trace."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp.contributions.local_latents as local_latents
from tests.conformance import checks
from tests.conformance.model_classes import draw_data, model_of
from tests.conformance.recording import record


@pytest.fixture(scope="module", params=["dp_advi", "dp_sgld"])
def found(request):
    model = model_of("persons", draw_data(checks.ROWS, seed=0))
    return record(model, request.param, unit="person_id")


def test_neither_a_persons_latent_nor_the_number_of_persons_leaves(found):
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
