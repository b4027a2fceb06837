"""Checks say what is wrong with a fit where something is, and nothing where all is well."""

import json
import math

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp
from pymc_dp.methods.method import Doubt, Kind
from tests import zoo
from tests.checking.models import QUIETLY, TERMS, bent, coin, columns, result

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")


def model_that_is_right():
    data, rng = columns(), np.random.default_rng(1)
    X = data["X"]
    data["y"] = X @ [1.0, -1.0] + 1.2 * (X[:, 0] ** 2 - 1) + 1.2 * rng.normal(size=len(X))
    return bent(data)


def test_a_good_fit_is_fine():
    model = model_that_is_right()
    checks = pymc_dp.check(pymc_dp.fit(model=model, **TERMS | {"epsilon": 16.0}, **QUIETLY), model)
    assert {one.verdict for one in checks.checks} == {"fine"}
    names = ["steps", "noise", "hidden", "clipping", "outcomes", "prior"]
    assert [one.name for one in checks.checks] == names
    assert not any(one.advice for one in checks.checks)


@pytest.fixture(scope="module")
def starved():
    """Many latents, few records and a small budget."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 8))
    model = zoo.line(X, rng.normal(size=150))
    idata = pymc_dp.fit(model=model, epsilon=0.2, delta=1e-5, **QUIETLY)
    return model, idata


def test_a_starved_fit_is_told_as_such(starved):
    model, idata = starved
    checks = pymc_dp.check(idata, model)
    assert checks["hidden"].verdict == "look"
    assert "of 8 directions" in checks["hidden"].finding
    assert checks["prior"].verdict == "look"
    assert checks["prior"].value > 0.9
    assert "`b[" in checks["prior"].finding
    assert all(one.name in str(checks) for one in checks.checks)


@pytest.mark.parametrize(("name", "kind"), [("hidden", Kind.HIDDEN), ("clipping", Kind.UNCENTRED)])
def test_a_verdict_follows_from_the_kind_of_a_doubt_and_not_from_its_text(starved, name, kind):
    _, idata = starved
    told = idata.copy(deep=True)
    told["privacy"].attrs["doubts"] = json.dumps([Doubt(kind, ("b",), "Told anew.")._asdict()])
    assert pymc_dp.check(told)[name].verdict == "look"


def test_skewed_outcomes_of_a_normal_model_are_seen():
    found = pymc_dp.check(result(bent))["outcomes"]
    assert found.verdict == "look"
    assert "Choose a likelihood of their shape" in found.advice


def test_the_share_of_noise_is_that_of_the_summary():
    found = pymc_dp.check(result(bent))["noise"]
    assert found.value == pytest.approx(
        pymc_dp.summary(result(bent))["noise_share"].max(), rel=0.06
    )
    assert set(found.values) == {"b[0]", "b[1]", "c", "s"}


def test_a_mean_that_still_moves_is_seen():
    idata = result(bent).copy(deep=True)
    idata["fit_stats"]["mean_path"].values[-2, 2] -= 1.0
    found = pymc_dp.check(idata)["steps"]
    assert found.verdict == "look"
    assert "`c`" in found.finding
    assert "n=" in found.advice


def test_what_is_not_known_is_said_to_be():
    idata = pymc_dp.fit(model=coin(), method="dp_sgld", **TERMS, **QUIETLY)
    checks = pymc_dp.check(idata)
    assert {one.verdict for one in checks.checks} == {"not known"}
    assert all(math.isnan(one.value) for one in checks.checks)
    assert "check(idata, model)" in checks["prior"].finding


def test_other_trees_and_models_are_refused():
    with pytest.raises(ValueError, match="was not made by pymc_dp"):
        pymc_dp.check(xr.DataTree())
    released = pymc_dp.ppc(result(coin), coin(), bins=2, **TERMS)
    with pytest.raises(ValueError, match="holds no posterior"):
        pymc_dp.check(released)
    for name in "pq":
        with pm.Model() as other:
            pm.Normal(name, 0, 1, shape=3)
        with pytest.raises(ValueError, match=f"holds no `{name}` .*: give the model that was fit"):
            pymc_dp.check(result(coin), other)


def test_nothing_of_the_data_is_read(monkeypatch):
    model = bent(columns())
    checks = pymc_dp.check(result(bent), model)
    for name in model.named_vars:
        if name == "X":
            model[name].set_value(np.full((2, 2), np.nan))
    assert pymc_dp.check(result(bent), model) == checks
