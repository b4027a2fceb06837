"""Operations are proved for the versions of PyMC and PyTensor in which they were read.

Soundness, rule 40. A red test here asks for reading, not for a larger number in the file.
"""

import re
import tomllib
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pymc_dp
from pymc_dp.model import graphs

TEXT = files("pymc_dp.model").joinpath("proved_operations.txt").read_text()
PROVED = dict(re.findall(r"^(pymc|pytensor)==(\d+\.\d+)$", TEXT, flags=re.MULTILINE))


def minor(text):
    return ".".join(text.split(".")[:2])


def is_newer(installed, proved):
    return tuple(map(int, minor(installed).split("."))) > tuple(map(int, proved.split(".")))


@pytest.mark.parametrize("library", ["pymc", "pytensor"])
def test_no_version_is_newer_than_the_one_in_which_operations_were_read(library):
    assert not is_newer(version(library), PROVED[library])


def test_a_newer_minor_version_would_be_noticed():
    """The planted fault."""
    for proved in PROVED.values():
        major, last = map(int, proved.split("."))
        assert is_newer(f"{major}.{last + 1}.0", proved)
        assert is_newer(f"{major + 1}.0.0", proved)
        assert not is_newer(f"{proved}.9", proved)


@pytest.mark.parametrize("library", ["pymc", "pytensor"])
def test_the_package_asks_for_versions_below_the_next_major_one(library):
    project = tomllib.loads((Path(pymc_dp.__file__).parents[1] / "pyproject.toml").read_text())
    needed = {x.name: x for x in map(Requirement, project["project"]["dependencies"])}
    assert PROVED[library] in needed[library].specifier
    assert f"{int(PROVED[library].split('.')[0]) + 1}.0" not in needed[library].specifier


def test_every_operation_of_the_list_exists_and_is_listed_once():
    lines = re.findall(r"^(?:pymc|pytensor)[.\w]+: (.+)$", TEXT, flags=re.MULTILINE)
    assert len(graphs.LISTED) == sum(len(line.split()) for line in lines)
