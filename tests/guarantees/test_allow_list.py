"""Nothing of the data is in what leaves: canaries in data, coords and deterministics, byte by byte.

Guard 6 of the tests of a guarantee. Soundness, rule 8: the number of records leaves no trace under
add_remove; rule 21: deterministics with constants stay behind; rule 22: PyMC puts the data back
into our tree, and `pymc_dp.save` drops them again; rule 24: fit_stats holds released traces alone.
"""

import json
import logging
import math
import pickle
import re
import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp
from pymc_dp.results import build as build_module

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
}


def private_arrays(rows=N):
    rng = np.random.default_rng(0)
    X = np.column_stack([NUMBER + np.arange(rows), rng.normal(size=rows)])
    return X, rng.integers(0, 4, rows), rng.integers(0, 2, rows)


def build(rows=N, name=""):
    """A model that names its private data wherever PyMC lets it."""
    X, site, y = private_arrays(rows)
    coords = {"patient": [f"CANARY-{i}" for i in range(rows)], "site": ["n", "e", "s", "w"]}
    with pm.Model(coords=coords, name=name) as model:
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


@pytest.mark.parametrize("form", ["{}", "{:.2f}", "{:.1f}", "{:.0f}", "{:e}", "{:.3e}"])
def test_a_value_is_found_however_it_is_printed(form):
    assert found_in(f"the largest is {form.format(NUMBER)}.") == {"a value"}


def test_digits_within_another_number_are_not_a_value():
    assert found_in("0.0123457 71234570 9.123456789") == set()


def test_no_canary_is_in_the_tree(fitted):
    assert found_in(*everything(fitted[1])) == set()


def test_no_canary_is_in_the_file(fitted, tmp_path):
    assert found_in(saved(fitted[1], tmp_path)) == set()


def test_the_posterior_holds_what_is_allowed_and_no_more(fitted):
    idata = fitted[1]
    assert set(idata.children) == set(GROUPS)
    assert set(idata["posterior"].data_vars) == {"b", "g", "contrast"}
    assert set(idata["posterior"].coords) == {"chain", "draw", "site"}
    moments = {"mean_vector", "standard_deviation", "covariance_matrix", "noise_covariance"}
    moments |= {"variance_share", "hidden_directions", "directions", "misfit"}
    assert set(idata["fit"].data_vars) == moments
    traces = {"mean_path", "noise_to_signal", "clip_factor"}
    assert set(idata["fit_stats"].data_vars) == traces
    withheld = {"eta", "worst", "b_in_units", "b_times"}
    assert set(json.loads(idata["privacy"].attrs["withheld"])) == withheld


@pytest.fixture(scope="module")
def extended(fitted):
    """What PyMC's posterior predictive sampling makes of the tree."""
    model, idata = fitted
    idata = idata.copy(deep=True)
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = ["y", "eta", "b_in_units"]
        pm.sample_posterior_predictive(
            idata, var_names=names, extend_inferencedata=True, progressbar=False
        )
    return idata


def test_pymc_puts_the_canaries_back(extended, tmp_path):
    extended.to_netcdf(tmp_path / "leaky.nc", engine="h5netcdf")
    expected = {"a patient", "a value", "the outcomes"}
    assert found_in(pickle.dumps(extended)) >= expected
    assert found_in((tmp_path / "leaky.nc").read_bytes()) >= expected


def test_saving_drops_what_pymc_put_back(extended, tmp_path):
    assert found_in(saved(extended, tmp_path)) == set()


def with_variable(group, name):
    def spoil(idata):
        X = private_arrays()[0]
        idata[group] = idata[group].to_dataset().assign({name: (("patient", "feature"), X)})

    return spoil


def with_coord(group):
    def spoil(idata):
        idata[group] = idata[group].to_dataset().assign_coords(patient=PATIENTS)

    return spoil


def with_attribute(group):
    def spoil(idata):
        idata[group].attrs["note"] = f"patient {PATIENTS[3]} has {NUMBER}"

    return spoil


def with_group_inside(idata):
    idata["posterior/inner"] = xr.Dataset({"X": (("a", "b"), private_arrays()[0])})


SPOILS = [
    with_group_inside,
    *[with_variable(group, "X") for group in GROUPS],
    *[with_coord(group) for group in GROUPS],
    *[with_attribute(group) for group in ("/", *GROUPS)],
]


def test_saving_drops_what_was_added_by_hand(fitted, tmp_path):
    everywhere = fitted[1].copy(deep=True)
    for spoil in SPOILS:
        once = fitted[1].copy(deep=True)
        spoil(once)
        assert found_in(pickle.dumps(once))
        spoil(everywhere)
    assert found_in(saved(everywhere, tmp_path)) == set()


def test_a_result_survives_its_file(fitted, tmp_path):
    pymc_dp.save(fitted[1], tmp_path / "saved.nc")
    again = az.from_netcdf(tmp_path / "saved.nc")
    for name, group in fitted[1].children.items():
        xr.testing.assert_equal(again[name].to_dataset(), group.to_dataset())
        assert again[name].attrs.keys() == group.attrs.keys()
    assert az.summary(again, var_names=["b"], kind="stats").shape[0] == 2


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
def test_names_and_labels_are_text_and_nothing_more():
    assert found_in(of_texts()) == set()


@pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")
def test_as_the_author_gives_them_they_would_carry_data(monkeypatch):
    """The planted fault."""
    monkeypatch.setattr(build_module, "_of_text", lambda group: group)
    assert "a column" in found_in(of_texts())


def structure(tree):
    """All of a result but the numbers that noise and public draws drive."""
    random = {"b", "g", "contrast", "mean_vector", "standard_deviation", "mean_path"}
    random |= {"noise_to_signal", "covariance_matrix", "noise_covariance"}
    found = {}
    for node in tree.subtree:
        found[node.path] = dict(node.attrs)
        for name, variable in node.variables.items():
            values = None if name.rpartition("::")[2] in random else variable.values.tolist()
            found[node.path, name] = variable.dims, variable.shape, str(variable.dtype), values
    return found


@pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")
@pytest.mark.parametrize(
    ("terms", "name"),
    [({"adaptive_clip": 0.5}, ""), ({"neighbours": "zero_out"}, ""), ({}, "survey")],
)
def test_the_number_of_records_leaves_no_trace(terms, name):
    """Every name of a named model has two colons."""
    few, many = (pymc_dp.fit(model=build(rows, name), **SETTINGS, **terms) for rows in (25, 60))
    for tree in (few, many):  # what released numbers decide
        tree["fit_stats"] = tree["fit_stats"].to_dataset().drop_vars("clip_factor")
        found = ["variance_share", "hidden_directions", "misfit"]
        tree["fit"] = tree["fit"].to_dataset().drop_vars(found, errors="ignore")
        del tree["privacy"].attrs["doubts"]
    assert structure(few) == structure(many)
    assert len(pickle.dumps(few)) == len(pickle.dumps(many))


def test_epsilon_is_stated_as_a_number(fitted):
    assert 0 < fitted[1]["posterior"].attrs["epsilon"] < math.inf
