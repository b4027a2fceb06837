"""Predictions come from the posterior of what records share, and from the priors of their own."""

import numpy as np
import pandas as pd
import polars as pl
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr

import pymc_dp
from tests.posteriors import posterior

N, J, K = 23, 4, 2
rng = np.random.default_rng(0)
X, TABLE = rng.normal(size=(N, 3)), rng.normal(size=(N, J))


def test_an_array_in_a_prior_does_not_put_the_prior_in_place_of_the_posterior():
    with pm.Model() as model:
        b = pm.Normal("b", np.array([1e6, 2e6, 5e6]), 1.0, shape=3)
        pm.Normal("y", pm.Data("x", X) @ b, 1e-3, observed=np.zeros(N))
    seen = pymc_dp.predict(posterior(b=[1.0, 2.0, 3.0]), model, {"x": X[:4]})["predictions"]["y"]
    np.testing.assert_allclose(seen[0], np.tile(X[:4] @ [1.0, 2.0, 3.0], (5, 1)), atol=0.01)


def test_a_model_with_other_latents_is_refused():
    with pytest.raises(ValueError, match="The posterior holds no `b` .*the model that was fitted"):
        pymc_dp.predict(posterior(c=[1.0, 2.0, 3.0]), regression(), {"x": X[:4]}, var_names="mu")


@pytest.mark.parametrize("named", [True, False])
def test_factors_of_new_records_are_drawn_from_their_prior(named):
    with pm.Model(coords={"person": range(N), "factor": range(K)}) as model:
        size = {"dims": ("person", "factor")} if named else {"shape": (N, K)}
        z, w = pm.Normal("z", 0, 1, **size), pm.Normal("w", shape=(J, K))
        pm.Normal("y", pt.dot(z, w.T), 1e-3, observed=TABLE)
    loadings = np.zeros((J, K))
    loadings[0] = 3.0, 4.0
    tree = pymc_dp.predict(posterior(w=loadings), model, rows=4000, random_seed=1)
    seen = tree["predictions"]["y"].values
    assert seen.shape == (1, 5, 4000, J)
    assert abs(seen[..., 0].std() - 5.0) < 0.2
    assert abs(seen[..., 1:]).max() < 0.02
    assert abs(np.corrcoef(seen[0, 0, :, 0], seen[0, 1, :, 0])[0, 1]) < 0.1


Y_SD = 12.3456


def regression(**data):
    """Make a regression with deterministics of every kind; ``data`` replaces its predictors."""
    coords = {"person": [f"person {i}" for i in range(N)], "term": ["one", "two", "three"]}
    with pm.Model(coords=coords | {"side": ["left", "right"]}) as model:
        x = pm.Data("x", data.get("x", X), dims=("person", "term"))
        b = pm.Normal("b", 0, 1, dims="term")
        mu = pm.Deterministic("mu", x @ b, dims="person")
        pm.Deterministic("scaled", mu * Y_SD, dims="person")
        pm.Deterministic("largest", pt.max(b))
        seen = pm.Data("seen", TABLE[:, :2], dims=("person", "side"))
        pm.Deterministic("residual", seen - mu[:, None], dims=("person", "side"))
        pm.Normal("y", mu[:, None], 1e-3, observed=seen, dims=("person", "side"))
    return model


B = [1.0, 2.0, 3.0]
FITTED = xr.DataTree.from_dict(
    {
        "posterior": xr.Dataset(
            {"b": (("chain", "draw", "term"), np.tile(B, (1, 5, 1)))},
            {"term": ["one", "two", "three"]},
        )
    }
)


def test_outcomes_and_deterministics_have_the_models_own_dims():
    found = pymc_dp.predict(FITTED, regression(), {"x": X[:4]})["predictions"].to_dataset()
    assert set(found.data_vars) == {"y", "mu"}
    assert found["y"].dims == ("chain", "draw", "person", "side")
    assert found["mu"].dims == ("chain", "draw", "person")
    np.testing.assert_allclose(found["mu"][0], np.tile(X[:4] @ B, (5, 1)))
    np.testing.assert_allclose(found["y"][..., 1], found["mu"], atol=0.01)
    # new records have no labels, and those of sides were not released
    assert not found.coords


def test_labels_of_the_posterior_are_kept():
    with pm.Model(coords={"term": ["one", "two", "three"], "person": range(N)}) as model:
        b = pm.Normal("b", 0, 1, dims="term")
        pm.Normal("y", b, 1e-3, observed=X, dims=("person", "term"))
    found = pymc_dp.predict(FITTED, model, rows=4)["predictions"]
    assert found["y"].sizes["person"] == 4
    assert list(found["term"].values) == ["one", "two", "three"]


