"""Every notebook runs from top to bottom, and says the same as its text twin."""

from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS.parent / "notebooks").glob("*.ipynb"))


def named(path):
    return path.stem


@pytest.mark.slow  # the documentation runs them, too
@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_it_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=90, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [o for o in outputs if o.get("name") == "stderr" and "Error" in o["text"]]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_it_is_kept_without_outputs(path):
    cells = nbformat.read(path, as_version=4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_its_card_in_the_gallery_has_its_title_and_a_picture(path):
    title = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0].removeprefix("# ")
    picture = f"pictures/notebooks/{path.stem}.png"
    card = f"{title}\n:img-top: {picture}\n:link: generated/notebooks/{path.stem}\n"
    assert card in (DOCS / "notebooks.md").read_text(encoding="utf-8")
    assert (DOCS / picture).exists()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_its_text_twin_says_the_same(path):
    twin = jupytext.read(path.with_suffix(".md"))
    cells = nbformat.read(path, as_version=4).cells
    assert [c.source for c in twin.cells] == [c.source for c in cells]
