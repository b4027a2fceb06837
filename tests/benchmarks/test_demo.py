"""The demo runs, and what it saves is the private fit alone."""

import xarray as xr

from benchmarks import demo
from benchmarks.affairs import build_model, load


def test_it_draws_and_saves_the_private_fit_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    training, held_out = load()
    assert abs(training.answers).max() == 1  # scaled by public bounds
    demo.show(build_model(training), held_out)
    assert capsys.readouterr().out.count(demo.NOT_PRIVATE) == 2  # a column, and a title
    assert (tmp_path / "demo-output/demo.png").stat().st_size > 10_000
    with xr.open_datatree(tmp_path / "demo-output/result.nc") as saved:
        assert set(saved.children) == {"posterior", "noise_sd", "fit", "fit_stats", "privacy"}
        assert 0.99 < saved["privacy"].attrs["epsilon"] <= 1
        assert saved["privacy"].attrs["guarantee"] == "(epsilon, delta)"
