"""The keywords that a budget is read from are typed once, and are those of a fit."""

import dataclasses
import inspect

import pytest

import pymc_dp
from pymc_dp.calibration.budget import Budget, FitTerms
from pymc_dp.driver.setup import ModelInputs, sorted_keywords

OF_FIT = inspect.signature(pymc_dp.fit).parameters


@pytest.mark.parametrize("field", dataclasses.fields(FitTerms), ids=lambda field: field.name)
def test_a_term_is_a_keyword_of_fit_with_its_default(field):
    assert OF_FIT[field.name].default == field.default
    assert OF_FIT[field.name].annotation == field.type


def test_a_budget_has_no_terms_of_its_own():
    assert dataclasses.fields(Budget) == dataclasses.fields(FitTerms)


def test_a_misspelt_term_is_an_option_that_no_method_has():
    terms, inputs, options = sorted_keywords({"epsilom": 1.0, "delta": 1e-5, "public": ["x"]})
    assert terms == FitTerms(delta=1e-5)
    assert inputs == ModelInputs(["x"])
    assert options == {"epsilom": 1.0}
    with pytest.raises(TypeError, match="epsilom"):
        FitTerms(epsilom=1.0)
