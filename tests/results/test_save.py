"""`pymc_dp.save` writes the numbers of a fit as they are, and nothing that was put beside them."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp
from pymc_dp.results.allow_list import added_names, released_part

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
SECRET = 123456.78125


@pytest.fixture(scope="module")
def idata():
    with pm.Model(coords={"side": ["left", "right"]}) as model:
        b = pm.Normal("b", 0, 1, dims="side")
        pm.Normal("y", b.sum(), 1.0, observed=np.linspace(-1, 1, 50))
    settings = {"n": 5, "noise_multiplier": 5.0, "delta": 1e-5, "draws": 4}
    return pymc_dp.fit(model=model, progressbar=False, **settings)


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
    assert "other" in added_names(changed)


def test_a_tree_whose_list_is_missing_is_refused(idata, tmp_path):
    changed = idata.copy(deep=True)
    del changed["privacy"].attrs["released"]
    with pytest.raises(ValueError, match="was not made by pymc_dp"):
        pymc_dp.save(changed, tmp_path / "saved.nc")
    assert not (tmp_path / "saved.nc").exists()
