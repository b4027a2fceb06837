"""Directions of latents of which no record can tell are known before any release."""

import numpy as np
import pymc as pm
import pytest

from pymc_dp.contributions.scores import drawn_scores
from pymc_dp.engine.curvature import without_null_space
from pymc_dp.engine.made_up import null_space_of
from tests.zoo import separated

ROWS, GROUPS = 80, 7
rng = np.random.default_rng(0)
FIRST, SECOND, X = np.arange(ROWS) % GROUPS, np.arange(ROWS) % 3, rng.normal(size=ROWS)


def effects(name, member, number):
    return pm.Normal(name, shape=number)[pm.Data(f"{name}_of", member)]


def outcome(mean):
    pm.Bernoulli("y", logit_p=mean, observed=FIRST % 2)


def intercept_and_groups():
    outcome(pm.Normal("a") + effects("u", FIRST, GROUPS) + pm.Normal("b") * pm.Data("x", X))


def groups_alone():
    outcome(effects("u", FIRST, GROUPS) + pm.Normal("b") * pm.Data("x", X))


def crossed_groups():
    outcome(pm.Normal("a") + effects("u", FIRST, GROUPS) + effects("v", SECOND, 3))


def several_outcomes():
    """Of a matrix, so that scores are not made of vectors."""
    u = pm.Normal("u", shape=(GROUPS, 2))[pm.Data("member", FIRST)]
    observed = np.stack([FIRST % 2, SECOND % 2], axis=1)
    pm.Bernoulli("y", logit_p=pm.Normal("a", shape=2) + u, observed=observed)


def units_of_1e5():
    x = pm.Data("x", 1e5 * X)
    mean = pm.Normal("a", 0, 1e6) + pm.Normal("b", 0, 10) * x
    pm.Normal("y", mean, pm.HalfNormal("s", 1e5), observed=1e5 * X + 1.0)


def threshold():
    """The second intercept counts where x is large alone: few made-up records show it."""
    late = pm.math.switch(pm.Data("x", X) > 2000, pm.Normal("b"), 0.0)
    outcome(pm.Normal("a") + late)


def from_2005_on():
    """Whole numbers that are no indices: small ones do not tell the two latents apart."""
    year = pm.Data("year", 2000 + FIRST)
    outcome(pm.Normal("a") + pm.Normal("b") * pm.math.switch(year < 2005, 1.0, 2.0))


def several_waiting_times():
    """Outcomes of 0 are impossible, and those of 1 are all alike."""
    pm.Gamma(
        "y", pm.HalfNormal("shape", shape=5), 1.0, observed=np.ones((ROWS, 5)) + FIRST[:, None]
    )


def ten_categories():
    """Scores of one point and one outcome are all the same."""
    p = pm.math.softmax(pm.Normal("z", shape=10))
    pm.Categorical("y", p=p, observed=FIRST)


def directions(build):
    with pm.Model() as model:
        build()
    records = separated(model)[0]
    return records.labels, null_space_of(records, drawn_scores(records))


@pytest.mark.parametrize(
    ("build", "number"),
    [(intercept_and_groups, 1), (crossed_groups, 2), (several_outcomes, 2)],
)
def test_an_intercept_and_all_effects_of_a_set_of_groups_trade_places(build, number):
    labels, found = directions(build)
    assert found.shape == (len(labels), number)
    assert found.T @ found == pytest.approx(np.eye(number))
    rise = np.array([{"a": 1.0, "u": -1.0}.get(name.split("[")[0], 0.0) for name in labels])
    assert found @ (found.T @ rise) == pytest.approx(rise)


@pytest.mark.parametrize(
    "build",
    [
        *(groups_alone, units_of_1e5, threshold),
        *(from_2005_on, several_waiting_times, ten_categories),
    ],
)
def test_records_tell_of_all_latents_elsewhere(build):
    assert directions(build)[1].shape[1] == 0


def test_a_release_that_shows_a_curvature_there_is_believed():
    N = np.array([[1.0], [-1.0]])
    for H, is_contradicted in ((np.full((2, 2), 50.0), False), (np.diag([50.0, 50.0]), True)):
        found = without_null_space(H[None], N, edge=1.0)[0]
        assert (N.T @ found @ N == pytest.approx(100.0)) == is_contradicted
        assert (found == pytest.approx(H)) or not is_contradicted
