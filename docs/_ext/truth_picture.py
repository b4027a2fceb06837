"""The front page's picture, drawn from the table of the page on truth; run it to draw it anew."""

import re
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl

DOCS = Path(__file__).parents[1]
PICTURE = DOCS / "pictures/front_truth.png"
NUMBER = r"(\d*\.?\d+)"
# a part of the table: one of each kind, those that are reached and those that are not
SHOWN = (
    "exponential bernoulli categorical logistic-3 linear-10 linear-10-precision normal "
    "survey-fixed survey-drawn iid-linear iid-logistic condition-1 condition-50 condition-1000 "
    "strong-40 age-in-years income poisson negative-binomial student-t weibull ordinal rate-1 "
    "rate-10 prevalence-6 groups-8 groups-40 correlated-slopes"
).split()
RANGE = re.compile(rf"{NUMBER}(?: \({NUMBER}-{NUMBER}\))?")


class Row(NamedTuple):
    """What was measured of one model."""

    problem: str
    coverage: tuple[float, float, float]  # mean, least and most
    width: float


def rows() -> list[Row]:
    """Read what is shown of the first table of results."""
    page = (DOCS / "truth.md").read_text(encoding="utf-8")
    head, *lines = page.split("\n| problem |")[1].split("\n\n")[0].splitlines()
    width = head.split("|").index(" width ") + 1
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
    return [Row(c[0], _range(c[1]), float(c[width])) for c in cells if c[0] in SHOWN]


def _range(cell: str) -> tuple[float, float, float]:
    mean, least, most = RANGE.fullmatch(cell).groups()
    return float(mean), float(least or mean), float(most or mean)


def draw() -> None:
    """Draw coverage and width, a line for each model."""
    mpl.use("agg")
    from matplotlib import pyplot as plt

    plt.rcParams["font.size"] = 9
    found = rows()
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(4.1, 4.3), sharey=True, width_ratios=(3, 2), layout="constrained"
    )
    for height, (_, (mean, least, most), width) in enumerate(found):
        left.plot([least, most], [height, height], color="C0", lw=1.5, alpha=0.5)
        left.plot(mean, height, "o", color="C0", ms=4)
        right.plot(width, height, "o", color="C1", ms=4)
    left.set(xlim=(0.4, 1.02), xlabel="share of 90% intervals\nthat hold the truth")
    widest = max(row.width for row in found)
    right.set_xscale("log", base=2)
    right.xaxis.set_major_formatter("{x:g}")
    right.set(xlim=(0.9, 1.2 * widest), xlabel="width\n(without\nprivacy: 1)")
    left.set(yticks=range(len(found)), yticklabels=[row.problem for row in found])
    left.set_ylim(len(found) - 0.5, -0.5)
    for ax, right_value in ((left, 0.9), (right, 1)):
        ax.axvline(right_value, color="0.6", lw=1, zorder=0)
        ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(PICTURE, dpi=160)


if __name__ == "__main__":
    draw()
