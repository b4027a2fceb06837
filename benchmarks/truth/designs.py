"""Group c: predictors of odd scales, strongly correlated ones, and rare ones.

And the two plain designs that defaults were once tuned on, to see that they stay as good.
"""

from functools import cache, partial

import numpy as np
import pymc as pm
from scipy.special import expit

from benchmarks.truth.problem import ALL, ANY, Arrays, Problem, Truth

PLAIN_RECORDS, RECORDS, RARE_RECORDS = 2000, 5000, 10_000
# the design is part of a problem, as a table is: it is drawn once
DESIGN_SEED = 11
# intercept, age in years, and two predictors of unit size
AGE = np.array([-2.0, 0.04, 0.5, -0.5])


def logistic(prior_sd: float, data: Arrays) -> None:
    """Logistic regression on all columns of X, the intercept's among them."""
    b = pm.Normal("b", 0, prior_sd, shape=data["X"].shape[1])
    pm.Bernoulli("y", logit_p=pm.Data("X", data["X"]) @ b, observed=data["y"])


def answers(X: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> Arrays:
    """Draw outcomes of a logistic regression."""
    return {"X": X, "y": rng.binomial(1, expit(X @ b))}


def standard(size: int, rng: np.random.Generator) -> Truth:
    """Draw coefficients from standard normal priors."""
    return {"b": rng.normal(size=size)}


def _plain_predictors(rng: np.random.Generator) -> np.ndarray:
    return np.column_stack([rng.normal(size=(PLAIN_RECORDS, 3)), np.ones(PLAIN_RECORDS)])


def _plain_answers(truth: Truth, rng: np.random.Generator) -> Arrays:
    return answers(_plain_predictors(rng), truth["b"], rng)


def _plain_outcomes(truth: Truth, rng: np.random.Generator) -> Arrays:
    X = _plain_predictors(rng)
    return {"X": X, "y": rng.normal(X @ truth["b"], 1.0)}


def _known_noise(data: Arrays) -> None:
    b = pm.Normal("b", 0, 1, shape=4)
    pm.Normal("y", pm.Data("X", data["X"]) @ b, 1, observed=data["y"])


def _correlated(condition: float, truth: Truth, rng: np.random.Generator) -> Arrays:
    """Normal predictors whose covariance has the given condition number."""
    size = len(truth["b"])
    design = np.random.default_rng(DESIGN_SEED)
    directions = np.linalg.qr(design.normal(size=(size, size)))[0]
    scales = np.sqrt(np.geomspace(1, 1 / condition, size))
    X = (design.normal(size=(RECORDS, size)) * scales) @ directions.T
    return answers(X, truth["b"], rng)


@cache
def _rare() -> tuple[np.ndarray, np.ndarray]:
    """A hundred yes-no answers, given by 1% to 50% of the people, and their effects."""
    rng, size = np.random.default_rng(DESIGN_SEED), 101
    shares = np.geomspace(0.01, 0.5, size - 1)
    yes = (rng.random((RARE_RECORDS, size - 1)) < shares).astype(float)
    b = rng.normal(0, 0.7, size)
    b[0] = -(yes @ b[1:]).mean()
    return np.column_stack([np.ones(RARE_RECORDS), yes]), b


def _rare_truth(rng: np.random.Generator) -> Truth:
    return {"b": _rare()[1]}


def _rare_answers(truth: Truth, rng: np.random.Generator) -> Arrays:
    return answers(_rare()[0], truth["b"], rng)


def _age_truth(rng: np.random.Generator) -> Truth:
    return {"b": AGE}


def _age_answers(truth: Truth, rng: np.random.Generator) -> Arrays:
    years = rng.uniform(18, 80, RECORDS).round()
    X = np.column_stack([np.ones(RECORDS), years, rng.normal(size=(RECORDS, 2))])
    return answers(X, truth["b"], rng)


def _income_truth(rng: np.random.Generator) -> Truth:
    return {"a": rng.normal(0, 1e5), "b": rng.normal(0, 5e4, 3), "s": 1e5 * abs(rng.normal())}


def _incomes(truth: Truth, rng: np.random.Generator) -> Arrays:
    X = rng.normal(size=(RECORDS, 3))
    return {"X": X, "y": rng.normal(truth["a"] + X @ truth["b"], truth["s"])}


def _income(data: Arrays) -> None:
    a, b = pm.Normal("a", 0, 1e5), pm.Normal("b", 0, 5e4, shape=3)
    s = pm.HalfNormal("s", 1e5)
    pm.Normal("y", a + pm.Data("X", data["X"]) @ b, s, observed=data["y"])


_plain, _unit, _wide = partial(standard, 4), partial(logistic, 1.0), partial(logistic, 2.0)
PROBLEMS = (
    Problem("iid-linear", "c", _plain, _plain_outcomes, _known_noise, ALL),
    Problem("iid-logistic", "c", _plain, _plain_answers, _unit, ALL),
    *(
        Problem(f"condition-{k}", "c", partial(standard, 10), partial(_correlated, k), _unit, ALL)
        for k in (1, 50, 1000)
    ),
    # the curvature along many strong effects is far smaller than in other directions
    *(
        Problem(f"strong-{d}", "c", partial(standard, d), partial(_correlated, 1), _unit, ALL)
        for d in (20, 40)
    ),
    Problem("rare-binary", "c", _rare_truth, _rare_answers, _wide, ALL),
    Problem("age-in-years", "c", _age_truth, _age_answers, _wide, ALL),
    Problem("income", "c", _income_truth, _incomes, _income, ANY),
)
