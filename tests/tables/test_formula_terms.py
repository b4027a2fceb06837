"""What a formula takes from all records is read from bambi's own objects, and refused."""

import logging

import bambi as bmb
import numpy as np
import pandas as pd
import pytest

import pymc_dp
from pymc_dp.driver import fit as driver
from pymc_dp.tables.formula import check_formula

pytestmark = [
    pytest.mark.filterwarnings("ignore:Unused name"),
    pytest.mark.filterwarnings("ignore:For backward compatibility"),  # bambi asks pandas for text
]

N = 200
rng = np.random.default_rng(3)
LEVELS, ZIPS = ["a", "b", "c"], [10115, 20095, 94107]
PERSONS = pd.DataFrame(
    {
        "age": rng.uniform(18, 90, N),
        "income": rng.gamma(4, 12, N),
        "arm": pd.Categorical(rng.choice(LEVELS, N), ["c", "b", "a"], ordered=True),
        "score": rng.normal(size=N),
        "came": rng.integers(0, 2, N),
        "text": rng.choice(LEVELS, N),
        "unordered": pd.Categorical(rng.choice(LEVELS, N), LEVELS),
        "occurring": pd.Categorical(rng.choice(LEVELS, N), ordered=True),
        "zip": rng.choice(ZIPS[:2], N),
        "flag": rng.integers(0, 2, N) == 1,
    }
)
KNOTS = np.array([20.0, 40.0, 80.0])
AGES = PERSONS["age"].to_numpy()  # an array beside the data frame
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
NORMAL, POSITIVE = bmb.Prior("Normal", mu=0, sigma=1), bmb.Prior("HalfNormal", sigma=1)
PRIORS = {
    "Intercept": NORMAL,
    "common": NORMAL,
    "group_specific": bmb.Prior("Normal", mu=0, sigma=POSITIVE),
    "sigma": POSITIVE,
}


def centre(x):
    return x - x.mean()


def log(x):  # not NumPy's
    return np.log(x) - np.log(x).mean()


def made(formula, family="gaussian", data=PERSONS, **settings):
    logging.getLogger("bambi").setLevel(logging.ERROR)
    public = {"priors": PRIORS, "auto_scale": False, "center_predictors": False}
    return bmb.Model(formula, data, family, **public | settings)


def checked(model, unit=None, public=()):
    return check_formula(model, unit, public)


# --- priors and predictors ----------------------------------------------------------------------


def test_priors_that_bambi_scaled_are_refused_and_so_are_centred_predictors():
    both = r"scales the priors of `sigma`, `Intercept`, `age` and centres.*auto_scale=False.*center"
    with pytest.raises(ValueError, match=both):
        pymc_dp.plan(bmb.Model("score ~ age", PERSONS), **BUDGET)


def test_where_all_priors_are_written_none_is_scaled():
    checked(made("score ~ age", auto_scale=True))
    checked(made("score ~ 0 + age", center_predictors=True))  # without an intercept none is centred
    assert pymc_dp.plan(made("score ~ scale(age) + text"), epsilon=np.inf).epsilon == np.inf


@pytest.mark.parametrize("keyword", ["auto_scale", "center_predictors"])
def test_a_keyword_that_is_changed_after_the_model_was_built_changes_nothing(keyword):
    model = made("score ~ age", priors={"age": NORMAL}, **{keyword: True})
    model.build()
    setattr(model, keyword, False)
    with pytest.raises(ValueError, match=f"{keyword}=False"):
        checked(model)


def test_the_model_of_pymc_is_not_taken_for_that_of_bambi():
    model = made("score ~ age")
    model.build()
    for ask in (pymc_dp.plan, pymc_dp.fit):
        with pytest.raises(ValueError, match=r"`__obs__`.*give bambi's own model"):
            ask(model=model.backend.model, **BUDGET)


# --- terms --------------------------------------------------------------------------------------

OF_ALL = [
    ("score ~ bs(income, df=6)", "knots=, lower_bound= and upper_bound="),
    ("score ~ 0 + hsgp(age, m=5, L=100)", "public grid"),
    ("score ~ standardize(age):income", "public numbers"),
    ("score ~ (center(age)|arm)", "public numbers"),
    ("score ~ scale(AGES)", "public numbers"),
    ("scale(score) ~ age", "public numbers"),
    ("score ~ poly(age, 2)", "raw=True"),
    ("score ~ binary(arm)", "success="),
    ("score ~ I(age - np.mean(age))", "from one record each"),
    ("score ~ np.clip(age, np.min(age), 65)", "from one record each"),
    ("score ~ centre(age)", "from one record each"),
]


