"""The experiments on regressions: the papers' settings, the tasks, the scores and the peers."""

import argparse
import math

import numpy as np
import pytest
from scipy.special import expit

import pymc_dp
from benchmarks.papers import abalone, auc, peers, same_data
from benchmarks.papers.paper_accounting import advanced_composition
from benchmarks.papers.same_data_problems import PROBLEMS
from benchmarks.papers.tasks import Task, correlated, logistic, sparse

NOISE = list(zip(abalone.SIGMAS, (0.936, 0.433, 0.168), strict=True))
SHAPES = [(correlated, 3341, 9), (sparse, 10_000, 101)]
PLACES = [(problem, name) for problem in PROBLEMS for name in PROBLEMS[problem].peers]


@pytest.fixture
def arguments(tmp_path):
    return argparse.Namespace(seeds=2, data_dir=tmp_path)


@pytest.fixture
def small():
    rng = np.random.default_rng(4)
    X, rows = rng.normal(size=(60, 2)), rng.normal(size=(40, 2))
    b = np.array([1.0, -0.5])
    return Task(X, rng.binomial(1, expit(X @ b)), rows, rng.binomial(1, expit(rows @ b)))


@pytest.mark.parametrize(("sigma", "paper"), NOISE)
def test_noise_levels_are_those_of_the_papers_epsilons(sigma, paper):
    setting = {"sample_rate": abalone.SAMPLE_RATE, "n": abalone.RELEASES, "delta": abalone.DELTA}
    assert advanced_composition(sigma=sigma, **setting) == pytest.approx(paper, abs=5e-4)


def test_todays_epsilon_is_that_of_the_fit_and_far_below_the_papers(small):
    cell = abalone.Cell("paper", 1.0, abalone.SAMPLE_RATE, abalone.SIGMAS[0], math.nan, 0)
    accounted = abalone._accounted(cell)
    plan = pymc_dp.plan(model=logistic(small), delta=abalone.DELTA, **abalone.paper_setting(cell))
    assert accounted["today"] == pytest.approx(plan.epsilon, rel=1e-9)
    assert accounted["today"] < accounted["today_1e-5"] < accounted["paper"] / 10


@pytest.mark.parametrize("experiment", [abalone, auc, same_data])
def test_no_cell_is_listed_twice(experiment, arguments):
    cells = list(experiment.cells(arguments))
    assert len(set(map(str, cells))) == len(cells)


@pytest.mark.parametrize(("make", "rows", "columns"), SHAPES)
def test_generated_tasks_have_an_intercept_and_both_outcomes(make, rows, columns):
    task = make(0)
    assert task.X.shape == (rows, columns)
    assert (task.X[:, -1] == 1).all()
    assert set(task.y) == set(task.y_held_out) == {0, 1}
    assert len(task.X_held_out) == len(task.y_held_out)


@pytest.mark.parametrize(("problem", "name"), PLACES)
def test_peers_are_given_public_bounds_and_refused_without(problem, name):
    setting = PROBLEMS[problem].peers[name].settings(1.0)
    assert setting["estimator"] == name
    peers.require_public(setting)
    for bound in peers.PUBLIC[name]:
        with pytest.raises(ValueError, match=f"{name} would read {bound} from the data"):
            peers.fit_peers(np.ones((2, 1)), np.ones(2), np.ones((2, 1)), [setting | {bound: None}])
