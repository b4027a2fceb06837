"""The README's examples run as they stand, and its links lead somewhere."""

import re
from pathlib import Path

import pytest
import xarray as xr

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
LINKS = re.findall(r"\]\((?!https?://)([^)#]+)\)", README)


def test_there_is_an_example():
    assert EXAMPLES


@pytest.mark.parametrize("source", EXAMPLES)
def test_an_example_runs(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(source, names)
    assert "Guarantee: " in capsys.readouterr().out
    with xr.open_datatree(tmp_path / "result.nc") as saved:
        assert saved["privacy"].attrs["epsilon"] <= 1
        assert set(saved.children) == {"posterior", "noise_sd", "fit", "fit_stats", "privacy"}


@pytest.mark.parametrize("link", LINKS)
def test_a_link_leads_somewhere(link):
    assert (ROOT / link).exists()
