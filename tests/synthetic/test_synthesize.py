"""Synthetic records are drawn from the posterior alone, each column given those before it."""

from functools import partial

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp
from pymc_dp.errors import PosteriorWarning
from pymc_dp.synthetic import synthesize as module
from tests.posteriors import posterior as equal_draws
from tests.zoo import build as model_of

ROWS = 40
posterior = partial(equal_draws, 6)
rng = np.random.default_rng(0)


def by_variable(seed=0, rows=ROWS):
    """Later columns read the observed variable."""
    own = np.random.default_rng(seed)
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        x = pm.Normal("x", a, 1, observed=own.normal(size=rows))
        job = pm.Categorical("job", np.full(3, 1 / 3), observed=own.integers(0, 3, rows))
        effect = pm.Normal("effect", shape=3)
        pm.Normal("y", b * x + effect[job], 1e-3, observed=own.normal(size=rows))
    return model


def by_data(seed=0, rows=ROWS):
    """Later columns read the data that the variable observes; the last one is written first."""
    own = np.random.default_rng(seed)
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        x = pm.Data("x data", own.normal(size=rows))
        job = pm.Data("job data", own.integers(0, 3, rows))
        effect = pm.Normal("effect", shape=3)
        pm.Normal("y", b * x + effect[job], 1e-3, observed=own.normal(size=rows))
        pm.Normal("x", a, 1, observed=x)
        pm.Categorical("job", np.full(3, 1 / 3), observed=job)
    return model


FITTED = posterior(a=5.0, b=2.0, effect=[0.0, 30.0, 60.0])


@pytest.mark.parametrize("make", [by_variable, by_data])
def test_values_of_a_column_are_read_by_the_columns_after_it(make):
    found = pymc_dp.synthesize(FITTED, make(), n=300, m=2, random_seed=1)["synthetic"]
    assert dict(found.sizes) == {"data_set": 2, "record": 300}
    np.testing.assert_allclose(found["y"], 2 * found["x"] + 30 * found["job"], atol=0.01)
    assert abs(found["x"].mean() - 5) < 0.3
    assert set(np.unique(found["job"])) == {0, 1, 2}
    assert abs(found["x"][0] - found["x"][1]).max() > 0.1


@pytest.mark.parametrize("make", [by_variable, by_data])
def test_the_data_in_the_model_are_not_read(make):
    terms = {"n": 50, "m": 2, "random_seed": 3}
    one, other = (
        pymc_dp.synthesize(FITTED, make(seed, rows), **terms)["synthetic"].to_dataset()
        for seed, rows in ((0, ROWS), (1, 17))
    )
    for name in one:
        assert one[name].values.tobytes() == other[name].values.tobytes()


def test_a_record_of_the_model_in_a_synthetic_one_would_be_seen(monkeypatch):
    """Planted fault: later columns keep the values that the model holds."""
    monkeypatch.setattr(module, "_chained", lambda new: new.observed)
    with pytest.raises(ValueError, match="read the data `.* data`"):
        pymc_dp.synthesize(FITTED, by_data(), n=ROWS, m=2)
    monkeypatch.setattr(module, "_refuse_what_is_left", lambda *_: None)
    one, other = (
        pymc_dp.synthesize(FITTED, by_data(seed), n=ROWS, m=2, random_seed=3)["synthetic"]["y"]
        for seed in (0, 1)
    )
    assert (one.values != other.values).any()


def test_every_data_set_is_from_another_draw():
    draws = np.arange(30.0)[None]
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"a": (("chain", "draw"), draws)})})
    with pm.Model() as model:
        pm.Normal("x", pm.Normal("a"), 1e-3, observed=np.zeros(ROWS))
    x = pymc_dp.synthesize(tree, model, n=4, m=30)["synthetic"]["x"].values
    assert sorted(x[:, 0].round()) == list(range(30))
    with pytest.raises(ValueError, match="m=31 data sets need as many draws"):
        pymc_dp.synthesize(tree, model, n=4, m=31)


def test_several_results_are_joined():
    parts = [posterior(a=5.0), posterior(b=2.0, effect=[0.0, 30.0, 60.0])]
    found = pymc_dp.synthesize(parts, by_data(), n=20, m=2)["synthetic"]
    np.testing.assert_allclose(found["y"], 2 * found["x"] + 30 * found["job"], atol=0.01)
    with pytest.raises(ValueError, match="holds no `a`"):
        pymc_dp.synthesize(parts[1:], by_data(), n=20, m=2)


