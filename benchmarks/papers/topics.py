"""Figures 2 and 3 and table 1 of the paper on VIPS: private topics of documents.

Held-out perplexity against epsilon, where three accountants read the same noise; perplexity by
release at one epsilon, where they ask for different noise; and the topics' top words. The paper's
algorithm and schedule, this package's defaults, and a private unigram, on blogs (kos), news (ap) or
generated documents. The scores read public or generated data: they are not private.
"""

import argparse
import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from benchmarks.papers import topics_words
from benchmarks.papers.experiment import Experiment, options, run
from benchmarks.papers.topics_corpora import FILES, GENERATED, split
from benchmarks.papers.topics_fits import (
    ONE_PASS,
    PAPERS_EPSILON,
    by_defaults,
    by_paper,
    papers_noises,
    scores,
    unigram_scores,
)
from benchmarks.papers.topics_picture import DEFAULTS, PAPER, UNIGRAM, draw
from benchmarks.papers.vips_accountants import LABELS, column, epsilons

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
    """Measure, print and draw."""
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
            run(topics_words.experiment(corpus), arguments)


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
