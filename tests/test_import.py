"""Importing pymc_dp adds nearly nothing to importing PyMC: what is heavy is loaded on first use."""

import json
import subprocess
import sys
from functools import cache

import pytest

import pymc_dp

# what may be loaded beside the standard library and what PyMC loads
LIGHT = {"pymc_dp", "lazy_loader", "packaging"}
# what each loads after those before it
NAMES = {"import pymc_dp": None, "pymc_dp.audit": "scipy", "pymc_dp.summary": "arviz"}
SCRIPT = """
import sys, time, json
for statement in ["import pymc", *sys.argv[1:]]:
    before, loaded = time.perf_counter(), set(sys.modules)
    exec(statement)
    print(json.dumps([time.perf_counter() - before, sorted(set(sys.modules) - loaded)]))
"""


@cache
def loaded_by(*statements):
    """Return what each statement loads in one fresh process, PyMC first, and its seconds."""
    command = [sys.executable, "-c", SCRIPT, *statements]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    return [(seconds, set(names)) for seconds, names in map(json.loads, out.stdout.splitlines())]


def packages_of(modules):
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names


def test_importing_loads_no_heavy_package():
    _, (_, modules), *_ = loaded_by(*NAMES)
    assert packages_of(modules) <= LIGHT
    rooms = {name.split(".")[1] for name in modules if name.startswith("pymc_dp.")}
    assert rooms == {"driver"}


@pytest.mark.parametrize("statement", [name for name in NAMES if NAMES[name]])
def test_a_name_loads_what_it_needs_and_would_show_if_it_were_loaded_at_once(statement):
    _, *loaded = loaded_by(*NAMES)
    [modules] = [of for name, (_, of) in zip(NAMES, loaded, strict=True) if name == statement]
    assert NAMES[statement] in packages_of(modules)


def test_a_plot_loads_what_plots_need_and_would_show_if_it_were_loaded_at_once():
    *_, (_, modules) = loaded_by("import pymc_dp", "pymc_dp.fit", "pymc_dp.plot_noise")
    assert "arviz_plots" in packages_of(modules)


def test_fitting_loads_no_plots_and_no_papers():
    _, *loaded, _ = loaded_by("import pymc_dp", "pymc_dp.fit", "pymc_dp.plot_noise")
    modules = set.union(*(modules for _, modules in loaded))
    assert not {"arviz", "arviz_plots", "matplotlib", "jax"} & packages_of(modules)
    assert "pymc_dp.methods.registry" in modules
    assert not any(name.startswith("pymc_dp.papers") for name in modules)


@pytest.mark.slow
def test_importing_takes_a_small_share_of_pymcs_time():
    def added():
        (of_pymc, _), (time_added, _) = loaded_by.__wrapped__("import pymc_dp")
        return time_added, of_pymc

    measured = [added() for _ in range(3)]
    assert min(mine / pymcs for mine, pymcs in measured) < 0.15
    assert min(mine for mine, _ in measured) < 0.5


def test_every_public_name_is_there():
    assert set(pymc_dp.__all__) <= set(dir(pymc_dp))
    for name in pymc_dp.__all__:
        assert getattr(pymc_dp, name).__module__.startswith("pymc_dp.")
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = pymc_dp.no_such_name


def test_all_public_names_can_be_imported_at_once():
    names = {}
    exec("from pymc_dp import *", names)
    assert set(pymc_dp.__all__) <= names.keys()


def test_the_stub_lists_what_it_imports():
    from ast import ImportFrom, literal_eval, parse
    from pathlib import Path

    stub = parse(Path(pymc_dp.__file__).with_suffix(".pyi").read_text())
    imported = [a.name for node in stub.body if isinstance(node, ImportFrom) for a in node.names]
    [listed] = [
        literal_eval(node.value)
        for node in stub.body
        if getattr(getattr(node, "targets", [None])[0], "id", None) == "__all__"
    ]
    assert sorted(imported) == sorted(listed) == sorted(pymc_dp.__all__)
