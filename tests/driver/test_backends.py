"""Which backend a fit runs on."""

import numpy as np
import pytest

import pymc_dp
from pymc_dp.compiling import compile
from pymc_dp.driver import run as driver
from pymc_dp.driver.fit import set_up
from tests import zoo

BUDGET = {"epsilon": 1, "delta": 1e-5}


def coin(rows):
    return zoo.coin(np.resize([0, 1, 1], rows))


STEPS = {"sample_rate": 0.5, "clip_norm": 1.0, "epsilon": np.inf, "delta": 1e-5}


def test_a_fit_runs_in_python_unless_another_backend_is_asked_for(monkeypatch):
    asked, mode = set(), compile.compile_mode
    monkeypatch.setattr(compile, "compile_mode", lambda name: asked.add(name) or mode(name))
    pymc_dp.plan(coin(60), 10_000, num_records=10**9, **STEPS | {"delta": 1e-10})
    assert asked == {"python"}


@pytest.mark.parametrize("backend", ["numba", "c"])
def test_rounds_run_in_python_and_are_exact_on_any_backend(monkeypatch, backend):
    """Other backends would compile their scores and nothing else: most of a round is NumPy's."""
    asked, mode = set(), compile.compile_mode
    monkeypatch.setattr(compile, "compile_mode", lambda name: asked.add(name) or mode(name))
    compiled = driver.compile_method(set_up(coin(60), "dp_advi", None, **BUDGET), backend)
    assert compiled.is_exact
    assert asked <= {"python"}
