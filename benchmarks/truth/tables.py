"""Group b: predictors of real tables, with outcomes simulated from a known truth.

The truth is the mode of the posterior of the real outcome, the same for all data sets, or drawn
from standard normal priors. Nothing here is private: all tables are public data.
"""

import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
from scipy.special import expit

from benchmarks import affairs
from benchmarks.data import VARIABLE, load
from benchmarks.truth.designs import answers, logistic, standard
from benchmarks.truth.problem import ALL, ANY, Arrays, Problem, Truth

PRIOR_SD = 2.0
NEWTON_STEPS = 50
# of a fixed truth: further ones differ between machines
DIGITS = 4


class Table(NamedTuple):
    """Predictors, the intercept's column first, and the real outcome."""

    X: np.ndarray
    y: np.ndarray


def _survey() -> Table:
    survey, _ = affairs.load()
    jobs = np.eye(len(affairs.OCCUPATIONS))[survey.occupation][:, :-1]
    return Table(_with_intercept(survey.answers, jobs), survey.affair)


def _read(file: str) -> dict[str, np.ndarray]:
    return load(Path(os.environ.get(VARIABLE, "data")), file)


def _abalone() -> Table:
    table = _read("uci_abalone.npz")
    sex = np.eye(len(table["sex_names"]))[table["sex"].astype(int)][:, :-1]
    return Table(_with_intercept(_in_range(table["X"]), sex), (table["rings"] > 9).astype(int))


def _uci(file: str, outcome: Callable[[np.ndarray], np.ndarray]) -> Table:
    table = _read(f"uci_{file}.npz")
    varied = table["X"][:, np.ptp(table["X"], axis=0) > 0]
    return Table(_with_intercept(_in_range(varied)), outcome(table["y"]))


def _in_range(X: np.ndarray) -> np.ndarray:
    """Scale every column to [-1, 1], as by limits that are known of a measurement."""
    low, high = X.min(axis=0), X.max(axis=0)
    return (2 * X - low - high) / (high - low)


def _with_intercept(*columns: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(columns[0])), *columns])


@cache
def _logistic_mode(read: Callable[[], Table]) -> np.ndarray:
    """Find the posterior mode of the real outcome, by Newton steps."""
    X, y = read()
    b = np.zeros(X.shape[1])
    for _ in range(NEWTON_STEPS):
        p = expit(X @ b)
        curvature = (X.T * (p * (1 - p))) @ X + np.eye(len(b)) / PRIOR_SD**2
        b += np.linalg.solve(curvature, X.T @ (y - p) - b / PRIOR_SD**2)
    return b.round(DIGITS)


@cache
def _least_squares(read: Callable[[], Table]) -> tuple[np.ndarray, float]:
    X, y = read()
    b = np.linalg.lstsq(X, y, rcond=None)[0]
    return b.round(DIGITS), round(float(np.std(y - X @ b)), DIGITS)


_cached = cache(lambda read: read().X)


def _fixed_effects(read: Callable[[], Table], rng: np.random.Generator) -> Truth:
    return {"b": _logistic_mode(read)}


def _drawn_effects(read: Callable[[], Table], rng: np.random.Generator) -> Truth:
    return standard(_cached(read).shape[1], rng)


def _answers(read: Callable[[], Table], truth: Truth, rng: np.random.Generator) -> Arrays:
    return answers(_cached(read), truth["b"], rng)


def _fixed_slopes(read: Callable[[], Table], rng: np.random.Generator) -> Truth:
    b, s = _least_squares(read)
    return {"b": b, "s": s}


def _drawn_slopes(read: Callable[[], Table], rng: np.random.Generator) -> Truth:
    return standard(_cached(read).shape[1], rng) | {"s": abs(rng.normal())}


def _outcomes(read: Callable[[], Table], truth: Truth, rng: np.random.Generator) -> Arrays:
    X = _cached(read)
    return {"X": X, "y": rng.normal(X @ truth["b"], truth["s"])}


def _linear(prior_sd: float, data: Arrays) -> None:
    b = pm.Normal("b", 0, prior_sd, shape=data["X"].shape[1])
    s = pm.HalfNormal("s", 1)
    pm.Normal("y", pm.Data("X", data["X"]) @ b, s, observed=data["y"])


def _demo_truth(rng: np.random.Generator) -> Truth:
    """Take the survey's mode apart: effects of occupations around their mean."""
    b = _logistic_mode(_survey)
    jobs = np.append(b[-5:], 0.0)
    effects = {"effect": b[1:-5], "occupation_effect": jobs - jobs.mean()}
    return {"intercept": b[0] + jobs.mean(), **effects}


def _demo_answers(truth: Truth, rng: np.random.Generator) -> Arrays:
    survey, _ = affairs.load()
    eta = truth["intercept"] + survey.answers @ truth["effect"]
    p = expit(eta + truth["occupation_effect"][survey.occupation])
    return {"answers": survey.answers, "job": survey.occupation, "affair": rng.binomial(1, p)}


def _demo(data: Arrays) -> None:
    affairs.describe(affairs.Survey(data["answers"], data["job"], data["affair"]))


def _is_above(limit: float, y: np.ndarray) -> np.ndarray:
    return (y > limit).astype(int)


LOGISTIC = {
    "survey": _survey,
    "abalone": _abalone,
    "wine": partial(_uci, "wine_quality_red", partial(_is_above, 5)),
    "protein": partial(_uci, "protein_tertiary_structure", partial(_is_above, 5)),
    "naval": partial(_uci, "naval_propulsion_plant", partial(_is_above, 0.975)),
}
LINEAR = {
    "power": partial(_uci, "power_plant", lambda y: (y - 450) / 20),
    "arm": partial(_uci, "kin8nm", lambda y: 4 * (y - 0.7)),
}


def _problems(name: str, read: Callable[[], Table]) -> tuple[Problem, Problem]:
    if name in LOGISTIC:
        truths, data, model, methods = (_fixed_effects, _drawn_effects), _answers, logistic, ALL
    else:
        truths, data, model, methods = (_fixed_slopes, _drawn_slopes), _outcomes, _linear, ANY
    fixed, drawn = (partial(truth, read) for truth in truths)
    make = partial(data, read)
    return (
        Problem(f"{name}-fixed", "b", fixed, make, partial(model, PRIOR_SD), methods),
        Problem(f"{name}-drawn", "b", drawn, make, partial(model, 1.0), methods),
    )


PROBLEMS = (
    Problem("survey-demo", "b", _demo_truth, _demo_answers, _demo, ANY, backend="python"),
    *(p for name, read in (LOGISTIC | LINEAR).items() for p in _problems(name, read)),
)
