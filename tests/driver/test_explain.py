"""`explain` says which method fits which part of a model, and spends nothing."""

import re
from functools import cache, partial

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from tests import zoo

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


def mixture_of_vectors():
    mu = pm.Normal("mu", 0, 3, shape=(2, 2))
    parts = [pm.MvNormal.dist(mu[k], tau=2 * np.eye(2)) for k in range(2)]
    pm.Mixture("y", pm.Dirichlet("w", np.ones(2)), parts, observed=X)


def mixture_beside_a_predictor():
    mu, tau = pm.Normal("mu", 0, 3, shape=2), pm.Gamma("tau", 2, 1, shape=2)
    parts = pm.Normal.dist(mu + pm.Data("x", X[:, :1]), tau=tau)
    pm.Mixture("y", pm.Dirichlet("w", np.ones(2)), parts, observed=REAL)


def local():
    z = pm.Normal("z", shape=40)
    pm.StudentT("y", nu=4, mu=z + pm.Normal("shared"), sigma=1.0, observed=REAL)


@cache
def explained(describe):
    return pymc_dp.explain(zoo.build(describe))


@pytest.mark.parametrize(
    ("describe", "roles"),
    [
        (logistic, {"b": "Gaussian vector", "tau": "precision", "y": "privacy by rounds, too"}),
        (mixture, {"w": "Dirichlet", "mu": "Gaussian", "y": "finite mixture"}),
    ],
)
def test_every_part_of_a_model_gets_its_role(describe, roles):
    explanation = explained(describe)
    found = explanation.methods["vips"].roles
    assert found.keys() == roles.keys()
    for name, words in roles.items():
        assert words in found[name]
        assert f"{name}: {found[name]}" in str(explanation)


def coin():
    pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=BINARY)


def network():
    hidden = pm.math.tanh(X @ pm.Normal("w", shape=(2, 3)))
    pm.Bernoulli("y", logit_p=hidden @ pm.Normal("v", shape=3), observed=BINARY)


def factors():
    z, w = pm.Normal("z", shape=(40, 2)), pm.Normal("w", shape=(5, 2))
    pm.Normal("y", z @ w.T, tau=pm.Gamma("tau", 2, 1), observed=rng.normal(size=(40, 5)))


def belief_net():
    z, w = pm.Bernoulli("z", 0.5, shape=(40, 2)), pm.Normal("w", shape=(5, 2))
    pm.Bernoulli("y", logit_p=z @ w.T, observed=rng.integers(0, 2, size=(40, 5)))


@pytest.mark.parametrize(
    ("describe", "method", "because"),
    [
        (logistic, "dp_advi", "serve as well as updates in closed form"),
        (coin, "vips", "one release is enough"),
        (mixture, "dp_advi", "histograms of the outcomes"),
        (mixture_of_vectors, "dp_sep", "a sketch of the records finds components"),
        (mixture_beside_a_predictor, "vips", "a release before its rounds finds components"),
        (network, "dp_sep", "test errors"),
        (factors, "dp_advi", "integrates `z` out"),
        (belief_net, "vips", "never releases them"),
        (local, "dp_advi", "integrates `z` out by adaptive Gauss-Hermite quadrature"),
    ],
)
def test_the_first_line_recommends_a_method(describe, method, because):
    explanation = explained(describe)
    assert explanation.recommended[0] == method
    assert because in explanation.recommended[1]
    assert str(explanation).startswith(f"Use method='{method}': {explanation.recommended[1]}.\n")


def binomial(n=9):
    pm.Binomial("y", n, pm.math.invlogit(X @ pm.Normal("b", shape=2)), observed=BINARY)


def test_counts_are_told_that_a_row_must_be_one_person():
    assert "`y` counts" in str(explained(binomial))
    assert "expand the counts" in str(explained(binomial))


@pytest.mark.parametrize("describe", [logistic, coin, lambda: binomial(1)])
def test_outcomes_that_count_nothing_are_told_nothing_of_counts(describe):
    assert not explained(describe).advice


CENSORED = np.arange(40) % 3 == 0


def in_two_parts():
    a = pm.Normal("a")
    pm.Normal("y", a, 1.0, observed=REAL[~CENSORED])
    pm.Potential("censored", pm.logp(pm.Normal.dist(a), REAL[CENSORED]))


def test_censored_rows_apart_from_others_are_shown_how_to_keep_all_rows():
    with pytest.raises(pymc_dp.NotSeparableError, match=r"pm\.Censored\(.*pm\.math\.switch"):
        explained(in_two_parts)


def series(*lags):
    y = REAL[3:]
    x = np.column_stack([REAL[3 - k : len(REAL) - k] for k in lags])
    pm.Normal("y", pm.Data("x", x) @ pm.Normal("b", shape=len(lags)), 1.0, observed=y)


def test_lags_of_a_series_are_named_as_one_persons_value_in_several_rows():
    with pytest.warns(pymc_dp.PrivacyWarning, match="Values of `y` stand in `x` again") as caught:
        explained(lambda: series(1))
    assert not any("123" in str(each.message) for each in caught)
    with pytest.raises(pymc_dp.NotSeparableError, match="One of the outcomes of `y`"):
        explained(lambda: series(0))  # the outcome beside itself is no lag


