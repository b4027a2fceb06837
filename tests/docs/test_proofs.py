"""Every page of proofs speaks of the files as they are, and every mechanism has a page."""

import re

import pytest

from tests.docs.test_docs import DOCS, extension

ROOT = DOCS.parent
INDEX = (DOCS / "proofs" / "index.md").read_text()
SECTIONS = [
    "Statement",
    "Pseudo-code",
    "Neighbours",
    "Sensitivity",
    "Event",
    "Numerics",
    "What is public",
    "Tests",
]
# every file here is part of a mechanism, or the index says that it is not
FOLDERS = ["accounting", "checking", "contributions", "ledger", "privacy", "sampling", "tuning"]


proofs = extension("proofs")
PAGES = {page.stem: page.read_text() for page in proofs.pages()}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_speaks_of_the_files_as_they_are(page):
    assert not list(proofs.stale(PAGES[page]))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_every_section_in_its_order(page):
    assert re.findall(r"^## (.*)$", PAGES[page], flags=re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("page", PAGES)
def test_the_tests_that_a_page_names_exist(page):
    tests = PAGES[page].partition("## Tests\n")[2]
    rows = re.findall(r"^\| .* \| `(tests/[\w/]+\.py)` \| `(test_\w+)` \|$", tests, flags=re.M)
    assert rows
    for file, planted in rows:
        assert f"def {planted}(" in (ROOT / file).read_text(), (file, planted)


def test_the_index_lists_every_page():
    listed = re.findall(r"^(\w+)$", INDEX.partition("```{toctree}")[2], flags=re.MULTILINE)
    assert sorted(listed) == sorted(PAGES)


def without_a_page(pages):
    """Return the files of mechanisms of which no page speaks."""
    spoken = {name for page in pages for name in proofs.files(page)}
    exempt = set(re.findall(r"`(pymc_dp/[\w/]+\.py)`", INDEX))
    assert all((ROOT / name).exists() for name in exempt)
    paths = {path for folder in FOLDERS for path in (ROOT / "pymc_dp" / folder).glob("*.py")}
    every = {str(path.relative_to(ROOT)) for path in paths if path.stem != "__init__"}
    return every - spoken - exempt


def test_every_file_of_a_mechanism_has_a_page():
    assert not without_a_page(PAGES.values())


def test_a_mechanism_without_a_page_is_caught():
    others = [text for name, text in PAGES.items() if name != "ledger"]
    assert "pymc_dp/ledger/filters.py" in without_a_page(others)


SOURCE = "def f(x):\n    # why\n    return clip(x,  2 * bound)\n"


def test_comments_and_layout_change_no_digest():
    assert proofs.digest("def f(x):\n\n  return clip(x, 2 * bound)\n") == proofs.digest(SOURCE)


def test_all_else_changes_the_digest():
    assert proofs.digest(SOURCE.replace("2 * ", "")) != proofs.digest(SOURCE)


def test_a_file_that_changes_makes_its_page_stale(tmp_path, monkeypatch):
    page = "| file of version 1.0 | digest |\n| `pymc_dp/f.py` | `0000000000000000` |\n"
    (tmp_path / "pymc_dp").mkdir()
    (tmp_path / "pymc_dp" / "f.py").write_text(SOURCE)
    monkeypatch.setattr(proofs, "ROOT", tmp_path)
    monkeypatch.setattr(proofs, "version", lambda: "1.1")
    assert len([*proofs.stale(page)]) == 2
    page = proofs.renewed(page)
    assert not [*proofs.stale(page)]
    (tmp_path / "pymc_dp" / "f.py").write_text(SOURCE.replace("2 * bound", "bound"))
    [found] = proofs.stale(page)
    assert "pymc_dp/f.py has changed: read it beside this page" in found
    (tmp_path / "pymc_dp" / "f.py").unlink()
    assert [*proofs.stale(page)] == ["pymc_dp/f.py is gone"]
