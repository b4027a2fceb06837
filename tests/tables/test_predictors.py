"""Fits warn of infinite values, and of levels that few records have."""

import warnings

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.errors import PosteriorWarning, PrivacyWarning
from tests import zoo

N = 60
RNG = np.random.default_rng(4)
X, Y = RNG.uniform(-1, 1, N), RNG.normal(size=N)
PERSON = np.arange(N) // 3
BUDGET = {"epsilon": 1, "delta": 1e-5}
FREE = {"epsilon": np.inf}


def one(at, value, of=X):
    return np.where(np.arange(N) == at, value, of)


def dummy(count):
    return (np.arange(N) < count).astype(float)


def line(x, y=Y):
    with pm.Model() as model:
        b = pm.Normal("b", shape=2)
        pm.Normal("y", b[0] + b[1] * pm.Data("x", x), 1, observed=y)
    return model


def censored(limit):
    with pm.Model() as model:
        pm.Censored("y", pm.Normal.dist(pm.Normal("m"), 1), lower=None, upper=limit, observed=Y)
    return model


def said(model, terms=BUDGET, **inputs):
    """Return the texts of warnings of all that is settled before a fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pymc_dp.plan(model, num_records=N, **terms, **inputs)
    return [
        str(w.message) for w in caught if issubclass(w.category, PosteriorWarning | PrivacyWarning)
    ]


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("terms", [BUDGET, FREE], ids=["private", "not private"])
def test_infinite_values_are_warned_of_whatever_epsilon(value, terms):
    [text] = said(line(one(3, value)), terms)
    assert text.startswith("`x` has infinite values")
    [text] = said(line(np.zeros(3), np.zeros(3)), terms, data={"x": X, "y": one(3, value, Y)})
    assert text.startswith("`y` has infinite values")


def test_missing_predictors_are_warned_of():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("b") * one(3, np.nan), 1, observed=Y)
    [text] = said(model)
    assert text.startswith("an unnamed array of shape (60,)")
    assert "has missing values, nan" in text
    assert "Observe a predictor by a variable of its own" in text


def test_an_infinite_limit_is_a_limit():
    assert said(censored(one(3, np.inf, np.full(N, 9.0)))) == []


@pytest.mark.parametrize(("count", "warned"), [(0, 0), (4, 1), (5, 0)])
def test_a_column_that_is_one_for_few_records_is_warned_of(count, warned):
    texts = said(line(dummy(count)))
    assert len(texts) == warned
    assert all("`x` has a column that is 1 for fewer than 5 records" in text for text in texts)
    assert said(zoo.coin(dummy(count).astype(int))) == []  # a rare outcome is no level


def test_few_are_counted_in_persons():
    with line(dummy(6)) as model:
        pm.Data("person", PERSON)
    assert said(model) == []
    [text] = said(model, unit="person")
    assert "fewer than 5 persons" in text


def test_without_privacy_nothing_is_said_of_small_groups_and_limits_that_follow_from_outcomes():
    with pm.Model() as by_group:
        a = pm.Normal("a", shape=2)
        pm.Normal("y", a[pm.Data("group", dummy(4).astype(int))], 1, observed=Y)
    own = np.where(Y > 0, np.minimum(Y, 9), np.inf)
    for model in (line(dummy(4)), by_group, censored(own)):
        assert said(model, FREE) == []
    assert "`a` is indexed by groups of fewer than 5" in said(by_group)[0]
    assert "has a limit of its own at every censored outcome" in said(censored(own))[0]


def factors(outcomes):
    with pm.Model() as model:
        level = pm.Normal("level", shape=outcomes.shape[1])
        pm.Normal("y", level, pm.HalfNormal("sd"), observed=outcomes)
    return model


def test_measurements_of_persons_in_columns_are_named():
    of_persons = RNG.normal(size=(N, 8))
    in_columns = of_persons[:12].T
    assert "observe the transposed matrix" in said(factors(in_columns))[0]
    assert not said(factors(of_persons))
    assert not said(factors(np.round(in_columns))), "counts of words have more columns"


def normal(centre, width, y=Y, x=X):
    with pm.Model() as model:
        mean = pm.Normal("m", centre, width) + pm.Data("x", x)
        pm.Normal("y", mean, 1.0, observed=y)
    return model


@pytest.mark.parametrize(
    ("centre", "width", "statistic"),
    [
        (Y.mean(), 3, "the mean of `y`"),
        (0, Y.std(ddof=1), "the standard deviation of `y`"),
        (0, X.max(), "the largest value of `x`"),
    ],
)
def test_a_number_in_a_prior_that_is_a_columns_own_is_warned_of(centre, width, statistic):
    texts = said(normal(centre, width))
    assert any(f"A number in the prior of `m` equals {statistic}" in text for text in texts)
    assert str(centre) not in " ".join(texts) or centre == 0
    assert said(normal(centre, width), FREE) == []
    other = {"x": X + 0.1234, "y": Y * 1.7654 + 0.3}
    assert said(normal(centre, width), data=other) == []


def test_round_numbers_and_ends_of_scales_are_not_warned_of():
    likert = np.arange(N) % 5 + 1.0
    assert said(normal(0, 5, y=likert)) == []
    assert said(normal(3, 5, y=np.where(likert > 1, likert, 1))) == []
    balanced = np.arange(N) % 2  # a mean and a standard deviation of a half
    assert said(normal(0.5, 0.5, x=balanced)) == []


def test_a_number_of_records_that_is_theirs_is_warned_of_where_it_is_private():
    rows = 127
    x = np.resize(X, rows)

    def count(**terms):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pymc_dp.plan(normal(0, 3, x, x + 1.5), **BUDGET, **terms)
        return [str(w.message) for w in caught if "num_records=" in str(w.message)]

    [text] = count(num_records=rows)
    assert "num_records= equals the number of records or units" in text
    assert count(num_records=120) == []
    assert count(num_records=rows, neighbours="zero_out") == []
