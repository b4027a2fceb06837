"""Tables of the methods say what the registry says."""

import importlib.util
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "docs/_ext/method_tables.py"


def generator():
    spec = importlib.util.spec_from_file_location("method_tables", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = generator()


@pytest.mark.parametrize("path", tables.TABLES, ids=lambda path: path.name)
def test_a_page_holds_the_table_of_the_registry(path):
    text = path.read_text(encoding="utf-8")
    assert tables.START in text
    assert text == tables.filled(text, tables.TABLES[path]()), f"run {SOURCE}"
