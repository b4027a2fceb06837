"""Draws of a prior run how its author says that it is drawn: only where that can hold no data."""

import sys

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.engine.posterior import prior_as_written
from tests.zoo import separated

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")

GROUP = np.arange(40) % 4
SECRET = np.random.default_rng(0).normal(3.0, 1.0, size=40)
TERMS = {"epsilon": 4, "delta": 1e-5, "backend": "python", "progressbar": False}


def by_a_function():
    def draw(mu, rng=None, size=None):
        return rng.normal(mu + SECRET.mean(), 1.0, size=size)

    return pm.CustomDist("h", 0.0, logp=lambda v, mu: -((v - mu) ** 2) / 2, random=draw)


def found(mean_of_groups, **settings):
    with pm.Model() as model:
        b = pm.Normal("b", mean_of_groups(), 1, shape=4)
        pm.Normal("y", b[pm.Data("g", GROUP)], 1, observed=SECRET)
    return prior_as_written(separated(model, **settings)[0])


def test_a_prior_that_is_drawn_by_code_of_its_author_is_not_drawn():
    apart = found(by_a_function)
    assert not apart.records.prior_draws
    assert found(by_a_function, public=["CustomDist_h"]).records.prior_draws
    assert found(lambda: pm.Normal("h")).records.prior_draws
    assert apart.prior_draws[:, 0].mean() == pytest.approx(0, abs=0.3)


def test_without_the_check_the_draws_would_hold_data(monkeypatch):
    separate = sys.modules["pymc_dp.model.separate"]
    monkeypatch.setattr(separate, "unproved_in", lambda graphs, **_: {})
    drawn = found(by_a_function).prior_draws[:, 0]
    assert drawn.mean() == pytest.approx(SECRET.mean(), abs=0.3)


def checked(**settings):
    """Check the prior of a model that was fitted."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("b", by_a_function(), 1), 1, observed=SECRET)
    idata = pymc_dp.fit(model=model, **TERMS, **settings)
    return pymc_dp.check(idata, model)["prior"]


def test_a_check_does_not_draw_it_unless_it_is_public(monkeypatch):
    found = checked()
    assert found.verdict == "not known"
    assert "It holds `SECRET`" in found.finding
    assert not found.values
    assert checked(public=["CustomDist_h"]).verdict != "not known"
    monkeypatch.setattr("pymc_dp.checking.check.unproved_in", lambda graphs: {})
    assert set(checked().values) == {"b", "h"}  # the planted fault
