"""The documentation's code runs, its links lead somewhere, and no public name is missing."""

import importlib.util
import re
from pathlib import Path
from unittest import mock

import pymc as pm
import pytest

import pymc_dp
from pymc_dp.engine import sampler
from pymc_dp.methods.registry import METHODS
from tests import zoo

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if not {"generated", "_build"} & set(page.parts))
EXAMPLE = re.compile(
    r"^```(?:python|\{code-cell\} ipython3)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\]\((?!https?://)([^)#]+\.md)")
PICTURE = re.compile(r"^(?:```\{image\} |```\{figure\} |!\[[^]]*\]\()([^\s)]+)", flags=re.MULTILINE)
# whose models compile longest; their functions have tests and doctests of their own
LONG = ("synthetic.md", "mixed_models.md", "dp_sep.md")
CITED = re.compile(r"\{cite:\w+\}`([^`]+)`")


def named(page):
    return str(page.relative_to(DOCS).with_suffix(""))


def extension(name):
    """Load an extension of the documentation, without Sphinx."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed():
    return set(re.findall(r"^   ([\w.]+)$", (DOCS / "api.md").read_text(), flags=re.MULTILINE))


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page.name in LONG else [], id=named(page))
        for page in PAGES
        if EXAMPLE.search(page.read_text())
    ],
)
def test_its_code_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # whether its code runs does not depend on how well chains have mixed
    monkeypatch.setattr(sampler, "WARM_UP", (2,))
    monkeypatch.setattr(sampler, "LENGTHS", (1,))
    names = {}
    with mock.patch.dict(METHODS):  # a page may add one
        for source in EXAMPLE.findall(page.read_text()):
            exec(source, names)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_its_links_and_pictures_lead_somewhere(page):
    text = page.read_text()
    for link in LINK.findall(text) + PICTURE.findall(text):
        assert (page.parent / link).exists(), link


def test_the_bibliography_holds_what_pages_cite_and_nothing_else():
    text = "".join(page.read_text() for page in PAGES)
    cited = {key for keys in CITED.findall(text) for key in keys.split(",")}
    known = re.findall(r"^@\w+\{(\w+),", (DOCS / "references.bib").read_text(), flags=re.MULTILINE)
    assert len(known) == len(set(known))
    assert cited == set(known)


def test_every_public_name_is_documented():
    assert extension("public_names").faults(pymc_dp, listed()) == []


def test_the_check_finds_a_name_that_no_page_lists():
    [fault] = extension("public_names").faults(pymc_dp, listed() - {"tune"})
    assert fault.startswith("tune is public")


tables = extension("method_tables")


@pytest.mark.parametrize("path", tables.TABLES, ids=lambda path: path.name)
def test_a_page_holds_the_table_of_the_registry(path):
    text = path.read_text(encoding="utf-8")
    assert tables.START in text
    assert text == tables.filled(text, tables.TABLES[path]()), "run docs/_ext/method_tables.py"


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_of_a_method_is_in_a_table_of_its_page(method):
    page = (DOCS / "methods" / f"{METHODS[method].page}.md").read_text()
    first_cells = re.findall(r"^\|([^|]*)\|", page, flags=re.MULTILINE)
    told = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
    assert {"n", *METHODS[method].options.keywords()} <= told


def test_every_group_and_variable_of_a_result_is_documented():
    page = (DOCS / "result.md").read_text()
    with zoo.coin([0, 1] * 50):
        idata = pm.fit(5, "dp_fullrank_advi", noise_multiplier=5, delta=1e-5, progressbar=False)
    for name, group in idata.children.items():
        assert f"## `{name}`" in page
        if name not in ("posterior", "noise_sd"):  # their variables are the model's
            assert all(f"| `{variable}` |" in page for variable in group.data_vars), name
        assert all(f"`{attribute}`" in page for attribute in group.attrs), name
