"""Group e: latents of single persons, which the fit integrates out.

The reference integrates them by fifty nodes of Gauss-Hermite quadrature around the prior.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import expit

from benchmarks.truth.problem import ANY, Arrays, Problem, Truth

PERSONS, ROWS, PREDICTORS = 2000, 5, 2
EXAMINEES, ITEMS = 3000, 20
PUPILS, QUESTIONS, ASKED = 2000, 12, 8
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(50)
LOG_WEIGHTS = np.log(WEIGHTS / WEIGHTS.sum())


def _integrate(outcome: Callable[[float], pt.TensorVariable], y: pt.TensorVariable) -> None:
    """Add the log density of each person's outcomes, integrated over a standard normal latent."""
    each = [pm.logp(outcome(t), y).sum(axis=1) + w for t, w in zip(NODES, LOG_WEIGHTS, strict=True)]
    pm.Potential("marginal", pt.logsumexp(pt.stack(each, axis=1), axis=1))


def _intercepts(rng: np.random.Generator) -> Truth:
    return {
        "slope": rng.normal(0, 0.5, PREDICTORS),
        "mean": rng.normal(0, 0.5),
        "log_sd": rng.normal(-0.5, 0.5),
    }


def visits(poisson: bool, persons: int, truth: Truth, rng: np.random.Generator) -> Arrays:
    """Observe each person a few times; the arrays of the reference have a row a person."""
    X = rng.normal(size=(persons, ROWS, PREDICTORS))
    own = rng.normal(truth["mean"], np.exp(truth["log_sd"]), persons)
    psi = X @ truth["slope"] + own[:, None]
    y = rng.poisson(np.exp(psi)) if poisson else rng.binomial(1, expit(psi))
    person = np.repeat(np.arange(persons), ROWS)
    long = {"X": X.reshape(-1, PREDICTORS), "person": person, "y": y.ravel()}
    return long | {"X_of_person": X, "y_of_person": y}


def _population() -> tuple:
    slope = pm.Normal("slope", 0, 0.5, shape=PREDICTORS)
    return slope, pm.Normal("mean", 0, 0.5), pm.Normal("log_sd", -0.5, 0.5)


def _outcome(poisson: bool, psi) -> pm.Distribution:
    return pm.Poisson.dist(pt.exp(psi)) if poisson else pm.Bernoulli.dist(logit_p=psi)


def mixed(poisson: bool, data: Arrays) -> None:
    slope, mean, log_sd = _population()
    own = pm.Normal("own", mean, pt.exp(log_sd), shape=len(data["X_of_person"]))
    psi = pm.Data("X", data["X"]) @ slope + own[pm.Data("person", data["person"])]
    if poisson:
        pm.Poisson("y", pt.exp(psi), observed=data["y"])
    else:
        pm.Bernoulli("y", logit_p=psi, observed=data["y"])


def mixed_regular(poisson: bool, data: Arrays) -> None:
    slope, mean, log_sd = _population()
    X, y = (
        pm.Data("X_of_person", data["X_of_person"]),
        pm.Data("y_of_person", data["y_of_person"]),
    )
    fixed = (X * slope).sum(axis=-1)
    _integrate(lambda t: _outcome(poisson, fixed + mean + pt.exp(log_sd) * t), y)


def _items(rng: np.random.Generator) -> Truth:
    return {"easy": rng.normal(size=ITEMS), "sharp": np.exp(rng.normal(0, 0.3, ITEMS))}


def _answers(truth: Truth, rng: np.random.Generator) -> Arrays:
    ability = rng.normal(size=(EXAMINEES, 1))
    return {"y": rng.binomial(1, expit(truth["sharp"] * ability + truth["easy"]))}


def _item_response(data: Arrays) -> None:
    easy, sharp = pm.Normal("easy", shape=ITEMS), pm.LogNormal("sharp", 0, 0.3, shape=ITEMS)
    ability = pm.Normal("ability", shape=EXAMINEES)
    pm.Bernoulli("y", logit_p=ability[:, None] * sharp + easy, observed=data["y"])


def _item_response_regular(data: Arrays) -> None:
    easy, sharp = pm.Normal("easy", shape=ITEMS), pm.LogNormal("sharp", 0, 0.3, shape=ITEMS)
    y = pm.Data("y", data["y"])
    _integrate(lambda t: pm.Bernoulli.dist(logit_p=t * sharp + easy), y)


def _questions(rng: np.random.Generator) -> Truth:
    spread = abs(rng.normal())
    return {"spread": spread, "easy": rng.normal(0, spread, QUESTIONS)}


def _asked(truth: Truth, rng: np.random.Generator) -> Arrays:
    """Ask each pupil some of the questions, in a row each."""
    ability = rng.normal(size=(PUPILS, 1))
    question = rng.permuted(np.tile(np.arange(QUESTIONS), (PUPILS, 1)), axis=1)[:, :ASKED]
    y = rng.binomial(1, expit(ability + truth["easy"][question]))
    pupil = np.repeat(np.arange(PUPILS), ASKED)
    long = {"pupil": pupil, "question": question.ravel(), "y": y.ravel()}
    return long | {"questions": question, "answers": y}


def _spread_of_questions() -> pt.TensorVariable:
    return pm.Normal("easy", 0, pm.HalfNormal("spread"), shape=QUESTIONS)


def _crossed(data: Arrays) -> None:
    easy, ability = _spread_of_questions(), pm.Normal("ability", shape=PUPILS)
    psi = ability[pm.Data("pupil", data["pupil"])] + easy[pm.Data("question", data["question"])]
    pm.Bernoulli("y", logit_p=psi, observed=data["y"])


def _crossed_regular(data: Arrays) -> None:
    easy, y = (
        _spread_of_questions()[pm.Data("questions", data["questions"])],
        pm.Data("answers", data["answers"]),
    )
    _integrate(lambda t: pm.Bernoulli.dist(logit_p=t + easy), y)


PROBLEMS = (
    *(
        Problem(
            f"random-intercept-{name}",
            "e",
            _intercepts,
            partial(visits, poisson, PERSONS),
            partial(mixed, poisson),
            ANY,
            unit="person",
            backend="python",
            regular=partial(mixed_regular, poisson),
        )
        for name, poisson in (("logistic", False), ("poisson", True))
    ),
    Problem(
        "item-response",
        "e",
        _items,
        _answers,
        _item_response,
        ANY,
        backend="python",
        regular=_item_response_regular,
    ),
    Problem(
        "answers-to-questions",
        "e",
        _questions,
        _asked,
        _crossed,
        ANY,
        spread="spread_log__",
        unit="pupil",
        backend="python",
        regular=_crossed_regular,
    ),
)
