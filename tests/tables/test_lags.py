"""Outcomes that predict other rows of the same person: drawn with these rows, or refused."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.contributions.scores import compile_draws, drawn_name
from pymc_dp.model.separate import separate

rng = np.random.default_rng(0)
PERSONS, VISITS = 30, 5
PERSON = np.repeat(np.arange(PERSONS), VISITS)
EVERY = rng.normal(3.0, 1.0, size=(PERSONS, VISITS + 1))
Y, BEFORE = EVERY[:, 1:].ravel(), EVERY[:, :-1].ravel()


def rows(predictor, outcome=Y, person=PERSON, **keywords):
    """Explain a model with a row for each visit, of which nothing is spent."""
    with pm.Model() as model:
        pm.Data("person", person)
        eta = pm.Normal("b", 0, 1) * pm.Data("x", predictor) + pm.Normal("a", 0, 1)
        pm.Normal("y", eta, 1.0, observed=outcome)
    return pymc_dp.explain(model, unit="person", **keywords)


FIFTH = np.arange(len(Y)) % 5 != 2  # a visit of each person is not in the data
LAGS = {
    "the outcome of the visit before": (BEFORE, Y),
    "the outcome of the visit after": (np.append(Y[1:], 0.0), Y),
}


@pytest.mark.parametrize("case", LAGS)
def test_a_lag_of_persons_rows_is_refused_with_what_to_write(case):
    with pytest.raises(
        pymc_dp.NotSeparableError, match=r"`x` holds outcomes of `y`.*reads the one before"
    ):
        rows(*LAGS[case])


def test_lags_are_seen_where_visits_are_missing_or_persons_not_sorted_and_in_data():
    by_visit = np.arange(len(Y)).reshape(PERSONS, VISITS).T.ravel()
    for kept in (FIFTH, by_visit):
        with pytest.raises(pymc_dp.NotSeparableError, match="holds outcomes of `y`"):
            rows(BEFORE[kept], Y[kept], PERSON[kept])
    with pytest.raises(pymc_dp.NotSeparableError, match="holds outcomes of `y`"):
        rows(np.ones(4), np.arange(4.0), data={"x": BEFORE, "y": Y, "person": PERSON})


@pytest.mark.parametrize(
    "predictor",
    [
        rng.normal(size=len(Y)),
        np.tile(np.arange(5.0), PERSONS),  # time
        np.random.default_rng(1).permutation(BEFORE),
    ],
)
def test_other_predictors_are_no_lags(predictor):
    assert "vips: fits" in str(rows(predictor))


def chain(copies):
    with pm.Model() as model:
        r, before = pm.Normal("r", 0, 1), pm.Data("first", EVERY[:, 0])
        for t in range(1, 4):
            now = pm.Normal(f"y{t}", r * before, 1.0, observed=EVERY[:, t])
            before = pm.Data(f"copy{t}", EVERY[:, t]) if copies else now
    return model


def test_a_variable_that_reads_the_one_before_is_drawn_with_it():
    records, _ = separate(chain(copies=False))
    batch = {f"y{t}": EVERY[:, t] for t in range(1, 4)} | {"first": EVERY[:, 0]}
    draw = compile_draws(records, 200)
    drawn = draw(batch, np.array([2.0]), np.random.default_rng(0))
    one, two = (drawn[drawn_name(f"y{t}")] for t in (1, 2))
    assert abs((two - 2.0 * one).mean()) < 0.1
    assert (two - 2.0 * one).std() == pytest.approx(1.0, abs=0.05)


def instrument(copies):
    """A treatment that an instrument moves, and an outcome whose error is correlated with it."""
    z, e = np.random.default_rng(2).normal(size=(2, 60))
    t = z + e
    with pm.Model() as model:
        b, r, mean = pm.Normal("b"), pm.Normal("r"), pm.Normal("g") * pm.Data("z", z)
        observed = pm.Normal("t", mean, 1, observed=t)
        t = pm.Data("copy", t) if copies else observed
        pm.Normal("y", b * t + r * (t - mean), 1, observed=0.5 * z + 1.5 * e)
    return model


@pytest.mark.parametrize("ask", [pymc_dp.explain, pymc_dp.plan, pymc_dp.fit])
def test_copies_of_outcomes_that_distributions_read_are_refused(ask, no_release):
    settings = {} if ask is pymc_dp.explain else {"epsilon": 1, "delta": 1e-5}
    for build in (instrument, chain):
        with pytest.raises(pymc_dp.NotSeparableError, match=r"also among.*b \* t \+ r \* "):
            ask(model=build(True), **settings)
        assert separate(build(False))[0].outcomes
