"""Which backend a fit runs on."""

import numpy as np

import pymc_dp
from pymc_dp.model import compilation
from tests import zoo


def test_a_fit_runs_in_python_unless_another_backend_is_asked_for(monkeypatch):
    asked, mode = set(), compilation.compile_mode
    monkeypatch.setattr(compilation, "compile_mode", lambda name: asked.add(name) or mode(name))
    pymc_dp.plan(zoo.coin(np.resize([0, 1, 1], 60)), epsilon=1, delta=1e-5, num_records=60)
    assert asked == {"python"}
