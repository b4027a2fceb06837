"""The keywords that a budget is read from are typed once, and are those of a fit."""

import dataclasses
import inspect

import pytest

import pymc_dp
from pymc_dp.calibration.budget import Budget
from pymc_dp.driver.fit import set_up

OF_FIT = inspect.signature(pymc_dp.fit).parameters


@pytest.mark.parametrize("field", dataclasses.fields(Budget), ids=lambda field: field.name)
def test_a_term_is_a_keyword_of_fit_with_its_default(field):
    assert OF_FIT[field.name].default == field.default
    assert OF_FIT[field.name].annotation == field.type


def test_the_refusal_of_a_misspelt_keyword_lists_all_that_a_fit_takes():
    with pytest.raises(TypeError, match="'progresbar' is an unknown keyword") as refusal:
        set_up(None, "dp_advi", None, epsilon=1.0, delta=1e-5, progresbar=False)
    every = OF_FIT.keys() - {"options"} | {"adaptive_clip", "clip_norm"}
    assert not [name for name in every if f"{name!r}" not in str(refusal.value)]
