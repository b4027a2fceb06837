"""Models whose truth is drawn from their own prior, and data from the truth."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pymc as pm
from scipy.special import expit

PREDICTORS = 4
GROUPS = 8
CENTRES = np.array([-3.0, 3.0])

Truth = dict[str, np.ndarray]
Arrays = dict[str, np.ndarray]


class Problem(NamedTuple):
    """One model of the benchmark.

    Attributes
    ----------
    truth : rng -> {latent: value}
        A draw from the prior.
    data : (truth, records, rng) -> {leaf: values}
    model : data -> pm.Model
    """

    truth: Callable[[np.random.Generator], Truth]
    data: Callable[[Truth, int, np.random.Generator], Arrays]
    model: Callable[[Arrays], pm.Model]


def _design(rows: int, rng: np.random.Generator) -> np.ndarray:
    return np.column_stack([rng.normal(size=(rows, PREDICTORS - 1)), np.ones(rows)])


def _coefficients(rng: np.random.Generator) -> Truth:
    return {"b": rng.normal(size=PREDICTORS)}


def _linear_data(truth: Truth, rows: int, rng: np.random.Generator) -> Arrays:
    X = _design(rows, rng)
    return {"X": X, "y": rng.normal(X @ truth["b"], 1.0)}


def _linear(data: Arrays) -> pm.Model:
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=PREDICTORS)
        pm.Normal("y", pm.Data("X", data["X"]) @ b, 1, observed=data["y"])
    return model


def _logistic_data(truth: Truth, rows: int, rng: np.random.Generator) -> Arrays:
    X = _design(rows, rng)
    return {"X": X, "y": rng.binomial(1, expit(X @ truth["b"]))}


def _logistic(data: Arrays) -> pm.Model:
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=PREDICTORS)
        pm.Bernoulli("y", logit_p=pm.Data("X", data["X"]) @ b, observed=data["y"])
    return model


def _rates(rng: np.random.Generator) -> Truth:
    return {"b": rng.normal(0, 0.5, size=PREDICTORS)}


def _poisson_data(truth: Truth, rows: int, rng: np.random.Generator) -> Arrays:
    X = _design(rows, rng)
    return {"X": X, "y": rng.poisson(np.exp(X @ truth["b"]))}


def _poisson(data: Arrays) -> pm.Model:
    with pm.Model() as model:
        b = pm.Normal("b", 0, 0.5, shape=PREDICTORS)
        pm.Poisson("y", pm.math.exp(pm.Data("X", data["X"]) @ b), observed=data["y"])
    return model


def _groups(rng: np.random.Generator) -> Truth:
    tau = rng.gamma(4, 1 / 4)
    mu = rng.normal()
    return {
        "mu": mu,
        "tau": tau,
        "slope": rng.normal(),
        "group": rng.normal(mu, tau**-0.5, size=GROUPS),
    }


def _hierarchical_data(truth: Truth, rows: int, rng: np.random.Generator) -> Arrays:
    member = rng.integers(0, GROUPS, rows)
    x = rng.normal(size=rows)
    p = expit(truth["group"][member] + truth["slope"] * x)
    return {"member": member, "x": x, "y": rng.binomial(1, p)}


def _hierarchical(data: Arrays) -> pm.Model:
    with pm.Model(coords={"school": np.arange(GROUPS)}) as model:
        mu = pm.Normal("mu", 0, 1)
        tau = pm.Gamma("tau", 4, 4)
        slope = pm.Normal("slope", 0, 1)
        group = pm.Normal("group", mu, tau=tau, dims="school")
        psi = group[pm.Data("member", data["member"])] + slope * pm.Data("x", data["x"])
        pm.Bernoulli("y", logit_p=psi, observed=data["y"])
    return model


def _means(rng: np.random.Generator) -> Truth:
    return {"centre": rng.normal(CENTRES, 1.0)}


def _mixture_data(truth: Truth, rows: int, rng: np.random.Generator) -> Arrays:
    chosen = rng.integers(0, 2, rows)
    return {"y": rng.normal(truth["centre"][chosen], 1.0)}


def _mixture(data: Arrays) -> pm.Model:
    with pm.Model() as model:
        centre = pm.Normal("centre", CENTRES, 1, shape=2)
        pm.NormalMixture("y", w=[0.5, 0.5], mu=centre, sigma=1, observed=data["y"])
    return model


PROBLEMS = {
    "linear": Problem(_coefficients, _linear_data, _linear),
    "logistic": Problem(_coefficients, _logistic_data, _logistic),
    "poisson": Problem(_rates, _poisson_data, _poisson),
    "hierarchical": Problem(_groups, _hierarchical_data, _hierarchical),
    "mixture": Problem(_means, _mixture_data, _mixture),
}
