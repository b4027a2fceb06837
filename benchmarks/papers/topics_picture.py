"""The picture of private topics: perplexity against epsilon, and by release."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.experiment import mean_and_error
from benchmarks.papers.picture import COLOURS, line, log_epsilon, panels
from benchmarks.papers.vips_accountants import COLOURS as COLOURS_OF_ACCOUNTANTS
from benchmarks.papers.vips_accountants import LABELS, MOMENTS, STRONG, TODAY, column

PAPER, DEFAULTS, UNIGRAM = "paper's algorithm", "defaults", "unigram"
TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
# releases of one pass
ALL = 20


def draw(table: pd.DataFrame) -> Figure:
    """Means over splits, with their standard errors."""
    figure, (by_epsilon, by_release) = panels(2)
    figure.set_figheight(4.8)  # room for the legends
    _draw_epsilons(by_epsilon, table)
    _draw_releases(by_release, table[table["fit"] == PAPER])
    return figure


def _draw_epsilons(ax: Axes, table: pd.DataFrame) -> None:
    private = table[(table["fit"] == PAPER) & (table["noise"] > 0) & (table["releases"] == ALL)]
    for accountant, colour in COLOURS_OF_ACCOUNTANTS.items():
        means = mean_and_error(private, [column(accountant)], "bound")
        line(ax, means, column(accountant), "bound", f"paper, {LABELS[accountant]}", color=colour)
    for fit, colour in ((UNIGRAM, "#56B4E9"), (DEFAULTS, "#0072B2")):
        means = mean_and_error(table[table["fit"] == fit], ["epsilon"], "bound")
        line(ax, means[means["epsilon"] < 100], "epsilon", "bound", f"{fit}, today's", color=colour)
        public = means.loc[means["epsilon"] > 100, "bound"]
        ax.axhline(public.item(), color=colour, ls=":", lw=1.2, label=f"{fit}, not private")
    log_epsilon(ax, TICKS)
    ax.set(ylabel="held-out perplexity", title="The same noise, three epsilons")
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower left", ncols=2)


def _draw_releases(ax: Axes, table: pd.DataFrame) -> None:
    """Lines end where all documents have been seen once."""
    releases = sorted(table["releases"].unique())
    for label, noise in _noise_of(table).items():
        means = mean_and_error(table[table["noise"] == noise], ["releases"], "bound")
        colour = COLOURS_OF_ACCOUNTANTS.get(label, COLOURS["not private"])
        line(ax, means, "releases", "bound", LABELS.get(label, label), color=colour)
    ax.set_xscale("log")
    ax.set_xticks(releases, releases)
    ax.minorticks_off()
    ax.set(xlabel="releases", title="The paper's algorithm at epsilon 2.44")
    ax.figure.legend(
        *ax.get_legend_handles_labels(), loc="outside lower right", title="noise by", ncols=2
    )


def _noise_of(table: pd.DataFrame) -> dict[str, float]:
    """Noise multipliers of fits that were cut short: more noise is what looser accountants ask."""
    noises = sorted(table.loc[table["releases"] < ALL, "noise"].unique())
    return dict(zip(("not private", TODAY, MOMENTS, STRONG), noises, strict=True))
