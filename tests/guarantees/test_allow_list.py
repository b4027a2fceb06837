"""Nothing of the data is in what leaves: canaries in data, coords and deterministics, byte by byte.

Guard 6 of the tests of a guarantee. Soundness, rule 21: deterministics with constants stay behind;
rule 22: PyMC puts the data back into our tree, and `pymc_dp.save` drops them again; rule 24:
fit_stats holds released traces alone. That the number of records leaves no trace (rule 8) is in
tests/conformance.
"""

import json
import logging
import pickle
import re
import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp
from pymc_dp.results import tree as build_module

NUMBER = 123456.78125
N = 40
PATIENTS = [f"CANARY-{i}" for i in range(N)]
GROUPS = ("posterior", "noise_sd", "fit", "fit_stats", "privacy")
SETTINGS = {
    "n": 7,
    "noise_multiplier": 2.0,
    "delta": 1e-5,
    "sample_rate": 0.5,
    "draws": 6,
    "progressbar": False,
    "random_seed": 1,
    "backend": "python",
}


def private_arrays():
    rng = np.random.default_rng(0)
    X = np.column_stack([NUMBER + np.arange(N), rng.normal(size=N)])
    return X, rng.integers(0, 4, N), rng.integers(0, 2, N)


def build():
    """A model that names its private data wherever PyMC lets it."""
    X, site, y = private_arrays()
    with pm.Model(coords={"patient": PATIENTS, "site": ["n", "e", "s", "w"]}) as model:
        X = pm.Data("X", X, dims=("patient", "feature"))
        site = pm.Data("site_of", site, dims="patient")
        unit = pm.Data("unit", NUMBER)
        b = pm.Normal("b", 0, 1, shape=2)
        g = pm.Normal("g", 0, 1, dims="site")
        eta = pm.Deterministic("eta", X @ b + g[site], dims="patient")
        pm.Deterministic("worst", eta.max())
        pm.Deterministic("b_in_units", b * unit)
        pm.Deterministic("b_times", b * NUMBER)
        pm.Deterministic("contrast", g[0] - g[1])
        pm.Bernoulli("y", logit_p=eta, observed=y, dims="patient")
    return model


CANARIES = {
    "a patient": ["CANARY-".encode(code) for code in ("utf-8", "utf-16-le", "utf-32-le")],
    "a value": [np.array(NUMBER, dtype).tobytes() for dtype in ("<f8", ">f8")]
    + [np.array([NUMBER, NUMBER + 1], "<f4").tobytes()],
    "the outcomes": [private_arrays()[2].astype(dtype).tobytes() for dtype in ("i8", "i4", "i1")],
    "the sites": [private_arrays()[1].astype(dtype).tobytes() for dtype in ("i8", "i4", "i1")],
    "a column": [private_arrays()[0][:, 1].tobytes(), private_arrays()[0][7].tobytes()],
}
# a whole number: six digits within the many of a released one are there by chance now and then
PRINTED = re.compile(rb"(?<![\d.])(123456\.78|123456\.8|123457(?!\d)|1\.234568e\+05|1\.235e\+05)")


def found_in(*blobs):
    """Which canaries are in these bytes or texts."""
    blobs = [blob.encode() if isinstance(blob, str) else blob for blob in blobs]
    found = {
        what
        for what, forms in CANARIES.items()
        if any(form in blob for form in forms for blob in blobs)
    }
    return found | ({"a value"} if any(PRINTED.search(blob) for blob in blobs) else set())


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pymc_dp.PrivacyWarning)
        with build() as model:
            return model, pm.fit(method="dp_advi", **SETTINGS)


def saved(idata, tmp_path):
    pymc_dp.save(idata, tmp_path / "saved.nc")
    return (tmp_path / "saved.nc").read_bytes()


def everything(tree):
    texts = [str(tree), repr(tree), tree._repr_html_()]
    for node in tree.subtree:
        texts += [str(node.attrs), str(dict(node.variables))]
    return [pickle.dumps(tree), *texts]


def test_the_canaries_are_in_the_model():
    blobs = [array.tobytes() for array in private_arrays()]
    assert found_in(*blobs, str(PATIENTS)) >= {"a patient", "a value", "the outcomes", "the sites"}


def test_a_value_is_found_however_it_is_printed():
    for form in ("{}", "{:.2f}", "{:.1f}", "{:.0f}", "{:e}", "{:.3e}"):
        assert found_in(f"the largest is {form.format(NUMBER)}.") == {"a value"}
    assert found_in("0.0123457 71234570 9.123456789") == set()  # digits within another number


