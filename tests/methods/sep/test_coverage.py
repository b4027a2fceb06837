"""Intervals of stochastic expectation propagation without privacy hold what they promise."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit, ndtr

from pymc_dp.driver.setup import compile_method, set_up
from pymc_dp.privacy.wall import PrivacyWall

N, D, SETS, RELEASES = 400, 3, 150, 25
LINKS = {"logistic": (pm.math.invlogit, expit), "probit": (pm.math.invprobit, ndtr)}


def regression(link, X, y):
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=D)
        pm.Bernoulli("y", p=link(pm.math.dot(pm.Data("X", X), b)), observed=y)
    return model


def released(prepared, compiled, rng):
    wall = PrivacyWall(prepared.data, compiled.contributions, prepared.plan)
    state = prepared.method.init(rng)
    for _ in range(RELEASES):
        query = prepared.method.query(state, rng=rng)
        state = compiled.update(state, query, wall.release(query))
    return state.mean, prepared.method.describe(state)["standard_deviation"].values


@pytest.mark.slow
@pytest.mark.parametrize("name", LINKS)
def test_nine_in_ten_intervals_of_ninety_percent_hold_the_truth(name):
    link, mean_of = LINKS[name]
    rng, hits, compiled = np.random.default_rng(1), [], None
    for _ in range(SETS):
        X, truth = rng.normal(size=(N, D)), rng.normal(size=D)
        y = (rng.random(N) < mean_of(X @ truth)).astype(int)
        prepared = set_up(regression(link, X, y), "sep", RELEASES, num_records=N, sampling="full")
        compiled = compiled or compile_method(prepared, "python")
        mean, sd = released(prepared, compiled, rng)
        hits.append(np.abs(mean - truth) < 1.6449 * sd)
    # 450 intervals: a standard error of .014
    assert 0.87 < np.mean(hits) < 0.93
