"""Intervals of stochastic expectation propagation without privacy hold what they promise."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit, ndtr

from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import compile_method
from pymc_dp.model import Column, PrivateData
from pymc_dp.privacy.wall import PrivacyWall

N, D, SETS, RELEASES = 400, 3, 150, 25
LINKS = {"logistic": (pm.math.invlogit, expit), "probit": (pm.math.invprobit, ndtr)}


def regression(link, X, y):
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=D)
        pm.Bernoulli("y", p=link(pm.math.dot(pm.Data("X", X), b)), observed=y)
    return model


def data_set(mean_of, rng):
    X, truth = rng.normal(size=(N, D)), rng.normal(size=D)
    return truth, {"X": X, "y": (rng.random(N) < mean_of(X @ truth)).astype(int)}


def released(prepared, compiled, arrays, rng):
    spec = prepared.data.spec
    columns = {name: Column(x, spec[name].axis, spec[name].dtype) for name, x in arrays.items()}
    wall = PrivacyWall(PrivateData(columns, None), compiled.contributions, prepared.plan)
    state = prepared.method.init(rng)
    for _ in range(RELEASES):
        query = prepared.method.query(state, rng=rng)
        state = compiled.update(state, query, wall.release(query))
    return state.mean, prepared.method.describe(state)["standard_deviation"].values


@pytest.mark.slow
@pytest.mark.parametrize("name", LINKS)
def test_nine_in_ten_intervals_of_ninety_percent_hold_the_truth(name):
    link, mean_of = LINKS[name]
    rng, hits = np.random.default_rng(1), []
    _, example = data_set(mean_of, np.random.default_rng(0))
    terms = {"num_records": N, "sampling": "full"}
    prepared = set_up(regression(link, **example), "sep", RELEASES, **terms)
    compiled = compile_method(prepared, "python")
    for _ in range(SETS):
        truth, arrays = data_set(mean_of, rng)
        mean, sd = released(prepared, compiled, arrays, rng)
        hits.append(np.abs(mean - truth) < 1.6449 * sd)
    # 450 intervals: a standard error of .014
    assert 0.87 < np.mean(hits) < 0.93
