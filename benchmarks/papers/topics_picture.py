"""The picture of private topics: perplexity against epsilon, and by release."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.experiment import NOT_PRIVATE, mean_and_error
from benchmarks.papers.picture import COLOURS, line, log_epsilon, panels
from benchmarks.papers.topics_fits import ONE_PASS, PAPERS_EPSILON, papers_noises
from benchmarks.papers.vips_accountants import LABELS, column

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
