"""Group a: the six simplest models, those on which the closest peer was measured.

Priors are those of Alrawajfeh, Jälkö and Honkela (2025), "Noise-aware differentially private
variational inference"; the models are written as PyMC users write them.
"""

import numpy as np
import pymc as pm
from scipy.special import expit

from benchmarks.truth.problem import ALL, ANY, CONJUGATE, Arrays, Problem, Truth

RECORDS = 5000
ALPHAS = np.full(3, 5.0)
# the peer's coefficients have a prior sd of 2 noise sds, whose square is .026 on average
SLOPE_SD = 0.32


def _rate(rng: np.random.Generator) -> Truth:
    return {"rate": rng.gamma(8.0, 1 / 2.0)}


def _waiting_times(truth: Truth, rng: np.random.Generator) -> Arrays:
    return {"y": rng.exponential(1 / truth["rate"], RECORDS)}


def _exponential(data: Arrays) -> None:
    rate = pm.Gamma("rate", 8, 2)
    pm.Exponential("y", rate, observed=data["y"])


def _probability(rng: np.random.Generator) -> Truth:
    return {"p": rng.beta(10, 10)}


def _coins(truth: Truth, rng: np.random.Generator) -> Arrays:
    return {"y": rng.binomial(1, truth["p"], RECORDS)}


def _bernoulli(data: Arrays) -> None:
    p = pm.Beta("p", 10, 10)
    pm.Bernoulli("y", p, observed=data["y"])


def _shares(rng: np.random.Generator) -> Truth:
    return {"p": rng.dirichlet(ALPHAS)}


def _choices(truth: Truth, rng: np.random.Generator) -> Arrays:
    return {"y": rng.choice(len(ALPHAS), RECORDS, p=truth["p"])}


def _categorical(data: Arrays) -> None:
    p = pm.Dirichlet("p", ALPHAS)
    pm.Categorical("y", p, observed=data["y"])


def _three(rng: np.random.Generator) -> Truth:
    return {"b": rng.normal(size=3)}


def _answers(truth: Truth, rng: np.random.Generator) -> Arrays:
    X = rng.uniform(-1, 1, (RECORDS, 3))
    return {"X": X, "y": rng.binomial(1, expit(X @ truth["b"]))}


def _logistic(data: Arrays) -> None:
    b = pm.Normal("b", 0, 1, shape=3)
    pm.Bernoulli("y", logit_p=pm.Data("X", data["X"]) @ b, observed=data["y"])


def _slopes_and_variance(rng: np.random.Generator) -> Truth:
    return {"b": rng.normal(0, SLOPE_SD, 11), "s2": 0.5 / rng.gamma(20)}


def _slopes_and_precision(rng: np.random.Generator) -> Truth:
    return {"b": rng.normal(0, SLOPE_SD, 11), "tau": rng.gamma(20, 1 / 0.5)}


def _outcomes(truth: Truth, rng: np.random.Generator) -> Arrays:
    X = np.column_stack([rng.normal(size=(RECORDS, 10)), np.ones(RECORDS)])
    sd = np.sqrt(truth["s2"] if "s2" in truth else 1 / truth["tau"])
    return {"X": X, "y": rng.normal(X @ truth["b"], sd)}


def _linear(data: Arrays) -> None:
    s2 = pm.InverseGamma("s2", 20, 0.5)
    b = pm.Normal("b", 0, SLOPE_SD, shape=11)
    pm.Normal("y", pm.Data("X", data["X"]) @ b, pm.math.sqrt(s2), observed=data["y"])


def _linear_precision(data: Arrays) -> None:
    tau = pm.Gamma("tau", 20, 0.5)
    b = pm.Normal("b", 0, SLOPE_SD, shape=11)
    pm.Normal("y", pm.Data("X", data["X"]) @ b, tau=tau, observed=data["y"])


def _mean_and_sd(rng: np.random.Generator) -> Truth:
    return {"mu": rng.normal(), "s": abs(rng.normal())}


def _measurements(truth: Truth, rng: np.random.Generator) -> Arrays:
    return {"y": rng.normal(truth["mu"], truth["s"], RECORDS)}


def _normal(data: Arrays) -> None:
    mu, s = pm.Normal("mu"), pm.HalfNormal("s")
    pm.Normal("y", mu, s, observed=data["y"])


PROBLEMS = (
    Problem("exponential", "a", _rate, _waiting_times, _exponential, CONJUGATE),
    Problem("bernoulli", "a", _probability, _coins, _bernoulli, CONJUGATE),
    Problem("categorical", "a", _shares, _choices, _categorical, CONJUGATE),
    Problem("logistic-3", "a", _three, _answers, _logistic, ALL),
    Problem("linear-10", "a", _slopes_and_variance, _outcomes, _linear, ALL),
    Problem("linear-10-precision", "a", _slopes_and_precision, _outcomes, _linear_precision, ALL),
    Problem("normal", "a", _mean_and_sd, _measurements, _normal, ANY),
)
