"""The demo runs, and what it saves is the private fit alone."""

import pytest
import xarray as xr

from benchmarks import demo
from benchmarks.affairs import build_model, load


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.setenv("COLUMNS", "100")
        training, held_out = load()
        demo.show_one(build_model(training), held_out)
    return path / "demo-output"


def test_it_saves_the_private_fit_alone(folder):
    with xr.open_datatree(folder / "result.nc") as saved:
        assert set(saved.children) == {"posterior", "noise_sd", "fit", "fit_stats", "privacy"}
        assert 0.99 < saved["privacy"].attrs["epsilon"] <= 1
        assert saved["privacy"].attrs["guarantee"] == "(epsilon, delta)"


def test_it_draws(folder):
    assert (folder / "demo.png").stat().st_size > 10_000


def test_the_survey_is_scaled_by_public_bounds_and_split_once():
    training, held_out = load()
    assert (len(training.affair), len(held_out.affair)) == (5093, 1273)
    assert abs(training.answers).max() == 1
    assert set(training.occupation) == set(range(6))


def test_every_table_says_what_is_not_private():
    import pymc as pm

    training, held_out = load()
    with build_model(training):
        fit = pm.fit(6, "dp_advi", noise_multiplier=5, delta=1e-5, progressbar=False)
    coefficients = demo.coefficient_table(fit, fit)
    assert demo.NOT_PRIVATE in str(coefficients.columns[-1].header)
    assert demo.NOT_PRIVATE in str(demo.score_table(fit, fit, held_out).title)
