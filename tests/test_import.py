"""Importing pymc_dp adds nearly nothing to importing PyMC: what is heavy is loaded on first use."""

import json
import subprocess
import sys

import pytest

import pymc_dp

# what may be loaded beside the standard library and what PyMC loads
LIGHT = {"pymc_dp", "lazy_loader", "packaging"}
SCRIPT = """
import sys, time, json
before = time.perf_counter()
import pymc
between, loaded = time.perf_counter(), set(sys.modules)
{statement}
after = time.perf_counter()
print(json.dumps([sorted(set(sys.modules) - loaded), between - before, after - between]))
"""


def loaded_by(statement):
    """Return what a statement loads after PyMC in a fresh process, and both times in seconds."""
    script = SCRIPT.format(statement=statement)
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules, of_pymc, added = json.loads(out.stdout)
    return {name.partition(".")[0] for name in modules}, set(modules), of_pymc, added


def heavy(statement):
    packages, _, _, _ = loaded_by(statement)
    return packages - sys.stdlib_module_names - LIGHT


def test_importing_loads_no_heavy_package():
    packages, modules, _, _ = loaded_by("import pymc_dp")
    assert packages - sys.stdlib_module_names <= LIGHT
    rooms = {name.split(".")[1] for name in modules if name.startswith("pymc_dp.")}
    assert rooms == {"driver"}


@pytest.mark.parametrize(
    ("statement", "package"),
    [
        ("import pymc_dp; pymc_dp.plot_noise", "arviz_plots"),
        ("import pymc_dp; pymc_dp.summary", "arviz"),
        ("import pymc_dp; pymc_dp.audit", "scipy"),
    ],
)
def test_a_name_loads_what_it_needs_and_would_show_if_it_were_loaded_at_once(statement, package):
    assert package in heavy(statement)


def test_fitting_loads_no_plots():
    assert not {"arviz", "arviz_plots", "matplotlib", "jax"} & heavy("import pymc_dp; pymc_dp.fit")


@pytest.mark.slow
def test_importing_takes_a_small_share_of_pymcs_time():
    def added():
        _, _, of_pymc, time_added = loaded_by("import pymc_dp")
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
