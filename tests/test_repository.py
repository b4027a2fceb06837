"""What stands beside the code says the same of it: version, date, Pythons, severities."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
RELEASES = re.findall(r"^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", CHANGELOG, flags=re.MULTILINE)
SEVERITIES = ["Critical", "Theoretical", "Negligible"]


def read_yaml(path):
    return pytest.importorskip("yaml").safe_load((ROOT / path).read_text())


def workflows():
    return sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_changelogs_newest_release_is_this_version():
    assert RELEASES[0][0] == PROJECT["version"]
    assert CHANGELOG.index("## [Unreleased]") < CHANGELOG.index(f"## [{RELEASES[0][0]}]")


def test_every_release_lists_changes_of_a_guarantee_first():
    for section in re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[2:]:
        assert re.findall(r"^### (.*)$", section, flags=re.MULTILINE)[0] == "Privacy"


def test_the_citation_is_of_this_version():
    found = read_yaml("CITATION.cff")
    required = {"cff-version", "message", "title", "authors"}  # of Citation File Format 1.2.0
    assert required <= found.keys()
    assert found["cff-version"] == "1.2.0"
    assert (found["version"], found["date-released"]) == RELEASES[0]
    assert found["license"] == PROJECT["license"]


@pytest.mark.parametrize("path", workflows(), ids=lambda path: path.stem)
def test_a_workflow_runs_what_developers_run(path):
    found = read_yaml(path)
    runs = [step["run"] for job in found["jobs"].values() for step in job["steps"] if "run" in step]
    targets = re.findall(r"\bmake (\w+)", " ".join(runs))
    known = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert targets
    assert {*targets} <= {*known}
    assert found["permissions"] == {"contents": "read"}


def test_every_supported_python_is_tested():
    [job] = read_yaml(".github/workflows/tests.yml")["jobs"].values()
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d", c)]
    assert job["strategy"]["matrix"]["python"] == named


def test_every_pitfall_says_how_severe_it_is_the_worst_first():
    page = (ROOT / "docs" / "pitfalls.md").read_text()
    found = [SEVERITIES.index(s) for s in re.findall(r"^## (\w+)", page, flags=re.MULTILINE)]
    assert found == sorted(found)
    assert {*found} == {0, 1, 2}
