"""Figures 2 and 3 and table 1 of the paper on VIPS: private topics of documents.

Held-out perplexity against epsilon, where three accountants read the same noise; perplexity by
release at one epsilon, where they ask for different noise; and the topics' top words. The paper's
algorithm and schedule, this package's defaults, and a private unigram, on blogs (kos), news (ap) or
generated documents. The scores read public or generated data: they are not private.
"""

import argparse
import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment

from benchmarks.papers.experiment import NOT_PRIVATE, Experiment, mean_and_error, options, run
from benchmarks.papers.paper_accounting import LABELS, MOMENTS, STRONG, column, epsilons
from benchmarks.papers.picture import COLOURS, line, log_epsilon, panels
from benchmarks.papers.topics_fits import (
    FILES,
    GENERATED,
    ONE_PASS,
    PAPERS_EPSILON,
    Split,
    by_defaults,
    by_paper,
    papers_noises,
    scores,
    split,
    unigram_scores,
    vocabulary,
)

# --- the picture of private topics: perplexity against epsilon, and by release -------------------

PAPER, DEFAULTS, UNIGRAM = "paper's algorithm", "defaults", "unigram"
TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
SIZE = (5.0, 4.8)  # with room for the legends


def draw(table: pd.DataFrame) -> Figure:
    """Means over splits, with their standard errors."""
    figure, (by_epsilon, by_release) = panels(2, size=SIZE)
    _draw_epsilons(by_epsilon, table)
    _draw_releases(by_release, table[table["fit"] == PAPER])
    return figure


def _draw_epsilons(ax: Axes, table: pd.DataFrame) -> None:
    whole = table[(table["fit"] == PAPER) & (table["releases"] == ONE_PASS.n)]
    for accountant, words in LABELS.items():
        means = mean_and_error(whole[whole["noise"] > 0], [column(accountant)], "bound")
        style = {"color": COLOURS[accountant]}
        line(ax, means, column(accountant), "bound", f"paper, {words}", **style)
    for fit in (UNIGRAM, DEFAULTS):
        means = mean_and_error(table[table["fit"] == fit], ["epsilon"], "bound")
        private = np.isfinite(means["epsilon"])
        style = {"color": COLOURS[fit]}
        line(ax, means[private], "epsilon", "bound", f"{fit}, today's", **style)
        style |= {"ls": ":", "lw": 1.2, "label": f"{fit}, {NOT_PRIVATE}"}
        ax.axhline(means.loc[~private, "bound"].item(), **style)
    log_epsilon(ax, TICKS)
    ax.set(ylabel="held-out perplexity", title="The same noise, three epsilons")
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower left", ncols=2)


def _draw_releases(ax: Axes, table: pd.DataFrame) -> None:
    """Lines end where all documents have been seen once."""
    releases = sorted(table["releases"].unique())
    for by, noise in papers_noises().items():
        means = mean_and_error(table[table["noise"] == noise], ["releases"], "bound")
        line(ax, means, "releases", "bound", LABELS.get(by, by), color=COLOURS[by])
    ax.set_xscale("log")
    ax.set_xticks(releases, releases)
    ax.minorticks_off()
    ax.set(xlabel="releases", title=f"The paper's algorithm at epsilon {PAPERS_EPSILON:g}")
    ax.figure.legend(
        *ax.get_legend_handles_labels(), loc="outside lower right", title="noise by", ncols=2
    )


# --- table 1 of the paper on VIPS: the words that topics give most probability to ----------------

TOPICS, WORDS, SEED = 3, 8, 0


class Topic(NamedTuple):
    """A topic of one fit; topics are numbered as in the fit that is not private."""

    fit: str
    topic: int


Fit = Callable[[Split], xr.DataTree]


def table_of_words(corpus: str) -> Experiment:
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

    def measure(cell: Topic, arguments: argparse.Namespace) -> dict[str, str]:
        folder = arguments.data_dir
        beta = matched(topics(cell.fit, folder), topics(NOT_PRIVATE, folder))
        return {"words": top(beta[cell.topic], vocabulary(folder, corpus))}

    def cells(arguments: argparse.Namespace) -> Iterator[Topic]:
        return (Topic(fit, topic) for fit in fits for topic in range(TOPICS))

    return Experiment(f"topics_{corpus}_words", cells, measure, words_by_fit)