@pytest.mark.parametrize(("formula", "instead"), OF_ALL)
def test_a_term_that_reads_all_records_is_refused_with_a_public_spelling(formula, instead):
    with pytest.raises(pymc_dp.NotSeparableError, match=rf"In the term.*of the formula.*{instead}"):
        checked(made(formula))


def test_an_alias_hides_nothing():
    model = made("score ~ scale(age)")
    model.set_alias({"scale(age)": "z"})
    with pytest.raises(pymc_dp.NotSeparableError, match="In the term"):
        pymc_dp.plan(model, **BUDGET)


def test_a_function_is_known_by_itself_and_not_by_its_name():
    with pytest.raises(pymc_dp.NotSeparableError, match=r"log\(\) takes"):
        checked(made("score ~ log(income)", extra_namespace={"log": log}))
    checked(made("score ~ f(income)", extra_namespace={"f": np.log1p}))


@pytest.mark.parametrize(
    "formula",
    [
        "score ~ bs(income, knots=np.sort(KNOTS), lower_bound=0, upper_bound=1000)",
        "score ~ poly(age, 2, raw=True)",
        "score ~ np.log1p(income) + np.clip(age, 18, 65):arm + offset(np.exp(score))",
        "score ~ binary(arm, success='a')",
        "score ~ I(age * 0.05 - 2.5) + np.where(age > 60, 1, 0)",
        "np.exp(score) ~ age",
    ],
)
def test_a_term_of_public_numbers_is_not(formula):
    assert checked(made(formula)) == []


# --- levels -------------------------------------------------------------------------------------

OF_RECORDS = [
    ("score ~ text", "gaussian"),
    ("score ~ C(zip)", "gaussian"),
    ("score ~ np.where(age > 60, 'old', 'young')", "gaussian"),
    ("score ~ (1|text)", "gaussian"),
    ("score ~ (1|arm:zip)", "gaussian"),
    ("text ~ age", "bernoulli"),
]


@pytest.mark.parametrize(("formula", "family"), OF_RECORDS)
def test_levels_that_occur_are_no_domain(formula, family):
    with pytest.raises(ValueError, match="are those that occur among the records"):
        checked(made(formula, family))


def listed(x, categories):
    return pd.Categorical(x, categories=categories, ordered=True)


@pytest.mark.parametrize(
    ("formula", "family", "columns"),
    [
        ("score ~ text", "gaussian", {"text": listed(PERSONS["text"], [*LEVELS, "d"])}),
        ("score ~ (1|zip)", "gaussian", {"zip": listed(PERSONS["zip"], ZIPS)}),
        ("text ~ age", "categorical", {"text": listed(PERSONS["text"], LEVELS[::-1])}),
        ("text['a'] ~ age", "bernoulli", {}),
        ("score ~ C(text, levels=LEVELS)", "gaussian", {}),
        ("score ~ flag + C(arm)", "gaussian", {}),
    ],
)
def test_a_list_of_levels_is(formula, family, columns):
    assert checked(made(formula, family, PERSONS.assign(**columns))) == []


def test_the_levels_of_a_unit_are_not_released():
    assert checked(made("score ~ age + (1|zip)"), unit="zip") == []
    with pytest.raises(ValueError, match="`zip`"):
        checked(made("score ~ C(zip) + (1|zip)"), unit="zip")


@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("score ~ (1|occurring)", "gaussian"),
        ("occurring ~ age", "categorical"),
    ],
)
def test_ordered_categories_that_may_be_those_that_occur_are_named(formula, family):
    model = made(formula, family)
    with pytest.warns(pymc_dp.PrivacyWarning, match="categories of `occurring`"):
        driver.set_up(model, "dp_advi", None, **BUDGET)
    driver.set_up(model, "dp_advi", None, public=["occurring"], **BUDGET)
    assert "categories of `occurring`" in str(pymc_dp.explain(model))


@pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")
def test_without_the_check_a_level_of_one_person_is_released(monkeypatch):
    """The planted fault."""
    monkeypatch.setattr(driver, "check_formula", lambda *settings: [])
    only_me = PERSONS.assign(text=np.where(np.arange(N) == 7, "only me", PERSONS["text"]))
    model = made("score ~ text", data=only_me)
    assert pymc_dp.plan(model, **BUDGET).epsilon <= 1
    assert "only me" in model.backend.model.coords["text_dim"]
