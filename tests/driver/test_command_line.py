"""``python -m pymc_dp`` prints versions, methods and what fits a model; mistakes get sentences."""

import runpy
import sys
from importlib.metadata import version

import pytest

import pymc_dp
from pymc_dp.__main__ import main
from pymc_dp.methods.registry import METHODS

STUDY = """
import numpy as np
import pymc as pm


def build():
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Bernoulli("y", logit_p=pm.Data("X", np.ones((8, 2))) @ b, observed=[0, 1] * 4)
    return model


def series():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.AR("walk", [mu], init_dist=pm.Normal.dist(0, 1), observed=[0.0, 1.0, 2.0])
    return model


def needs(rows):
    return build()


model = build()
number = 3
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    (tmp_path / "a_study.py").write_text(STUDY)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("a_study", None)


def test_versions_are_those_of_the_packages(capsys):
    assert main(["--version"]) == 0
    output = dict(line.split() for line in capsys.readouterr().out.splitlines())
    names = ["pymc-dp", "pymc", "pytensor", "arviz", "dp-accounting", "autodp"]
    assert output == {name: version(name) for name in names}


def test_all_methods_are_listed_with_what_they_fit(capsys):
    assert main(["--explain"]) == 0
    head, *rows = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert head.split() == ["method", "fits"]
    assert {row.split()[0] for row in rows} == set(METHODS)


@pytest.mark.parametrize("name", ["model", "build"])
def test_a_model_or_its_function_is_explained(study, name, capsys):
    assert main(["--explain", f"a_study:{name}"]) == 0
    import a_study

    assert capsys.readouterr().out == f"{pymc_dp.explain(a_study.model)}\n"


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("a_study", "model= must be a pm.Model, not an object of type module"),
        ("no_such_study:model", "`no_such_study:model` gives no model (ModuleNotFoundError"),
        ("a_study:other", "(AttributeError: module 'a_study' has no attribute 'other')"),
        ("a_study:number", "model= must be a pm.Model, not an object of type int"),
        ("a_study:needs", "`a_study:needs` gives no model (TypeError: needs() missing 1"),
        ("a_study:series", "`walk`"),
    ],
)
def test_what_is_no_model_is_refused_with_a_sentence(study, address, sentence, capsys):
    assert main(["--explain", address]) == 1
    output = capsys.readouterr()
    assert sentence in output.err
    assert output.out == ""
    assert "Traceback" not in output.err


def test_it_runs_as_a_module(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["pymc_dp", "--version"])
    monkeypatch.delitem(sys.modules, "pymc_dp.__main__")
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("pymc_dp", run_name="__main__", alter_sys=True)
    output = capsys.readouterr()
    assert output.out.startswith(f"pymc-dp {pymc_dp.__version__}\n")
    assert output.err == ""
