"""Same data, same epsilon: ``python -m benchmarks.papers.same_data --data-dir DIR``.

Every method of the package beside diffprivlib's estimators, for a classification (Abalone) and a
linear regression (power plant). The peers' epsilon is pure, ours holds up to delta. That of
``dp_ops`` holds if its one draw is exact, which is not known. The scores read held-out rows of
public data: they are not private.

The first run builds an environment for diffprivlib from the network.
"""

import argparse
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.papers.experiment import NOT_PRIVATE, Experiment, options, run
from benchmarks.papers.peers import fit_peers
from benchmarks.papers.quiet import quiet_fit
from benchmarks.papers.same_data_picture import draw
from benchmarks.papers.same_data_problems import PROBLEMS
from benchmarks.papers.tasks import Task

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
    """Measure, print the table and draw the picture."""
    run(EXPERIMENT, options("same_data", __doc__, seeds=3).parse_args())


if __name__ == "__main__":
    main()
