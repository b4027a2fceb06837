"""The documentation's code runs, its links lead somewhere, and no public name is missing."""

import re
from pathlib import Path

import pytest

import pymc_dp

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "generated" not in page.parts)
EXAMPLE = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|generated/)([^)#]+\.md)")


def named(page):
    return page.stem


def test_there_are_pages():
    assert len(PAGES) >= 8


@pytest.mark.parametrize("page", [p for p in PAGES if EXAMPLE.search(p.read_text())], ids=named)
def test_its_code_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for source in EXAMPLE.findall(page.read_text()):
        exec(source, names)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_its_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text()):
        assert (page.parent / link).exists(), link


def test_every_public_name_is_documented():
    listed = set(re.findall(r"^   ([\w.]+)$", (DOCS / "api.md").read_text(), flags=re.MULTILINE))
    assert set(pymc_dp.__all__) <= listed


def test_every_group_and_variable_of_a_result_is_documented():
    page = (DOCS / "result.md").read_text()
    idata = tiny_fit()
    for name, group in idata.children.items():
        assert f"## `{name}`" in page
        if name not in ("posterior", "noise_sd"):  # their variables are the model's
            assert all(f"| `{variable}` |" in page for variable in group.data_vars), name
        assert all(f"`{attribute}`" in page for attribute in group.attrs), name


def tiny_fit():
    import pymc as pm

    with pm.Model():
        p = pm.Beta("p", 1, 1)
        pm.Bernoulli("y", p, observed=[0, 1] * 50)
        return pm.fit(5, "dp_fullrank_advi", noise_multiplier=5, delta=1e-5, progressbar=False)