def test_an_array_is_public_where_every_fit_declared_it():
    with pm.Model() as model:
        scale = pm.Data("scale", [2.0])
        for name in "ab":
            mean = scale[0] * pm.Normal(name)
            pm.Normal(f"x {name}", mean, 1e-3, observed=rng.normal(size=ROWS))
    parts = [in_fit(posterior(**{name: 1.0}), declared_public='["scale"]') for name in "ab"]
    pymc_dp.synthesize(parts, model, n=5, m=2)
    with pytest.raises(ValueError, match="was not declared public"):
        pymc_dp.synthesize([parts[0], in_fit(parts[1], declared_public="[]")], model, n=5, m=2)


def in_fit(tree, **attrs):
    """Return a posterior as a fit without noise leaves it."""
    tree = tree.copy()
    attrs = {"epsilon": np.inf, "delta": 0.0, "guarantee": "", "released": "[]", **attrs}
    tree["privacy"] = xr.DataTree(xr.Dataset(attrs=attrs))
    return tree


def test_arrays_of_several_columns_missing_entries_and_latents_of_records():
    table = rng.normal(size=(ROWS, 3))
    table[:5, 1] = np.nan
    with pm.Model(coords={"person": range(ROWS), "item": list("abc")}) as model:
        own = pm.Normal("own", shape=ROWS)
        load = pm.Normal("load", dims="item")
        mean = own[:, None] * load
        with pytest.warns(UserWarning, match="impute|missing"):
            pm.Normal("y", mean, 1e-3, observed=table, dims=("person", "item"))
    found = pymc_dp.synthesize(posterior(load=[1.0, 2.0, 3.0]), model, n=200, m=3)["synthetic"]
    assert found["y"].dims == ("data_set", "record", "item")
    np.testing.assert_allclose(found["y"][..., 1], 2 * found["y"][..., 0], atol=0.02)
    assert abs(found["y"][..., 0].std() - 1) < 0.2


def test_every_record_is_of_a_person_of_its_own():
    persons = np.repeat(np.arange(10), 4)
    with pm.Model() as model:
        own = pm.Normal("own", 0, pm.HalfNormal("spread"), shape=10)
        mean = own[pm.Data("person", persons)]
        pm.Normal("y", mean, 1e-3, observed=rng.normal(size=ROWS))
    tree = in_fit(posterior(spread=3.0), unit="person")
    y = pymc_dp.synthesize(tree, model, n=2000, m=1, random_seed=1)["synthetic"]["y"]
    assert abs(y.std() - 3) < 0.2
    assert len(np.unique(y.values.round(1))) > 50


def not_modelled():
    pm.Normal("y", pm.Normal("b") * pm.Data("x", rng.normal(size=ROWS)), observed=np.zeros(ROWS))


def circle():
    x, y = (pm.Data(f"{k} data", rng.normal(size=ROWS)) for k in "xy")
    b = pm.Normal("b")
    pm.Normal("x", b * y, 1, observed=x)
    pm.Normal("y", b * x, 1, observed=y)


def potential():
    x = pm.Data("x data", rng.normal(size=ROWS))
    b = pm.Normal("b")
    pm.Normal("x", b, 1, observed=x)
    pm.Potential("weight", pm.logp(pm.Normal.dist(b, 1), x))


def expression():
    x = pm.Data("x data", rng.normal(size=ROWS))
    pm.Normal("x", pm.Normal("b"), 1, observed=2 * x)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (not_modelled, "The columns read the data `x`, which is no column"),
        (circle, "`x`, `y` read each other, or their own values, in a circle"),
        (potential, "potential `weight` reads records"),
        (expression, "observes an expression|does not say how"),
    ],
)
def test_what_cannot_be_drawn_is_refused(write, reason):
    model = model_of(write)
    with pytest.raises(ValueError, match=reason):
        pymc_dp.synthesize(posterior(b=1.0), model, n=5, m=2)


def test_a_posterior_without_the_privacy_noise_is_warned_of():
    tree = in_fit(FITTED, epsilon=1.0, delta=1e-5)
    with pytest.warns(PosteriorWarning, match="leaves the privacy noise"):
        pymc_dp.synthesize(tree, by_data(), n=5, m=2)