def test_var_names_choose_among_them():
    new = {"x": X[:4], "seen": TABLE[:4, :2]}
    both = pymc_dp.predict(FITTED, regression(), new, var_names=["residual", "mu"])["predictions"]
    expected = new["seen"] - (X[:4] @ B)[:, None]
    np.testing.assert_allclose(both["residual"][0, 0], expected)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("scaled", "`scaled`, which holds a number or an operation that may come from the fitted"),
        ("largest", r"can be predicted .* is \['mu', 'residual', 'y'\]; all else .* in idata"),
        ("nothing", "var_names= names `nothing`, but what can be predicted"),
    ],
)
def test_what_cannot_be_predicted_is_refused_by_name(name, reason):
    with pytest.raises(ValueError, match=reason):
        pymc_dp.predict(FITTED, regression(), {"x": X[:4]}, var_names=[name])


@pytest.mark.parametrize("public", ["scaled", ["scaled"]])
def test_a_number_that_is_declared_public_leaves(public):
    new = {"x": X[:4]}
    for names in (["scaled"], None):
        found = pymc_dp.predict(FITTED, regression(), new, var_names=names, public=public)
        np.testing.assert_allclose(found["predictions"]["scaled"][0, 0], X[:4] @ B * Y_SD)
        assert found["predictions"].attrs == {"declared_public": ["scaled"]}
    assert not pymc_dp.predict(FITTED, regression(), new)["predictions"].attrs


def two_tables():
    """Make a regression with two withheld deterministics, of which one reads a table of data."""
    with pm.Model() as model:
        x, b = pm.Data("x", X), pm.Normal("b", shape=3)
        table = pm.Data("table", [3.5, 7.25, 1.5])
        pm.Deterministic("told", (x * table) @ b)
        pm.Deterministic("scaled", x @ b * Y_SD)
        pm.Normal("y", x @ b, 1e-3, observed=np.zeros(N))
    return model


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("told", "`told`, which reads the data `table`: a declaration covers numbers, not data"),
        ("x", r"`x`, but the deterministics that go by records are \['scaled', 'told'\]"),
    ],
)
def test_a_declaration_covers_numbers_of_deterministics_alone(name, reason):
    with pytest.raises(ValueError, match=f"public= names .*{reason}"):
        pymc_dp.predict(FITTED, two_tables(), {"x": X[:4]}, public=[name])
    found = pymc_dp.predict(FITTED, two_tables(), {"x": X[:4]}, public=["scaled"])
    assert set(found["predictions"].data_vars) == {"y", "scaled"}


def test_a_deterministic_that_would_return_a_number_is_let_out_without_the_check(monkeypatch):
    """The planted fault: `scaled` over `mu` is the number."""
    monkeypatch.setattr("pymc_dp.postprocess.predict.is_formula", lambda graph, known: True)
    found = pymc_dp.predict(FITTED, regression(), {"x": X[:4]})["predictions"]
    np.testing.assert_allclose(found["scaled"] / found["mu"], Y_SD)


def by_group(group):
    with pm.Model() as model:
        b = pm.Normal("b", shape=3)
        pm.Normal("y", b[pm.Data("group", group)], 1e-3, observed=np.zeros(len(group)))
    return model


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_new_records_may_be_a_data_frame(frame):
    new = frame({"group": [2, 0]})
    found = pymc_dp.predict(FITTED, by_group(np.arange(12) % 3), new)["predictions"]["y"]
    np.testing.assert_allclose(found.mean(("chain", "draw")), [3.0, 1.0], atol=0.01)


CODES_OF_NO_GROUP = {
    "a missing category": (pd.Categorical(["a", None], categories=list("abc")).codes, "negative"),
    "beyond the end": (np.array([0, 3]), "has numbers beyond its last entry"),
    "nan, read as a whole number": (np.array([1, np.iinfo("int64").min]), "beyond those of int32"),
    "nan": (np.array([0.0, np.nan]), "holds float64 values, but the model takes int64"),
    "not available": (pd.Series([0, pd.NA], dtype="Int64"), "has missing values"),
}


@pytest.mark.parametrize(("codes", "reason"), CODES_OF_NO_GROUP.values(), ids=CODES_OF_NO_GROUP)
def test_codes_of_no_group_are_refused_by_name(codes, reason):
    with pytest.raises(ValueError, match=f"data=.*`group` .*{reason}"):
        pymc_dp.predict(FITTED, by_group(np.arange(12) % 3), {"group": codes})


