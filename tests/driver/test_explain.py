"""`explain` says which method fits which part of a model, and spends nothing."""

import re
from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_dp

rng = np.random.default_rng(0)
X, SECRET = rng.normal(size=(40, 2)), 123.456
REAL = np.where(np.arange(40) == 7, SECRET, rng.normal(size=40))
BINARY = np.array([0, 1] * 20)


def logistic():
    tau = pm.Gamma("tau", 1, 1)
    pm.Bernoulli("y", logit_p=pm.math.dot(X, pm.Normal("b", 0, tau=tau, shape=2)), observed=BINARY)


def mixture():
    w, mu = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", 0, 3, shape=2)
    pm.NormalMixture("y", w, mu, tau=2.0, observed=REAL)


def probit():
    b = pm.Normal("b", shape=2)
    pm.Bernoulli("y", p=pm.math.invprobit(pm.math.dot(X, b)), observed=BINARY)


def local():
    z = pm.Normal("z", shape=40)
    pm.StudentT("y", nu=4, mu=z + pm.Normal("shared"), sigma=1.0, observed=REAL)


@cache
def explained(describe):
    with pm.Model() as model:
        describe()
    return pymc_dp.explain(model)


@pytest.mark.parametrize(
    ("describe", "roles"),
    [
        (logistic, {"b": "Gaussian vector", "tau": "precision", "y": "Pólya-Gamma"}),
        (mixture, {"w": "Dirichlet", "mu": "Gaussian", "y": "finite mixture"}),
    ],
)
def test_every_part_of_a_model_gets_its_role(describe, roles):
    explanation = explained(describe)
    assert explanation.vips.roles.keys() == roles.keys()
    for name, words in roles.items():
        assert words in explanation.vips.roles[name]
        assert f"{name}: {explanation.vips.roles[name]}" in str(explanation)


@pytest.mark.parametrize(("describe", "block"), [(probit, "`y`"), (local, "`z`")])
def test_a_model_without_closed_form_updates_gets_the_reasons(describe, block):
    explanation = explained(describe)
    assert not explanation.vips.roles
    assert "does not fit" in explanation.vips.why
    assert block in explanation.vips.why


def test_latents_of_single_records_are_integrated_out_or_refused():
    assert explained(probit).dp_advi == "fit, as any model does."
    found = explained(local).methods
    assert "integrated out by adaptive" in found["dp_advi"].roles["z"]
    assert "`z` has an entry for every record" in found["dp_ops"].why


def without_names():
    group, a, b = np.repeat([0, 1], 20), pm.Normal("a", shape=2), pm.Normal("b", shape=2)
    sd, shift = pm.HalfNormal("s") * np.exp(X[:, 0]), np.where(BINARY, SECRET, 2.0)
    pm.Normal("y", a[group] + X @ b + shift * 123.0, sd, observed=REAL)
    pm.Binomial("n", n=BINARY + 3, p=pm.math.invlogit(a[0]), observed=BINARY)


def test_records_without_a_name_come_with_the_expression_they_stand_in():
    explanation = explained(without_names)
    found = {re.sub("_[0-9]", "", x).partition(" in ")[2] for x in explanation.unnamed.values()}
    expressions = {"a[array]", "array @ b", "... + array", "s * array", "binomial(array, ...)"}
    assert found == {f"`{each}`" for each in expressions}
    for name, what in explanation.unnamed.items():
        assert what.startswith("an unnamed array of shape (40")
        assert f"`{name}` is {what}" in str(explanation)
    assert "To predict new records, name each before the fit: pm.Data" in str(explanation)
    assert not explained(mixture).unnamed


def test_an_error_says_where_an_array_without_a_name_stands():
    with pm.Model() as model:
        b = pm.Normal("b", shape=2)
        pm.Normal("y", (X[:7] @ b).sum(), observed=REAL)
    with pytest.raises(ValueError, match=r"array of shape \(7, 2\) in `array_0 @ b`, which is not"):
        pymc_dp.explain(model)
    with pm.Model() as model:
        pm.Normal("y", X @ pm.Normal("b", shape=2), observed=REAL)
    with pytest.raises(ValueError, match=r"in `array_0 @ b`: give it a name by pm.Data\('x'"):
        pymc_dp.explain(model, data={"y": REAL})


@pytest.mark.parametrize("describe", [mixture, local, without_names])
def test_an_explanation_holds_no_value_of_the_data(describe):
    assert "123" not in str(explained(describe))


def test_the_explanation_is_what_a_notebook_shows():
    explanation = explained(logistic)
    assert repr(explanation) == str(explanation)


def test_passes_over_chunks_are_counted():
    da = pytest.importorskip("dask.array")
    with pm.Model() as model:
        x = pm.Data("x", np.ones((3, 2)))
        pm.Bernoulli("y", logit_p=x @ pm.Normal("b", 0, 1, shape=2), observed=[0, 1, 1])
    data = {"x": da.from_array(X, chunks=(10, 2)), "y": BINARY}
    found = pymc_dp.explain(model, data=data).passes
    assert not pymc_dp.explain(model).passes
    for method in ("vips", "dp_advi"):
        dry = pymc_dp.plan(model, method=method, data=data, epsilon=1, delta=1e-5)
        assert dry.passes == dry.plan.total == found[method]
        assert f"{method}: {dry.passes:g} passes over all chunks" in str(
            pymc_dp.explain(model, data=data)
        )
        assert f"{dry.passes:g} passes over all records" in str(dry)
    batches = {"n": 20, "sample_rate": 0.25, "noise_aware": False, "epsilon": 1, "delta": 1e-5}
    assert pymc_dp.plan(model, **batches).passes == pytest.approx(5)
    assert pymc_dp.plan(model, data=data, **batches).passes == 20  # each reads every chunk
