"""Common mistakes are refused with a sentence that says what to do, before any budget is spent."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp
from tests import zoo

X = np.random.default_rng(0).normal(size=(20, 2))
GOOD = {"n": 6, "epsilon": 1.0, "delta": 1e-5, "progressbar": False, "backend": "python"}


@pytest.fixture(scope="module")
def model():
    return zoo.odds(X, [0, 1] * 10)


SLIPS = [
    ({"epsilon": "1"}, "epsilon='1' must be a number, without quotes"),
    ({"epsilon": None, "noise_multiplier": "2"}, "noise_multiplier='2' must be a number"),
    ({"sample_rate": "all"}, "sample_rate='all' must be a number"),
    ({"obj_optimizer": "adam"}, "obj_optimizer='adam' must be an optimizer of PyMC, such as"),
    ({"public": "treatment"}, "Give a list of names, such as public="),
    ({"unit": np.arange(20)}, "unit= must be the name of a pm.Data, not ndarray: put the codes"),
    ({"data": X}, "data= must be a mapping, such as .*, not ndarray"),
    ({"model": "model"}, "model= must be a pm.Model, not an object of type str: build the model"),
    ({"model": None}, "There is no model: give model=, or call this inside `with model:`"),
]


@pytest.mark.parametrize(("slip", "sentence"), SLIPS)
@pytest.mark.parametrize("call", [pymc_dp.fit, pymc_dp.plan])
def test_a_mistake_in_a_call_is_refused_with_a_sentence(model, call, slip, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        call(**{"model": model, **GOOD, **slip})


def test_what_is_no_model_cannot_be_explained_or_predicted(model):
    with pytest.raises(TypeError, match="There is no model"):
        pymc_dp.explain()
    with pytest.raises(TypeError, match="model= must be a pm.Model, not an object of type int"):
        pymc_dp.explain(3)
    with pytest.raises(TypeError, match="model= must be a pm.Model, not an object of type dict"):
        pymc_dp.predict(model, {"X": X})


READERS = [
    pymc_dp.privacy_report,
    pymc_dp.summary,
    pymc_dp.plot_privacy,
    pymc_dp.plot_noise,
    lambda path: pymc_dp.save(path, "elsewhere.nc"),
]


@pytest.mark.parametrize("read", READERS)
def test_what_is_no_tree_is_no_result(read):
    with pytest.raises(TypeError, match="A result of pymc_dp.fit is needed, .* not str"):
        read("result.nc")


OF_RESULT_AND_MODEL = {
    "ppc": lambda *both: pymc_dp.ppc(*both, epsilon=1, delta=1e-5),
    "score": lambda *both: pymc_dp.score(*both, epsilon=1, delta=1e-5),
    "several scores": lambda *both: pymc_dp.score({"a": both}, data={}, epsilon=1, delta=1e-5),
    "effect": lambda *both: pymc_dp.effect(*both, {"X": [0, 1]}, epsilon=1, delta=1e-5),
    "check": pymc_dp.check,
}


@pytest.mark.parametrize("call", OF_RESULT_AND_MODEL.values(), ids=[*OF_RESULT_AND_MODEL])
def test_a_model_before_its_result_is_refused_with_the_order(model, call):
    with pytest.raises(TypeError, match="A result of pymc_dp.fit is needed, before any model, not"):
        call(model, xr.DataTree())


@pytest.mark.parametrize("term", ["epsilon", "delta", "noise_multiplier"])
def test_a_budget_without_a_private_method_is_not_swallowed_by_pymc(model, term):
    sentence = f"is not private and takes no {term}=: call pm.fit\\(method='dp_advi'.* 'vips'"
    with model, pytest.raises(TypeError, match=f"pm.fit without method= {sentence}"):
        pm.fit(3, **{term: 1.0}, progressbar=False)
    with model, pytest.raises(TypeError, match=f"method='advi' {sentence}"):
        pm.fit(3, method="advi", **{term: 1.0}, progressbar=False)


@pytest.mark.parametrize("term", ["epsilon", "noise_multiplier", "ledger", "clip_norm"])
def test_pm_sample_takes_no_private_keyword(model, term):
    sentence = f"pm.sample runs MCMC without privacy and takes no {term}=: call pm.fit"
    with model, pytest.raises(TypeError, match=sentence):
        pm.sample(5, **{term: 1.0})
    with model, pytest.raises(TypeError, match="pm.sample has no method='vips': call pm.fit"):
        pm.sample(5, method="vips")
