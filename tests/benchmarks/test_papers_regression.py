"""The experiments on regressions: the papers' settings, the tasks, the scores and the peers."""

import argparse
import math
import sys
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import pymc_dp
from benchmarks.papers import abalone, auc, peers, same_data
from benchmarks.papers.paper_accounting import advanced_composition
from benchmarks.papers.same_data_problems import PROBLEMS, of_probability, score_logistic
from benchmarks.papers.tasks import Task, correlated, logistic, mode, sparse
from benchmarks.papers.tasks import accuracy as share_right
from benchmarks.papers.tasks import auc as area

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


@pytest.mark.parametrize("experiment", [abalone, auc])
def test_every_private_setting_is_repeated_as_often_as_asked(experiment, arguments):
    private = [cell for cell in experiment.cells(arguments) if cell.method != "not private"]
    repeated = Counter(str(cell._replace(seed=0)) for cell in private)
    assert set(repeated.values()) == {arguments.seeds}


def test_a_fit_without_noise_can_be_repeated(small):
    setting = abalone.default_setting(abalone.Cell("not private", 1.0, 1.0, 0.0, math.inf, 0))
    first, again, other = (
        abalone._fit(small, seed, **setting)["posterior"]["b"].to_numpy() for seed in (3, 3, 4)
    )
    assert (first == again).all()
    assert not (first == other).any()


def test_only_peers_claim_a_pure_epsilon(arguments):
    pure = {cell.method for cell in same_data.cells(arguments) if cell.delta == 0}
    assert pure == set(peers.PUBLIC)


@pytest.mark.parametrize(("make", "rows", "columns"), SHAPES)
def test_generated_tasks_have_an_intercept_and_both_outcomes(make, rows, columns):
    task = make(0)
    assert task.X.shape == (rows, columns)
    assert (task.X[:, -1] == 1).all()
    assert set(task.y) == set(task.y_held_out) == {0, 1}
    assert len(task.X_held_out) == len(task.y_held_out)


def test_generated_tasks_are_made_again_by_their_seed():
    first, again, other = correlated(1), correlated(1), correlated(2)
    assert (first.X == again.X).all()
    assert not (first.X == other.X).any(axis=0)[:-1].all()


def test_the_mode_balances_scores_and_prior(small):
    b = mode(small)
    np.testing.assert_allclose(small.X.T @ (small.y - expit(small.X @ b)), b, atol=1e-3)


def test_area_counts_pairs_in_order_and_halves_ties():
    y, score = np.array([1, 1, 0, 0]), np.array([2.0, 1.0, 1.0, 0.0])
    pairs = [(a > b) + (a == b) / 2 for a in score[y == 1] for b in score[y == 0]]
    assert area(y, score) == pytest.approx(np.mean(pairs))
    assert share_right(y, score - 1.5) == 0.75


def test_coefficients_of_zero_predict_nothing(small):
    scores = score_logistic(small, {"b": np.zeros((3, 2))})
    assert scores["log_density"] == pytest.approx(math.log(0.5))
    assert scores["accuracy"] == np.mean(small.y_held_out == 0)
    assert scores["auc"] == 0.5


def test_a_probability_of_zero_costs_much_and_not_everything(small):
    scores = of_probability(small, (1.0 - small.y_held_out))
    assert -40 < scores["log_density"] < -30
    assert scores["accuracy"] == scores["auc"] == 0


def test_errors_of_the_curve_are_of_differences_on_the_same_data():
    """Data sets differ by .1, and what privacy takes by nothing: there is no error."""
    columns = ["task", "method", "C", "epsilon", "seed", "auc", "accuracy"]
    rows = [("sparse", "not private", math.nan, math.inf, k, 0.8 + 0.1 * k, 0.5) for k in range(2)]
    rows += [("sparse", "vips", math.nan, 1.0, k, 0.7 + 0.1 * k, 0.5) for k in range(2)]
    rows += [("sparse", "peer", C, 1.0, k, 0.6 * C, 0.5) for k in range(2) for C in (0.1, 1.0)]
    summary = auc.summary(pd.DataFrame(rows, columns=columns)).set_index("method")
    assert summary.loc["vips", "error"] == pytest.approx(0.0, abs=1e-12)
    assert summary.loc["peer", "error"] == pytest.approx(0.05)
    assert summary.loc["peer", "C"] == 1.0


@pytest.mark.parametrize(("problem", "name"), PLACES)
def test_peers_are_given_public_bounds_and_refused_without(problem, name):
    setting = PROBLEMS[problem].peers[name].settings(1.0)
    assert setting["estimator"] == name
    peers.require_public(setting)
    for bound in peers.PUBLIC[name]:
        with pytest.raises(ValueError, match=f"{name} would read {bound} from the data"):
            peers.fit_peers(np.ones((2, 1)), np.ones(2), np.ones((2, 1)), [setting | {bound: None}])


def test_an_environment_that_cannot_be_made_says_why():
    command = [sys.executable, "-c", "raise OSError('no wheel for this platform')"]
    with pytest.raises(SystemExit, match=r"cannot be made\. .*no wheel for this platform"):
        peers._run(command, "The folder cannot be made")


def test_too_new_a_python_asks_for_another(monkeypatch):
    monkeypatch.setattr(peers, "VERSIONS", ((2, 4),))
    with pytest.raises(SystemExit, match=r"need Python 3.10 to 3.13, and none is on the path"):
        peers.interpreter()
