"""What holds for the spec of every method, so that a new one cannot forget it."""

import inspect
import json
import typing

import numpy as np
import pytest

import pymc_dp
from pymc_dp.accounting.plan import Poisson
from pymc_dp.driver.fit import set_up
from pymc_dp.methods.registry import METHODS, method_named
from tests import zoo

TERMS = {"sampling": Poisson, "num_records": None, "noisy": True}
WRONG = {bool: "yes", int: 1.5, float: "many"}


def regression():
    return zoo.line(np.random.default_rng(0).normal(size=(30, 2)), np.zeros(30), x="x")


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_found_by_its_name_in_any_case(name):
    assert method_named(name.upper()) is METHODS[name]
    assert METHODS[name].name == name


@pytest.mark.parametrize("spec", METHODS.values(), ids=METHODS.keys())
def test_options_have_defaults_types_and_a_line_of_documentation(spec):
    of_fit = inspect.signature(pymc_dp.fit).parameters
    spec.options(**TERMS)
    for name, field in spec.options.keywords().items():
        assert name not in of_fit
        assert field.metadata["doc"].strip()
        for kind in WRONG.keys() & {field.type, *typing.get_args(field.type)}:
            with pytest.raises((TypeError, ValueError), match=f"{name}="):
                spec.options(**TERMS, **{name: WRONG[kind]})


@pytest.mark.parametrize("name", METHODS)
def test_every_method_states_its_tuned_constants(name):
    budget = {"epsilon": 1.0, "delta": 1e-5} if METHODS[name].private else {}
    constants = set_up(regression(), name, None, **budget).method.constants()
    assert constants
    assert json.loads(json.dumps(constants)).keys() == constants.keys()
    assert all(constants.values())