def test_no_canary_is_in_the_tree_or_its_file(fitted, tmp_path):
    assert found_in(*everything(fitted[1])) == set()
    assert found_in(saved(fitted[1], tmp_path)) == set()


def test_the_posterior_holds_what_is_allowed_and_no_more(fitted):
    idata = fitted[1]
    assert set(idata.children) == set(GROUPS)
    assert set(idata["posterior"].data_vars) == {"b", "g", "contrast"}
    assert set(idata["posterior"].coords) == {"chain", "draw", "site"}
    moments = {"mean_vector", "standard_deviation", "covariance_matrix", "noise_covariance"}
    moments |= {"variance_share", "hidden_directions", "directions", "misfit"}
    assert set(idata["fit"].data_vars) == moments
    traces = {"mean_path", "noise_to_signal"}
    assert set(idata["fit_stats"].data_vars) == traces
    withheld = {"eta", "worst", "b_in_units", "b_times"}
    assert set(json.loads(idata["privacy"].attrs["withheld"])) == withheld


def test_saving_drops_what_pymc_puts_back(fitted, tmp_path):
    model, extended = fitted[0], fitted[1].copy(deep=True)
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = ["y", "eta", "b_in_units"]
        pm.sample_posterior_predictive(
            extended, var_names=names, extend_inferencedata=True, progressbar=False
        )
    extended.to_netcdf(tmp_path / "leaky.nc", engine="h5netcdf")
    expected = {"a patient", "a value", "the outcomes"}
    assert found_in(pickle.dumps(extended)) >= expected
    assert found_in((tmp_path / "leaky.nc").read_bytes()) >= expected
    assert found_in(saved(extended, tmp_path)) == set()


def test_saving_drops_what_was_added_by_hand(fitted, tmp_path):
    everywhere = fitted[1].copy(deep=True)
    everywhere.attrs["note"] = f"patient {PATIENTS[3]}"
    for group in GROUPS:
        X = ("patient", "feature"), private_arrays()[0]
        everywhere[group] = everywhere[group].to_dataset().assign(X=X)
        everywhere[group] = everywhere[group].to_dataset().assign_coords(patient=PATIENTS)
        everywhere[group].attrs["note"] = f"patient {PATIENTS[3]} has {NUMBER}"
        everywhere[f"{group}/inner"] = xr.Dataset({"X": X})
        assert found_in(pickle.dumps(everywhere[group])) >= {"a patient", "a value", "a column"}
    assert found_in(saved(everywhere, tmp_path)) == set()


def test_nothing_is_printed_or_logged(fitted, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        pymc_dp.fit(model=fitted[0], **{**SETTINGS, "progressbar": True})
    out, err = capfd.readouterr()
    said = [str(warning.message) for warning in warned]
    assert found_in(out, err, caplog.text, *said) == set()


def test_predictions_hold_no_canary_and_leave_the_model_alone(fitted):
    model, idata = fitted
    new = {"X": np.zeros((3, 2)), "site_of": np.array([0, 1, 2])}
    predictions = pymc_dp.predict(idata, model, data=new, random_seed=1)
    assert found_in(*everything(predictions)) == set()
    assert predictions["predictions"]["y"].shape == (1, 6, 3)
    assert np.array_equal(model["X"].get_value(), private_arrays()[0])


class Text(str):
    """Text that carries what its author gives it."""

    def __new__(cls, text):
        made = super().__new__(cls, text)
        made.held = private_arrays()[0]
        return made


def of_texts():
    with pm.Model(coords={Text("side"): [Text("left"), None]}) as model:
        b = pm.Normal(Text("b"), dims=(Text("side"),))
        pm.Data(Text("id"), np.arange(N) // 2)
        pm.Deterministic(Text("difference"), b[0] - b[1])
        pm.Normal(Text("y"), private_arrays()[0][:, 1] * b[0] + b[1], observed=np.ones(N))
    return pickle.dumps(pymc_dp.fit(model=model, unit=Text("id"), **SETTINGS))


@pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")
def test_names_and_labels_are_text_and_nothing_more(monkeypatch):
    assert found_in(of_texts()) == set()
    # the planted fault: they stay as the author gives them
    monkeypatch.setattr(build_module, "_of_text", lambda group: group)
    assert "a column" in found_in(of_texts())