def test_a_missing_category_is_in_the_last_group_without_the_check(monkeypatch):
    """The planted fault: nobody compares codes with the array that they index."""
    monkeypatch.setattr("pymc_dp.postprocess.predict.refuse_bad_indices", lambda *_: None)
    codes, _ = CODES_OF_NO_GROUP["a missing category"]
    found = pymc_dp.predict(FITTED, by_group(np.arange(12) % 3), {"group": codes})["predictions"]
    np.testing.assert_allclose(found["y"].mean(("chain", "draw")), [1.0, 3.0], atol=0.01)


def test_a_computed_index_is_compared_too():
    with pm.Model() as model:
        b, rows, columns = pm.Normal("b", shape=3), np.arange(12) % 2, np.arange(12) % 3
        picked = b[pm.Data("rows", rows) + pm.Data("columns", columns) - 1]
        pm.Normal("y", picked, 1e-3, observed=np.zeros(12))
    new = {"rows": np.array([0, 1]), "columns": np.array([0, 1])}
    with pytest.raises(ValueError, match="data= .* index `.*` and `.*` of `b` has negative"):
        pymc_dp.predict(FITTED, model, new)


def test_as_many_rows_as_the_model_holds_are_warned_of():
    with pytest.warns(pymc_dp.PrivacyWarning, match="`x` have the shapes of those that the model"):
        pymc_dp.predict(FITTED, regression(), {"x": X})
    pymc_dp.predict(FITTED, regression(), {"x": X[1:]})


# --- latents of units, and missing entries -------------------------------------------------------


def test_new_records_of_one_unit_share_its_latents():
    with pm.Model() as model:
        own = pm.Normal("own", pm.Normal("mu"), pm.HalfNormal("sd"), shape=6)
        mean = own[pm.Data("person", np.repeat(np.arange(6), 3))] + pm.Data("x", np.zeros(18))
        pm.Normal("y", mean, 0.1, observed=np.zeros(18))
    known = posterior(draws=400, mu=0, sd=2)
    known["privacy"] = xr.Dataset(attrs={"unit": "person"})
    new = {"x": np.zeros(4), "person": np.array([70, 9, 70, 9])}
    y = pymc_dp.predict(known, model, new)["predictions"]["y"].to_numpy()[0]
    alike = np.corrcoef(y.T)
    assert alike[0, 2] > 0.95
    assert alike[1, 3] > 0.95
    assert abs(alike[0, 1]) < 0.25  # 5 standard errors
    del new["person"]
    y = pymc_dp.predict(known, model, new)["predictions"]["y"].to_numpy()[0]
    assert abs(np.corrcoef(y.T)[0, 2]) < 0.25
    with pytest.raises(ValueError, match="one code for each of the 4 new records"):
        pymc_dp.predict(known, model, new | {"person": np.arange(3)})
    for missing in (np.array([0, -1, -1, 1]), np.array([0, np.nan, np.nan, 1])):
        with pytest.raises(ValueError, match="`person` holds negative codes or nan, as pandas"):
            pymc_dp.predict(known, model, new | {"person": missing})


def observed_predictor(x):
    """A predictor that is observed, and a second one that reads it."""
    with pm.Model() as model:
        first = pm.Normal("first", pm.Normal("m"), 1.0, observed=pm.Data("x", x))
        second = pm.Normal("second", 10 * first, 0.1, observed=pm.Data("z", 10 * x))
        pm.Normal("y", first + second, 0.1, observed=11 * x)
    return model


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({"x": [7.0]}, {"first": 0, "second": 70, "y": 77}),
        ({"z": [7.0]}, {"first": 0, "second": 0, "y": 7}),
        ({"x": [7.0], "z": [-7.0]}, {"first": 0, "second": 70, "y": 0}),
        ({"y": [7.0]}, {"first": 0, "second": 0, "y": 0}),
        ({"x": [np.nan], "z": [50.0]}, {"first": 0, "second": 0, "y": 50}),
    ],
)
def test_what_reads_an_observed_variable_reads_its_new_values(given, means):
    known, model = posterior(draws=300, m=0), observed_predictor(np.zeros(4))
    new = {name: np.array(values * 2) for name, values in given.items()}
    if "y" in given:
        new = {"x": np.zeros(2), **new}
    found = pymc_dp.predict(known, model, new)["predictions"]
    assert {name: found[name].mean().item() for name in means} == pytest.approx(means, abs=3)
    alone = pymc_dp.predict(known, model, new, var_names="y")["predictions"]
    assert alone["y"].mean().item() == pytest.approx(means["y"], abs=3)
