"""Every bad input is refused with a sentence, before any budget is spent."""

import dataclasses
import inspect
import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp import PrivacyWarning
from pymc_dp.calibration.budget import Budget
from pymc_dp.driver.fit import set_up
from pymc_dp.papers import elbo_gradient_steps
from pymc_dp.privacy.contribution import FactoredContribution
from pymc_dp.privacy.wall import PrivacyWall
from tests import zoo

N = 24
X = np.random.default_rng(0).normal(size=(N, 2))
Y = X[:, 0] + 1.0
GOOD = {"n": 6, "noise_multiplier": 2.0, "delta": 1e-5, "draws": 2, "progressbar": False}


def regression():
    return zoo.line(X, Y)


def by_hook(model, **settings):
    with model:
        return pm.fit(**{"method": "dp_advi", **settings})


def by_name(model, **settings):
    return pymc_dp.fit(model=model, **settings)


@pytest.fixture
def fit(no_release):
    return lambda model, **settings: by_name(model, **{**GOOD, **settings})


CARRIERS = ["start", "start_sigma", "inf_kwargs", "score", "more_updates", "more_obj_params"]
BUDGETS = [
    ({"epsilon": 1.0}, "Give exactly one of epsilon"),
    ({"noise_multiplier": None}, "Give exactly one of epsilon"),
    *[
        ({"noise_multiplier": None, "epsilon": bad}, "epsilon=.* must be above 0")
        for bad in (0, -1.0, math.nan, -math.inf)
    ],
    *[({"noise_multiplier": bad}, "noise_multiplier=") for bad in (-1.0, math.nan, math.inf)],
    ({"noise_multiplier": 0.29, "noise_aware": False}, "not reliable below 0.3"),
    ({"delta": None}, "delta= is missing"),
    *[({"delta": bad}, "strictly between 0 and 1") for bad in (0, -1e-5, 1, 2, math.nan)],
    ({"delta": 1e-12}, "too small for accountant='pld'"),
]
TERMS = [
    ({"sampling": "shuffled"}, "Shuffled epochs are not offered"),
    ({"neighbours": "edit"}, "neighbours='edit'"),
    ({"accountant": "moments"}, "accountant='moments'"),
    ({"neighbours": "replace_one", "accountant": "rdp", "n": 40}, "No proof covers"),
    ({"sampling": "full", "sample_rate": 0.5}, "takes every row"),
    ({"num_records": 0}, "num_records=0"),
]
SETTINGS = [
    *[({"clip_norm": bad}, "clip_norm=") for bad in (0, -1.0, math.nan)],
    ({"clip_norm": math.inf}, "give a finite clip_norm"),
    ({"clip_norm": lambda t: 1.0 - t}, "clip_norm=0"),
    *[({"sample_rate": bad}, "sample_rate=") for bad in (0, -0.1, 1.1, math.nan)],
    ({"sample_rate": lambda t: 0.6 * (t + 1)}, "sample_rate=1.2"),
    *[({"n": bad}, "n=") for bad in (0, -3, 2.5, math.nan, math.inf)],
    *[({"draws": bad}, "draws=") for bad in (0, -1, 1.5, math.nan)],
    *[({"obj_n_mc": bad}, "obj_n_mc=") for bad in (0, 1.5)],
    ({"callbacks": print}, "callbacks="),
    ({"callbacks": [None]}, "callbacks="),
    ({"backend": "gpu"}, "backend='gpu'"),
    ({"aligned": False, "method": "dp_fullrank_advi"}, "aligned=False"),
    ({"noise": 0.0}, "'noise'"),
    ({"method": "vb"}, "method='vb' is unknown"),
    ({"public": ["nothing"]}, "public= names `nothing`"),
    ({"public_start": {"nothing": 1.0}}, "`nothing`"),
    ({"public_start": {"b": np.zeros(3)}}, "`b`"),
    ({"public_start": {"b": [math.nan, 1.0]}}, "`b`"),
]


@pytest.mark.parametrize("keyword", [*CARRIERS, "total_grad_norm_constraint"])
def test_what_would_carry_data_is_refused(fit, keyword):
    with pytest.raises(ValueError, match=f"{keyword}= is refused"):
        fit(regression(), **{keyword: {"b": np.zeros(2)}})


@pytest.mark.parametrize(("settings", "sentence"), [*BUDGETS, *TERMS, *SETTINGS])
@pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")
def test_a_setting_out_of_range_is_refused(fit, settings, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        fit(regression(), **settings)


def groups():
    with pm.Model() as model:
        g = pm.Normal("g", shape=8)
        pm.Normal("y", g[pm.Data("group", np.arange(N) % 8)], 1.0, observed=Y)
    return model


WARNED = [
    (regression, {"delta": 0.1, "num_records": N}, "not below 1/num_records"),
    (regression, {"noise_multiplier": 0.45}, "below 0.5"),
    (groups, {}, "groups of fewer than 5 records"),
]


@pytest.mark.parametrize("call", [by_hook, by_name])
@pytest.mark.parametrize(("model", "settings", "sentence"), WARNED)
def test_a_weak_guarantee_is_warned_about_and_the_warning_is_not_stored(
    call, model, settings, sentence
):
    with pytest.warns(PrivacyWarning, match=sentence):
        idata = call(model(), **{**GOOD, **settings})
    stored = " ".join(str(node.attrs) for node in idata.subtree)
    assert "fewer than" not in stored
    assert "warn" not in stored.lower()


def test_a_graph_that_a_backend_cannot_run_is_refused_before_any_release(monkeypatch):
    def cannot_run(records, backend, draws):
        def prepare(batch, context):
            raise NotImplementedError("no rule for this operation")

        return FactoredContribution(2, 0, norms=None, weighted_sum=None, prepare=prepare)

    monkeypatch.setattr(PrivacyWall, "release", lambda *a, **k: pytest.fail("released"))
    monkeypatch.setattr(elbo_gradient_steps, "gradient", cannot_run)
    with pytest.raises(NotImplementedError, match="no rule for this operation.*Nothing was"):
        pymc_dp.fit(model=regression(), **{**GOOD, "n": 40})


OF_FIT = inspect.signature(pymc_dp.fit).parameters


@pytest.mark.parametrize("field", dataclasses.fields(Budget), ids=lambda field: field.name)
def test_a_term_is_a_keyword_of_fit_with_its_default(field):
    assert OF_FIT[field.name].default == field.default
    assert OF_FIT[field.name].annotation == field.type


def test_the_refusal_of_a_misspelt_keyword_lists_all_that_a_fit_takes():
    with pytest.raises(TypeError, match="'progresbar' is an unknown keyword") as refusal:
        set_up(None, "dp_advi", None, epsilon=1.0, delta=1e-5, progresbar=False)
    every = OF_FIT.keys() - {"options"} | {"obj_n_mc", "clip_norm"}
    assert not [name for name in every if f"{name!r}" not in str(refusal.value)]
