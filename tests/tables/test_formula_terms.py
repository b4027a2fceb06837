"""Terms of formulas that read all records are refused by the names that they have."""

import logging

import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.driver import setup
from pymc_dp.errors import NotSeparableError

rng = np.random.default_rng(3)
PERSONS = pd.DataFrame(
    {
        "age": rng.uniform(18, 90, size=200),
        "income": rng.gamma(4, 12, size=200),
        "arm": pd.Categorical(rng.choice(["a", "b", "c"], 200), ["a", "b", "c"], ordered=True),
        "score": rng.normal(size=200),
    }
)
LEVELS = ["a", "b", "c"]
KNOTS = np.array([20.0, 40.0, 80.0])
BUDGET = {"epsilon": 1, "delta": 1e-5}


def built(formula):
    logging.getLogger("bambi").setLevel(logging.ERROR)
    model = bmb.Model(formula, PERSONS, center_predictors=False, auto_scale=False)
    model.set_priors(common=bmb.Prior("Normal", mu=0, sigma=1))
    model.build()
    return model.backend.model


def named(name, **coords):
    with pm.Model(coords=coords) as model:
        b = pm.Normal(name, shape=1, dims=tuple(coords) or None)
        pm.Normal("y", b * rng.normal(size=50), 1, observed=rng.normal(size=50))
    return model


@pytest.mark.parametrize(
    ("formula", "instead"),
    [
        ("score ~ bs(income, df=6)", "knots=, lower_bound= and upper_bound="),
        ("score ~ bs(income, 6)", "knots=, lower_bound= and upper_bound="),
        ("score ~ bs(income, knots=KNOTS)", "knots=, lower_bound= and upper_bound="),
        ("score ~ 0 + hsgp(age, m=5, L=100)", "public grid"),
        ("score ~ 0 + hsgp(age, m=5, c=2)", "public grid"),
        ("score ~ scale(age) + income", "public numbers"),
        ("score ~ standardize(age):income", "public numbers"),
        ("score ~ (center(age)|arm)", "public numbers"),
        ("scale(score) ~ age", "public numbers"),
        ("score ~ I(age - np.mean(age))", "public numbers"),
        ("score ~ poly(age, 2)", "raw=True"),
        ("score ~ binary(arm)", "success="),
        ("score ~ I(age - np.nanmean(age))", "from one record each"),
        ("score ~ np.cumsum(age)", "from one record each"),
        ("score ~ poly(age, 2, raw=0)", "raw=True"),
        ("score ~ C(arm)", "levels="),
    ],
)
def test_a_term_that_reads_all_records_is_refused_with_a_public_spelling(formula, instead):
    with pytest.raises(NotSeparableError, match=rf"name of a term of a formula.*{instead}"):
        pymc_dp.plan(model=built(formula), **BUDGET)


@pytest.mark.parametrize(
    "formula",
    [
        "score ~ bs(income, knots=KNOTS, lower_bound=0, upper_bound=1000)",
        "score ~ poly(age, 2, raw=True)",
        "score ~ log(income) + np.clip(age, 18, 65):arm",
        "score ~ binary(arm, success='a')",
        "score ~ age + (1|arm)",
        "score ~ I(age * 0.05 - 2.5) + np.where(age > 60, 1, 0)",
        "score ~ C(arm, levels=LEVELS)",
        "log(income) ~ age",
    ],
)
def test_a_term_of_public_numbers_is_not(formula):
    assert 0.9 < pymc_dp.plan(model=built(formula), **BUDGET).epsilon <= 1


def test_labels_of_a_design_matrix_show_it_too():
    with pytest.raises(NotSeparableError, match=r"`bs\(x, df=1\)\[0\]`"):
        pymc_dp.plan(model=named("b", term=["bs(x, df=1)[0]"]), **BUDGET)


OF_ALL = ["zscore(x)", "pd.qcut(x, 4)", "x.rank()", "scale (x)", "I(x - x[0])", "np.matmul(x, x)"]
OF_ALL += ["bs(x, knots=k, lower_bound=min(x), upper_bound=9)", "np.add.reduce(x)", "I(x @ x)"]


@pytest.mark.parametrize("name", OF_ALL)
def test_any_function_that_may_read_all_records_is_refused(name):
    with pytest.raises(NotSeparableError, match="name of a term of a formula"):
        pymc_dp.plan(model=named(name), **BUDGET)


@pytest.mark.parametrize("label", ["scale(1-5)", "cr(mg/dl)", "poly(A)", "temp.max(C)"])
def test_a_label_that_looks_like_a_call_is_no_term(label):
    assert 0.9 < pymc_dp.plan(model=named("b", term=[label]), **BUDGET).epsilon <= 1


@pytest.mark.parametrize("columns", [["Intercept", "scale(x)"], ["C(g)[T.b]", "zscore(x)"]])
def test_a_label_beside_other_columns_of_a_formula_is_one(columns):
    with pytest.raises(NotSeparableError, match="name of a term of a formula"):
        setup.refuse_computed_terms(pm.Model(coords={"term": columns}))


@pytest.mark.parametrize("name", ["log(scale)", "scale", "abs(b)", "poly"])
def test_names_of_ones_own_are_left_alone(name):
    assert 0.9 < pymc_dp.plan(model=named(name), **BUDGET).epsilon <= 1


def test_without_noise_nothing_is_protected():
    plan = pymc_dp.plan(model=named("scale(x)"), noise_multiplier=0, delta=1e-5)
    assert plan.epsilon == np.inf


def test_without_the_check_quantiles_pass(monkeypatch):
    """The planted fault."""
    monkeypatch.setattr(setup, "refuse_computed_terms", lambda model: None)
    assert pymc_dp.plan(model=built("score ~ bs(income, df=6)"), **BUDGET).epsilon <= 1
