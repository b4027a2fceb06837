"""All checks of values read one table: the arrays of a model, or what ``data=`` puts there."""

import numpy as np
import pymc as pm
import pytest

from pymc_dp.model import separate, value_checks

N = 20
RNG = np.random.default_rng(0)
X, Y, GROUP = RNG.normal(size=(N, 2)), RNG.normal(size=N), np.arange(N) % 2
ROLES = {"X": "read", "y": "observed", "group": "beside", "top": "beside"}


@pytest.fixture
def tables(monkeypatch):
    """Keep the tables that checks are given."""
    kept, make = [], value_checks.arrays

    def arrays(*arguments):
        kept.append(make(*arguments))
        return kept[-1]

    monkeypatch.setattr(value_checks, "arrays", arrays)
    return kept


def model():
    with pm.Model() as built:
        a = pm.Normal("a", shape=2)[pm.Data("group", GROUP)]
        mean = a + pm.Data("X", X) @ pm.Normal("b", shape=2) + X[:, 0] ** 2
        top = pm.Data("top", np.full(N, 9.0))
        pm.Censored("y", pm.Normal.dist(mean, 1.0), lower=None, upper=top, observed=Y)
    return built


def test_the_table_says_what_a_model_does_with_each_array(tables):
    separate(model())
    [table] = tables
    assert {name: x.role for name, x in table.items() if name in ROLES} == ROLES
    [unnamed] = [x for name, x in table.items() if name not in ROLES]
    assert unnamed.name.startswith("an unnamed array of shape (20,)")
    assert unnamed.role == "read"
    np.testing.assert_array_equal(table["X"].vectors, X.T)


def test_what_data_put_there_stands_in_the_table(tables):
    with pm.Model() as template:
        pm.Normal("y", pm.Data("x", np.ones(3)) * pm.Normal("b"), 1.0, observed=np.arange(3.0))
    separate(template, data={"x": X[:, 1], "y": Y})
    [table] = tables
    np.testing.assert_array_equal(table["x"].values, X[:, 1])
    np.testing.assert_array_equal(table["y"].values, Y)
