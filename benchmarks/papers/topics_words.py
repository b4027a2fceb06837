"""Table 1 of the paper on VIPS: the words that topics give most probability to."""

import argparse
import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy.optimize import linear_sum_assignment

from benchmarks.papers.experiment import NOT_PRIVATE, Experiment
from benchmarks.papers.topics_corpora import Split, split, vocabulary
from benchmarks.papers.topics_fits import (
    ONE_PASS,
    PAPERS_EPSILON,
    by_defaults,
    by_paper,
    papers_noises,
)
from benchmarks.papers.vips_accountants import MOMENTS, STRONG

TOPICS, WORDS, SEED = 3, 8, 0


class Cell(NamedTuple):
    """A topic of one fit; topics are numbered as in the fit that is not private."""

    fit: str
    topic: int


Fit = Callable[[Split], xr.DataTree]


def experiment(corpus: str) -> Experiment:
    """Compare topics without privacy, by defaults, and by the paper at two noises."""
    noises = papers_noises()
    fits: dict[str, Fit] = {
        NOT_PRIVATE: lambda data: by_defaults(data, SEED, math.inf),
        "defaults": lambda data: by_defaults(data, SEED, PAPERS_EPSILON),
        "paper, moments accountant": lambda data: by_paper(data, SEED, noises[MOMENTS], ONE_PASS.n),
        "paper, strong composition": lambda data: by_paper(data, SEED, noises[STRONG], ONE_PASS.n),
    }

    @functools.cache
    def topics(fit: str, folder: Path) -> np.ndarray:
        return means(fits[fit](split(folder, corpus, SEED, 0)))

    def measure(cell: Cell, arguments: argparse.Namespace) -> dict[str, str]:
        folder = arguments.data_dir
        beta = matched(topics(cell.fit, folder), topics(NOT_PRIVATE, folder))
        return {"words": top(beta[cell.topic], vocabulary(folder, corpus))}

    def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
        return (Cell(fit, topic) for fit in fits for topic in range(TOPICS))

    return Experiment(f"topics_{corpus}_words", cells, measure, summary)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One column a fit, one row a topic."""
    words = table.pivot(index="topic", columns="fit", values="words")
    return words[table["fit"].unique()].reset_index()


def matched(beta: np.ndarray, public: np.ndarray) -> np.ndarray:
    """Order topics by those of the public fit, the heaviest first.

    Parameters
    ----------
    beta, public : ndarray, shape (topics, words)
        Rows sum to 1. Similar are rows with a small angle between their square roots.
    """
    _, column = linear_sum_assignment(-np.sqrt(public) @ np.sqrt(beta).T)
    return beta[column]


def top(probabilities: np.ndarray, words: list[str]) -> str:
    """Spell the most probable words out.

    >>> top(np.array([0.2, 0.7, 0.1]), ["line", "station", "river"])
    'station 0.7000, line 0.2000, river 0.1000'
    """
    best = np.argsort(-probabilities)[:WORDS]
    return ", ".join(f"{words[v]} {probabilities[v]:.4f}" for v in best)


def means(idata: xr.DataTree) -> np.ndarray:
    """Return topics' probabilities of words, shape (topics, words), the heaviest topic first."""
    concentration = idata["fit"]["concentration"].values
    heaviest = np.argsort(-concentration.sum(axis=1))
    return (concentration / concentration.sum(axis=1, keepdims=True))[heaviest]
