"""Private logistic regressions beside each other: ``python -m benchmarks.regressions``.

Medians over seeds of the data (generated sets) or of the noise alone (abalone). The scores read
held-out rows of generated or public data: they are not private.
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
from scipy.special import expit
from scipy.stats import rankdata

import pymc_dp
from benchmarks.data import add_data_dir, load

EPSILONS = (0.5, 1.0, 4.0)
METHODS = {
    "vips": {"method": "vips"},
    "vips, absolute form": {"method": "vips", "form": "absolute"},
    "dp_advi": {"method": "dp_advi"},
}


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
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return split(X, (table["rings"] > 9).astype(int), round(0.8 * len(X)))


def split(X: np.ndarray, y: np.ndarray, training: int) -> Task:
    return Task(X[:training], y[:training], X[training:], y[training:])


def build(task: Task) -> pm.Model:
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=task.X.shape[1])
        pm.Bernoulli("y", logit_p=pm.math.dot(task.X, b), observed=task.y)
    return model


def auc(task: Task, mean: np.ndarray) -> float:
    """Area under the curve of held-out rows."""
    ranks = rankdata(task.X_held_out @ mean)
    ones = task.y_held_out.sum()
    return (ranks[task.y_held_out == 1].sum() - ones * (ones + 1) / 2) / (
        ones * (len(ranks) - ones)
    )


def accuracy(task: Task, mean: np.ndarray) -> float:
    """Share of held-out rows whose outcome is predicted."""
    return float(np.mean((task.X_held_out @ mean > 0) == task.y_held_out))


def fitted(task: Task, **settings) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pymc_dp.PrivacyWarning)
        idata = pymc_dp.fit(model=build(task), progressbar=False, **settings)
    return idata["fit"]["mean_vector"].to_numpy()


def row(name: str, make: Callable[[int], Task], score: Callable, delta: float, seeds: int) -> None:
    """Print one table: a row a method, a column an epsilon; the range of the middle half."""
    tasks = [make(seed) for seed in range(seeds)]
    whole = {"method": "vips", "epsilon": np.inf, "clip_norm": np.inf}
    reference = np.median([score(task, fitted(task, **whole)) for task in tasks])
    print(f"\n{name}: {score.__name__}, median of {seeds}; not private: {reference:.3f}\n")
    print("| | " + " | ".join(f"epsilon={epsilon:g}" for epsilon in EPSILONS) + " |")
    print("|---" * (len(EPSILONS) + 1) + "|", flush=True)
    for label, settings in METHODS.items():
        cells = []
        for epsilon in EPSILONS:
            budget = {"epsilon": epsilon, "delta": delta}
            scores = [score(task, fitted(task, **settings, **budget)) for task in tasks]
            low, middle, high = np.quantile(scores, [0.25, 0.5, 0.75])
            cells.append(f"{middle:.3f} ({low:.3f}-{high:.3f})")
        print(f"| {label} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    add_data_dir(parser)
    arguments = parser.parse_args()
    seeds = arguments.seeds
    row("Correlated features, N=3341, d=9", correlated, auc, 1e-5, seeds)
    row("Rare binary features, N=10000, d=101", sparse, auc, 1e-5, seeds)
    shells = abalone(arguments.data_dir)
    row("Abalone, N=3341, d=8", lambda seed: shells, accuracy, 1e-3, seeds)


if __name__ == "__main__":
    main()
