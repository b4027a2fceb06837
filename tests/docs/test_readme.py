"""The README's examples run as they stand, and its links lead somewhere."""

import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import pymc_dp
from pymc_dp.testing import deterministic_noise

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
[TABLE] = re.findall(r"^```text\n( +mean .*?)\n\n", README, flags=re.MULTILINE | re.DOTALL)
LINKS = re.findall(r"\]\((?!https?://)([^)#]+)\)", README)


@pytest.mark.parametrize("source", EXAMPLES)
def test_an_example_runs(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(source, names)
    assert "Guarantee: " in capsys.readouterr().out
    with xr.open_datatree(tmp_path / "result.nc") as saved:
        assert saved["privacy"].attrs["epsilon"] <= 1
        assert set(saved.children) == {"posterior", "noise_sd", "fit", "fit_stats", "privacy"}


def test_the_table_is_that_of_the_example():
    """That of one noise key; draws of the posterior differ by chance."""
    names, [fit] = {}, [x for x in EXAMPLES if "pymc_dp.summary" in x]
    with deterministic_noise(3):
        exec(fit[: fit.index("print(")], names)
    table, (head, *rows) = pymc_dp.summary(names["idata"]), TABLE.splitlines()
    assert head.split() == list(table.columns)
    assert [row.split()[0] for row in rows] == list(table.index)
    shown = np.array([row.split()[1:] for row in rows], float)
    np.testing.assert_allclose(shown, table.astype(float), rtol=0.2, atol=0.02)
    assert [[float(f"{x:.2g}") for x in row] for row in shown] == shown.tolist()
    assert TABLE in (ROOT / "docs" / "index.md").read_text()


@pytest.mark.parametrize("link", LINKS)
def test_a_link_leads_somewhere(link):
    assert (ROOT / link).exists()