def words_by_fit(table: pd.DataFrame) -> pd.DataFrame:
    """One column a fit, one row a topic."""
    words = table.pivot(index="topic", columns="fit", values="words")
    return words[table["fit"].unique()].reset_index()


def matched(beta: np.ndarray, public: np.ndarray) -> np.ndarray:
    """Order topics by those of the public fit, the heaviest first."""
    _, column = linear_sum_assignment(-np.sqrt(public) @ np.sqrt(beta).T)
    return beta[column]


def top(probabilities: np.ndarray, words: list[str]) -> str:
    """Spell the most probable words out."""
    best = np.argsort(-probabilities)[:WORDS]
    return ", ".join(f"{words[v]} {probabilities[v]:.4f}" for v in best)


def means(idata: xr.DataTree) -> np.ndarray:
    """Return topics' probabilities of words, shape (topics, words), the heaviest topic first."""
    concentration = idata["fit"]["concentration"].values
    heaviest = np.argsort(-concentration.sum(axis=1))
    return (concentration / concentration.sum(axis=1, keepdims=True))[heaviest]


# the paper's noise multipliers, and the epsilons of what stands beside it
NOISES = (1.0, 1.1, 1.24, 1.5, 2.0)
EPSILONS = (1.0, PAPERS_EPSILON, 5.0, math.inf)
RELEASES = (1, 2, 5, 10)


class Cell(NamedTuple):
    """One fit, by the paper's algorithm at a noise multiplier, or by another at an epsilon."""

    corpus: str
    fit: str
    noise: float
    epsilon: float
    releases: int
    seed: int


def main() -> None:
    parser = options("topics", __doc__, seeds=3)
    known = [*FILES, GENERATED]
    parser.add_argument("corpora", nargs="*", default=["kos"], help=f"any of {', '.join(known)}")
    parser.add_argument("--documents", type=int, default=200_000, help="generated ones")
    arguments = parser.parse_args()
    for corpus in arguments.corpora:
        if corpus not in known:
            parser.error(f"There is no corpus {corpus!r}: name any of {', '.join(known)}.")
        name = f"topics_{corpus}" if corpus in FILES else f"topics_{corpus}_{arguments.documents}"
        run(Experiment(name, functools.partial(cells, corpus), measure, summary, draw), arguments)
        if corpus in FILES:
            run(table_of_words(corpus), arguments)


def cells(corpus: str, arguments: argparse.Namespace) -> Iterator[Cell]:
    """List the fits of both figures; an epsilon or a noise that is not chosen is empty."""
    by_release = set(papers_noises().values())
    for seed in range(arguments.seeds):
        for epsilon in EPSILONS:
            yield Cell(corpus, UNIGRAM, math.nan, epsilon, 1, seed)
            yield Cell(corpus, DEFAULTS, math.nan, epsilon, 0, seed)
        for noise in sorted(by_release.union(NOISES)):
            yield Cell(corpus, PAPER, noise, math.nan, ONE_PASS.n, seed)
        for noise in sorted(by_release):
            for releases in RELEASES:
                yield Cell(corpus, PAPER, noise, math.nan, releases, seed)


def measure(cell: Cell, arguments: argparse.Namespace) -> dict[str, float]:
    data = split(arguments.data_dir, cell.corpus, cell.seed, arguments.documents)
    if cell.fit == UNIGRAM:
        return unigram_scores(data, cell.seed, cell.epsilon)._asdict()
    if cell.fit == DEFAULTS:
        idata = by_defaults(data, cell.seed, cell.epsilon)
        return scores(idata, data.held_out, cell.seed)._asdict()
    idata = by_paper(data, cell.seed, cell.noise, cell.releases)
    found = scores(idata, data.held_out, cell.seed)
    return found._asdict() | epsilons(cell.noise, ONE_PASS._replace(n=cell.releases))


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row a setting: medians, since a split that is hard for every fit would move a mean."""
    by = ["fit", "noise", "epsilon", "releases"]
    groups = table.groupby(by, sort=False, dropna=False)
    scored = ["bound", "half", *(column(accountant) for accountant in LABELS)]
    return groups[scored].median().reset_index()


if __name__ == "__main__":
    main()
