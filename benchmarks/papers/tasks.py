"""Regressions to fit and to score: generated ones, and public tables."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from scipy.stats import rankdata

from benchmarks.data import load


class Task(NamedTuple):
    """Rows to fit and rows to score; the last column of X is an intercept where there is one."""

    X: np.ndarray
    y: np.ndarray
    X_held_out: np.ndarray
    y_held_out: np.ndarray


def correlated(seed: int) -> Task:
    """Seven features with one common factor, one alone, and an intercept: N=3341."""
    rng = np.random.default_rng(seed)
    rows, training = 4177, 3341
    factor = rng.normal(size=(rows, 1))
    shared = np.sqrt(0.85) * factor + np.sqrt(0.15) * rng.normal(size=(rows, 7))
    X = np.column_stack([shared, rng.normal(size=rows), np.ones(rows)])
    weights = np.array([0.8, 0.6, -0.9, 1.2, -0.4, 0.5, -0.2, 0.3, 0.2])
    return split(X, rng.binomial(1, expit(X @ weights)), training)


def sparse(seed: int) -> Task:
    """A hundred rare binary features and an intercept: N=10000."""
    rng = np.random.default_rng(seed)
    rows, training = 12_000, 10_000
    rates = rng.beta(0.8, 8, size=100)
    X = (rng.random((rows, 100)) < rates).astype(float)
    weights = 0.7 * rng.normal(size=100) * (rng.random(100) < 0.4)
    y = rng.binomial(1, expit(X @ weights - 2.2 - rates @ weights))
    return split(np.column_stack([X, np.ones(rows)]), y, training)


def abalone(folder: Path) -> Task:
    """More than nine rings, by eight standardised columns; the first 80% of rows train."""
    table = load(folder, "uci_abalone.npz")
    number = {"M": 2, "F": 1, "I": 0}
    names = [str(name) for name in table["sex_names"]]
    sex = np.array([number[names[i]] for i in table["sex"]])
    X = np.column_stack([sex, table["X"]]).astype(float)
    X = standardised(X, X)
    return split(X, (table["rings"] > 9).astype(int), round(0.8 * len(X)))


def power(folder: Path) -> Task:
    """Output of a power plant by four standardised columns; the first of the public splits."""
    table = load(folder, "uci_power_plant.npz")
    X, y = (standardised(table[name], table[name]) for name in "Xy")
    train, test = table["train_idx"][0], table["test_idx"][0]
    return Task(X[train], y[train], X[test], y[test])


def standardised(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Scale by the moments of some rows, as the papers do; these data are public."""
    scale = rows.std(axis=0)
    return (values - rows.mean(axis=0)) / np.where(scale > 0, scale, 1.0)


def split(X: np.ndarray, y: np.ndarray, training: int) -> Task:
    return Task(X[:training], y[:training], X[training:], y[training:])


def logistic(task: Task) -> pm.Model:
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=task.X.shape[1])
        pm.Bernoulli("y", logit_p=pm.math.dot(task.X, b), observed=task.y)
    return model


def mode(task: Task) -> np.ndarray:
    """Return the coefficients of greatest posterior density, without privacy."""
    sign = 2 * task.y - 1

    def loss(b: np.ndarray) -> tuple[float, np.ndarray]:
        margin = sign * (task.X @ b)
        value = np.logaddexp(0, -margin).sum() + b @ b / 2
        return value, b - task.X.T @ (sign * expit(-margin))

    return minimize(loss, np.zeros(task.X.shape[1]), jac=True).x


def auc(y: np.ndarray, score: np.ndarray) -> float:
    """Share of pairs of a one and a zero that the score puts in order."""
    ranks = rankdata(score)
    ones = np.count_nonzero(y)
    above = ranks[y == 1].sum() - ones * (ones + 1) / 2
    return float(above / (ones * (len(y) - ones)))


def accuracy(y: np.ndarray, score: np.ndarray) -> float:
    """Share of outcomes that are predicted by the sign of the score."""
    return float(np.mean((score > 0) == y))


def log_density(each: np.ndarray) -> float:
    """Mean over rows of the log of the mean density over draws; ``each`` is (draws, rows)."""
    return float(np.mean(logsumexp(each, axis=0) - np.log(len(each))))
