"""Same data, same epsilon: ``python -m benchmarks.papers.same_data --data-dir DIR``.

Every method of the package beside diffprivlib's estimators, for a classification (Abalone) and a
linear regression (power plant). The peers' epsilon is pure, ours holds up to delta. That of
``dp_ops`` holds if its one draw is exact, which is not known. The scores read held-out rows of
public data: they are not private.

The first run builds an environment for diffprivlib from the network.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit, log_expit
from scipy.stats import norm

from benchmarks.papers.experiment import NOT_PRIVATE, Experiment, options, quiet_fit, run
from benchmarks.papers.peers import NORM, fit_peers, objective_perturbation
from benchmarks.papers.picture import COLOURS, panels
from benchmarks.papers.tasks import Task, abalone, accuracy, auc, log_density, logistic, power

# --- two problems that this package and diffprivlib can both be given ----------------------------

Draws = Mapping[str, np.ndarray]
Scores = dict[str, float]
# public: standardised columns lie within three standard deviations; the rest is shortened to that
BOUNDS = (-3.0, 3.0)
NAIVE_BAYES = {"estimator": "GaussianNB", "bounds": BOUNDS}


class Peer(NamedTuple):
    """An estimator of diffprivlib: settings by epsilon, and what rows are divided by."""

    settings: Callable[[float], dict[str, Any]]
    scale: float = 1.0


class Problem(NamedTuple):
    """A model and its scores, and the peers for the same data."""

    load: Callable[[Path], Task]
    model: Callable[[Task], pm.Model]
    # of held-out rows, from posterior draws along the first axis
    score: Callable[[Task, Draws], Scores]
    peers: dict[str, Peer]  # by the name of the estimator
    score_peer: Callable[[Task, np.ndarray], Scores]


def linear(task: Task) -> pm.Model:
    with pm.Model() as model:
        precision = pm.Gamma("precision", 2, 1)
        b = pm.Normal("b", 0, 1, shape=task.X.shape[1])
        pm.Normal("y", pm.math.dot(task.X, b), tau=precision, observed=task.y)
    return model


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


def least_squares(epsilon: float) -> dict[str, Any]:
    """Without an intercept: with one, bounds move by a noisy offset and are no bounds any more."""
    fixed = {"estimator": "LinearRegression", "bounds_X": BOUNDS, "bounds_y": BOUNDS}
    return fixed | {"fit_intercept": False, "epsilon": epsilon}


PROBLEMS = {
    "logistic": Problem(
        abalone,
        logistic,
        lambda task, draws: of_log_odds(task, draws["b"] @ task.X_held_out.T),
        {
            "LogisticRegression": Peer(partial(objective_perturbation, 1.0), NORM),
            "GaussianNB": Peer(lambda epsilon: {**NAIVE_BAYES, "epsilon": epsilon}),
        },
        of_probability,
    ),
    "linear": Problem(
        power, linear, score_linear, {"LinearRegression": Peer(least_squares)}, of_prediction
    ),
}


PANELS = (
    ("logistic", "auc", "classification: AUC"),
    ("linear", "rmse", "linear regression: rmse"),
    ("linear", "log_density", "linear regression: log density"),
)
PEERS = {"LogisticRegression": "s", "LinearRegression": "^", "GaussianNB": "D"}
SIZE = (11 / 3, 4.0)
# of a column: neighbouring epsilons are one apart
SPREAD = 0.6


def draw(rows: pd.DataFrame) -> Figure:
    """Draw the medians of a summary."""
    figure, axes = panels(len(PANELS), size=SIZE)
    for ax, (problem, score, title) in zip(axes, PANELS, strict=True):
        _points(ax, rows[(rows["problem"] == problem) & rows[score].notna()], score)
        ax.set_title(f"{title}, held out", fontsize=10)
        ax.set_xlabel("epsilon")
    entries = {}
    for ax in axes:
        points, labels = ax.get_legend_handles_labels()
        entries |= dict(zip(labels, points, strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=5)
    return figure


def _points(ax: Axes, rows: pd.DataFrame, score: str) -> None:
    free = rows["method"] == NOT_PRIVATE
    level = rows.loc[free, score].item()
    ax.axhline(level, color=COLOURS[NOT_PRIVATE], ls=":", label=NOT_PRIVATE)
    rows = rows[~free]
    methods, epsilons = list(dict.fromkeys(rows["method"])), sorted(set(rows["epsilon"]))
    for method, offset in zip(methods, np.linspace(-0.5, 0.5, len(methods)), strict=True):
        points = rows[rows["method"] == method].sort_values("epsilon")
        where = np.searchsorted(epsilons, points["epsilon"]) + SPREAD * offset
        ax.plot(where, points[score], **_style(method), ls="", ms=7, label=method)
    ax.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])


def _style(method: str) -> dict[str, str]:
    if method in PEERS:
        return {"color": COLOURS["peer"], "marker": PEERS[method]}
    filling = {"mfc": "white"} if method == "dp_ops" else {}  # no guarantee is proved
    return {"color": COLOURS[method], "marker": "o"} | filling


EPSILONS = (0.5, 1.0, 4.0)
DELTA = 1e-5
DRAWS = 200
METHODS = ("dp_advi", "dp_fullrank_advi", "vips", "dp_sep", "dp_sgld")
# of dp_ops, which is fitted once: behind its one draw is a chain through all records
TRANSITIONS = 100
SCORES = ("accuracy", "auc", "rmse", "log_density")


class Cell(NamedTuple):
    """A fit; ``delta`` is 0 where epsilon is pure."""

    problem: str
    method: str
    epsilon: float
    delta: float
    seed: int


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """List the fits without privacy, of our methods, of the peers, and of the long chains."""
    for name in PROBLEMS:
        yield Cell(name, NOT_PRIVATE, math.inf, DELTA, 0)
    for seed in range(arguments.seeds):
        for name, problem in PROBLEMS.items():
            for epsilon in EPSILONS:
                for method in METHODS:
                    yield Cell(name, method, epsilon, DELTA, seed)
                for peer in problem.peers:
                    yield Cell(name, peer, epsilon, 0.0, seed)
    for name in PROBLEMS:
        for epsilon in EPSILONS:
            yield Cell(name, "dp_ops", epsilon, DELTA, 0)


def measure(cell: Cell, arguments: argparse.Namespace) -> dict[str, float]:
    """Fit, and score held-out rows."""
    problem, task = PROBLEMS[cell.problem], _task(cell.problem, arguments.data_dir)
    if cell.method in problem.peers:
        found = _peer(cell.problem, cell.method, arguments.data_dir, arguments.seeds)
        scores = problem.score_peer(task, found[EPSILONS.index(cell.epsilon)][cell.seed])
    else:
        scores = problem.score(task, _draws(cell, task))
    return dict.fromkeys(SCORES, math.nan) | scores


@cache
def _task(name: str, folder: Path) -> Task:
    return PROBLEMS[name].load(folder)


@cache
def _peer(name: str, estimator: str, folder: Path, repetitions: int) -> np.ndarray:
    """Fit a peer at all epsilons: predictions, (epsilons, repetitions, held-out rows)."""
    peer, task = PROBLEMS[name].peers[estimator], _task(name, folder)
    settings = [peer.settings(epsilon) for epsilon in EPSILONS for _ in range(repetitions)]
    found = fit_peers(task.X / peer.scale, task.y, task.X_held_out / peer.scale, settings)
    return found.reshape(len(EPSILONS), repetitions, -1)


def _draws(cell: Cell, task: Task) -> dict[str, np.ndarray]:
    """Return posterior draws by variable; without privacy, those of vips without noise."""
    settings = {"draws": DRAWS, "method": cell.method}
    if cell.method == NOT_PRIVATE:
        settings = {"draws": DRAWS, "method": "vips", "clip_norm": math.inf}
    if cell.method == "dp_ops":  # its draws share the budget: one by default
        settings = {"method": cell.method, "transitions": TRANSITIONS}
    settings |= {"epsilon": cell.epsilon, "delta": cell.delta, "random_seed": cell.seed}
    idata = quiet_fit(model=PROBLEMS[cell.problem].model(task), backend="python", **settings)
    posterior = idata["posterior"].to_dataset().isel(chain=0)
    return {str(name): values.to_numpy() for name, values in posterior.items()}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row a problem, method and epsilon: medians, since scores have tails."""
    by = ["problem", "method", "delta", "epsilon"]
    return table.groupby(by, sort=False)[list(SCORES)].median().reset_index()


EXPERIMENT = Experiment("same_data", cells, measure, summary, lambda table: draw(summary(table)))


def main() -> None:
    run(EXPERIMENT, options("same_data", __doc__, seeds=3).parse_args())


if __name__ == "__main__":
    main()
