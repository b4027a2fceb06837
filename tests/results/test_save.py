"""`pymc_dp.save` writes the numbers of a fit as they are, and nothing that was put beside them."""

import re

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp
from pymc_dp.results.report import added_names
from pymc_dp.results.tree import released_part
from pymc_dp.testing import deterministic_noise

SECRET = 123456.78125


def fit(**settings):
    with pm.Model(coords={"side": ["left", "right"]}) as model:
        b = pm.Normal("b", 0, 1, dims="side")
        pm.Normal("y", b.sum(), 1.0, observed=np.linspace(-1, 1, 50))
    terms = {"n": 5, "noise_multiplier": 5.0, "delta": 1e-5, "draws": 4}
    return pymc_dp.fit(model=model, progressbar=False, **terms | settings)


@pytest.fixture(scope="module")
def idata():
    return fit()


def test_encodings_change_no_number_and_leave_nothing(idata, tmp_path):
    changed = idata.copy(deep=True)
    changed["posterior"]["b"].encoding = {"dtype": "int8", "_FillValue": 7, "scale_factor": SECRET}
    changed["posterior"].encoding = {"unlimited_dims": {"draw"}}
    pymc_dp.save(changed, tmp_path / "saved.nc")
    with xr.open_datatree(tmp_path / "saved.nc") as saved:
        xr.testing.assert_equal(saved["posterior"]["b"].load(), idata["posterior"]["b"])
    assert np.float64(SECRET).tobytes() not in (tmp_path / "saved.nc").read_bytes()


def test_what_hangs_on_variables_root_and_inner_groups_is_dropped(idata):
    changed = idata.copy(deep=True)
    changed.attrs["note"] = SECRET
    changed["posterior"]["b"].attrs["note"] = SECRET
    changed["posterior"]["side"].attrs["note"] = SECRET
    changed["posterior/inner"] = xr.Dataset({"x": SECRET})
    changed["other"] = xr.Dataset({"x": SECRET})
    changed.coords["of_root"] = SECRET  # which groups inherit
    kept = released_part(changed)
    assert str(SECRET) not in str([node.to_dataset() for node in kept.subtree])
    assert all(not v.attrs for node in kept.subtree for v in node.to_dataset().variables.values())
    assert added_names(idata) == []
    assert {*added_names(changed)} == {
        "note",
        "of_root",
        "posterior/b.note",
        "posterior/side.note",
        "posterior/inner",
        "other",
    }


def in_test_mode():
    with deterministic_noise(1):
        return fit()


def one_draw():
    return fit(method="dp_ops", noise_multiplier=None, epsilon=1.0, n=1, draws=1)


@pytest.mark.parametrize(
    ("make", "guarantee"),
    [
        (lambda: fit(epsilon=np.inf, noise_multiplier=None), "none: no noise was added"),
        (in_test_mode, "none: test mode"),
        (one_draw, "none proved: "),
    ],
)
def test_a_result_without_a_guarantee_is_saved_with_a_warning(make, guarantee, tmp_path):
    idata = make()
    with pytest.warns(pymc_dp.PrivacyWarning, match=rf"a.nc' is NOT PRIVATE: .*{guarantee}"):
        pymc_dp.save(idata, tmp_path / "a.nc")
    assert (tmp_path / "a.nc").exists()


@pytest.mark.parametrize("name", ["result.nc", "result.zarr"])
def test_what_was_saved_is_loaded_as_it_was(idata, name, tmp_path):
    changed = idata.copy(deep=True)
    changed["log_likelihood"] = xr.Dataset({"y": SECRET})
    for _ in range(2):  # what exists is replaced
        pymc_dp.save(changed, tmp_path / name)
    loaded = pymc_dp.load(str(tmp_path / name))
    assert (tmp_path / name).is_dir() == name.endswith(".zarr")
    assert set(loaded.children) == set(idata.children)
    for group in idata.children:
        xr.testing.assert_equal(loaded[group].to_dataset(), idata[group].to_dataset())
    assert pymc_dp.privacy_report(loaded) == pymc_dp.privacy_report(idata)
    assert pymc_dp.compose([loaded], delta=1e-5) == pymc_dp.compose([idata], delta=1e-5)


def test_a_file_that_xarray_wrote_is_loaded_with_all_that_it_holds(idata, tmp_path):
    changed = idata.copy(deep=True)
    changed["log_likelihood"] = xr.Dataset({"y": SECRET})
    changed.to_netcdf(tmp_path / "all.nc")
    report = pymc_dp.privacy_report(pymc_dp.load(tmp_path / "all.nc"))
    assert "holds ['log_likelihood']" in report
    assert "to_netcdf and to_zarr write them" in report


def test_what_is_no_result_is_not_loaded(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"result\.nc"):
        pymc_dp.load(tmp_path / "result.nc")
    xr.DataTree.from_dict({"posterior": xr.Dataset({"b": 1.0})}).to_netcdf(tmp_path / "a.nc")
    with pytest.raises(ValueError, match="was not made by pymc_dp"):
        pymc_dp.load(tmp_path / "a.nc")


def test_a_report_with_the_model_shows_numbers_that_a_result_does_not_hold():
    with pm.Model() as model:
        p = pm.Beta("p", 0.25, SECRET)
        pm.Bernoulli("y", p, observed=np.repeat([0, 1], [20, 30]))
    terms = {"n": 5, "noise_multiplier": 5.0, "delta": 1e-5, "draws": 4, "progressbar": False}
    idata = pymc_dp.fit(model=model, method="dp_advi", **terms)
    text = pymc_dp.privacy_report(idata, model=model)
    assert f"prior of p: 2 numbers (0.25, {SECRET:g})" in re.sub(", and .*? density", "", text)
    assert "50" not in text.partition("Trusted")[2].partition("Not covered")[0]  # the records
    assert "123456" not in pymc_dp.privacy_report(idata)
    assert "123456" not in str(idata["privacy"].attrs)