def beside(x):
    pm.Normal("y", pm.Data("x", x) * pm.Normal("b"), 1.0, observed=REAL)


@pytest.mark.parametrize("width", ["float64", "float32"])
def test_a_column_that_was_centred_by_its_own_mean_is_named(width):
    x = np.exp(X[:, 0])
    with pytest.warns(
        pymc_dp.PrivacyWarning, match="The mean of `x` is 0 to the last digit"
    ) as seen:
        explained(lambda: beside((x - x.mean()).astype(width)))
    assert not any(re.search(r"\d\.\d", str(each.message)) for each in seen)
    explained(lambda: beside(x - 1.6))
    explained(lambda: beside(np.linspace(-1, 1, 40)))  # a grid


def grouped(size):
    z = pm.Normal("z", 0, pm.HalfNormal("t"), shape=size)
    pm.Normal("y", z[pm.Data("person", np.arange(40) % 8)], 1.0, observed=REAL)


def test_groups_that_may_be_persons_are_asked_for():
    advised = str(explained(lambda: grouped(200)))
    assert "`z` has 200 entries, which `person` picks for a record" in advised
    assert "unit=" in advised
    assert "entries" not in str(explained(lambda: grouped(8)))


def by_number():
    z = pm.Normal("z", 0, pm.HalfNormal("t"), shape=40)
    pm.Normal("y", z[pm.Data("row", rng.permutation(40))], 1.0, observed=REAL)


def by_another_array():
    pm.Data("person", 7 * (np.arange(40) % 20))
    z = pm.Normal("z", 0, pm.HalfNormal("t"), shape=20)
    pm.Normal("y", z[pm.Data("g", np.arange(40) % 20)], 1.0, observed=REAL)


def test_an_index_of_single_units_is_told_of_the_array_that_unit_names():
    with pytest.raises(pymc_dp.NotSeparableError, match="Name in unit= what.*method='dp_advi'"):
        explained(by_number)
    model = zoo.build(by_another_array)
    with pytest.raises(pymc_dp.NotSeparableError, match="Index it by `person`.*method='dp_advi'"):
        pymc_dp.explain(model, unit="person")
    model = zoo.build(by_number)
    assert pymc_dp.explain(model, unit="row").recommended[0] == "dp_advi"


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


@pytest.mark.parametrize("describe", [mixture, local, without_names])
def test_an_explanation_holds_no_value_of_the_data(describe):
    assert "123" not in str(explained(describe))


def test_no_single_number_of_trials_shows_in_the_explanation():
    def last_has(trials):
        numbers = np.ones(40, int)
        numbers[-1] = trials
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Binomial("y", n=numbers, logit_p=pm.math.dot(X, b), observed=BINARY)

    one, two = (str(explained(partial(last_has, trials))) for trials in (1, 2))
    assert one == two


def test_passes_over_chunks_are_counted():
    da = pytest.importorskip("dask.array")
    model = zoo.odds(np.ones((4, 2)), [0, 1, 1, 0], x="x")
    data = {"x": da.from_array(X, chunks=(10, 2)), "y": BINARY}
    explanation = pymc_dp.explain(model, data=data)
    assert not pymc_dp.explain(model).passes
    for method in ("vips", "dp_advi"):
        dry = pymc_dp.plan(model, method=method, data=data, epsilon=1, delta=1e-5)
        assert dry.passes == dry.plan.total == explanation.passes[method]
        assert f"{method}: {dry.passes:g} passes over all chunks" in str(explanation)
        assert f"{dry.passes:g} passes over all records" in str(dry)
    batches = {"n": 20, "sample_rate": 0.25, "noise_aware": False, "epsilon": 1, "delta": 1e-5}
    assert pymc_dp.plan(model, **batches).passes == pytest.approx(5)
    assert pymc_dp.plan(model, data=data, **batches).passes == 20  # each reads every chunk


def test_deterministics_that_a_result_will_lack_are_named_before_and_at_the_fit():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Deterministic("of_a_thousand", 1000 * p)
        pm.Deterministic("odds", p / (1 - p))
        pm.Bernoulli("y", p, observed=np.repeat([0, 1], [3, 7]))
    assert "The result will lack `of_a_thousand`: " in str(pymc_dp.explain(model))
    assert "lack" not in str(pymc_dp.explain(model, public=["of_a_thousand"]))
    terms = {"method": "vips", "epsilon": 1, "delta": 1e-3, "progressbar": False}
    with pytest.warns(UserWarning, match="The result will lack `of_a_thousand`: "):
        pymc_dp.fit(model=model, **terms)
    idata = pymc_dp.fit(model=model, public=["of_a_thousand"], **terms)
    assert {"of_a_thousand", "odds"} < set(idata["posterior"].data_vars)


def test_units_are_told_what_their_number_of_rows_must_not_depend_on():
    model = zoo.coin(np.repeat([0, 1], [3, 7]), person=np.arange(10) // 2)
    said = "How many rows a person has must not depend on its outcomes"
    assert said in str(pymc_dp.explain(model, unit="person"))
    assert said not in str(pymc_dp.explain(model))
