"""Two problems that this package and diffprivlib can both be given."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from scipy.special import expit, log_expit
from scipy.stats import norm

from benchmarks.papers.peers import NORM, objective_perturbation
from benchmarks.papers.tasks import Task, abalone, accuracy, auc, log_density, logistic, power

Draws = Mapping[str, np.ndarray]
Scores = dict[str, float]
# public: standardised columns lie within three standard deviations; the rest is shortened to that
BOUNDS = (-3.0, 3.0)


class Peer(NamedTuple):
    """An estimator of diffprivlib: settings by epsilon, and what rows are divided by."""

    settings: Callable[[float], dict[str, Any]]
    scale: float = 1.0


class Problem(NamedTuple):
    """A model and its scores, and the peers for the same data.

    Attributes
    ----------
    load : folder -> Task
    model : Task -> pm.Model
    score : (Task, draws) -> dict
        Of held-out rows, from posterior draws whose first axis are the draws.
    peers : dict
        By the name of the estimator.
    score_peer : (Task, predictions) -> dict
    """

    load: Callable[[Path], Task]
    model: Callable[[Task], pm.Model]
    score: Callable[[Task, Draws], Scores]
    peers: dict[str, Peer]
    score_peer: Callable[[Task, np.ndarray], Scores]


def linear(task: Task) -> pm.Model:
    with pm.Model() as model:
        precision = pm.Gamma("precision", 2, 1)
        b = pm.Normal("b", 0, 1, shape=task.X.shape[1])
        pm.Normal("y", pm.math.dot(task.X, b), tau=precision, observed=task.y)
    return model


def score_logistic(task: Task, draws: Draws) -> Scores:
    return of_log_odds(task, draws["b"] @ task.X_held_out.T)


def of_log_odds(task: Task, log_odds: np.ndarray) -> Scores:
    """Score log odds of a one, (draws, rows), by their mean probability over the draws."""
    probability = expit(log_odds).mean(axis=0)
    return {
        "accuracy": accuracy(task.y_held_out, probability - 0.5),
        "auc": auc(task.y_held_out, probability),
        "log_density": log_density(log_expit(np.where(task.y_held_out, log_odds, -log_odds))),
    }


def score_linear(task: Task, draws: Draws) -> Scores:
    means = draws["b"] @ task.X_held_out.T
    each = norm.logpdf(task.y_held_out, means, draws["precision"][:, None] ** -0.5)
    return of_prediction(task, means.mean(axis=0)) | {"log_density": log_density(each)}


def of_prediction(task: Task, prediction: np.ndarray) -> Scores:
    return {"rmse": float(np.sqrt(np.mean((prediction - task.y_held_out) ** 2)))}


def of_probability(task: Task, probability: np.ndarray) -> Scores:
    """Score the peer's probabilities, which are 0 or 1 where doubles have no other number left."""
    tiny = np.finfo(float).eps
    probability = np.clip(probability, tiny, 1 - tiny)
    return of_log_odds(task, (np.log(probability) - np.log1p(-probability))[None])


def naive_bayes(epsilon: float) -> dict[str, Any]:
    return {"estimator": "GaussianNB", "epsilon": epsilon, "bounds": BOUNDS}


def least_squares(epsilon: float) -> dict[str, Any]:
    """Without an intercept: with one, bounds move by a noisy offset and are no bounds any more."""
    fixed = {"estimator": "LinearRegression", "bounds_X": BOUNDS, "bounds_y": BOUNDS}
    return fixed | {"fit_intercept": False, "epsilon": epsilon}


PROBLEMS = {
    "logistic": Problem(
        abalone,
        logistic,
        score_logistic,
        {
            "LogisticRegression": Peer(partial(objective_perturbation, 1.0), NORM),
            "GaussianNB": Peer(naive_bayes),
        },
        of_probability,
    ),
    "linear": Problem(
        power, linear, score_linear, {"LinearRegression": Peer(least_squares)}, of_prediction
    ),
}
