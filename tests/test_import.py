"""Importing pymc_dp adds nearly nothing to importing PyMC: what is heavy is loaded on first use."""

import json
import subprocess
import sys

import pytest

import pymc_dp

# what may be loaded beside the standard library and what PyMC loads
LIGHT = {"pymc_dp", "lazy_loader", "packaging"}
STATEMENTS = ["import pymc", "import pymc_dp", "pymc_dp.fit", "pymc_dp.plot_noise"]
SCRIPT = """
import sys, json
for statement in sys.argv[1:]:
    loaded = set(sys.modules)
    exec(statement)
    print(json.dumps(sorted(set(sys.modules) - loaded)))
"""


def packages_of(modules):
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names


def test_what_is_heavy_is_loaded_on_first_use():
    command = [sys.executable, "-c", SCRIPT, *STATEMENTS]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    _, by_import, by_fit, by_plot = map(json.loads, out.stdout.splitlines())
    assert packages_of(by_import) <= LIGHT
    assert {name.split(".")[1] for name in by_import if name.startswith("pymc_dp.")} == {"driver"}
    assert not {"arviz", "arviz_plots", "matplotlib", "jax"} & packages_of(by_fit)
    assert "pymc_dp.methods.registry" in by_fit
    assert not any(name.startswith("pymc_dp.papers") for name in by_fit)
    assert "arviz_plots" in packages_of(by_plot)  # which would show if it were loaded at once


def test_every_public_name_is_there():
    assert set(pymc_dp.__all__) <= set(dir(pymc_dp))
    for name in pymc_dp.__all__:
        assert getattr(pymc_dp, name).__module__.startswith("pymc_dp.")
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = pymc_dp.no_such_name
