"""The front page's picture, drawn from the table of the page on truth; run it to draw it anew."""

import re
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl

DOCS = Path(__file__).parents[1]
PICTURE = DOCS / "pictures/truth.png"
NUMBER = r"(\d*\.?\d+)"
RANGE = re.compile(rf"{NUMBER}(?: \({NUMBER}-{NUMBER}\))?")


class Row(NamedTuple):
    """What was measured of one model."""

    problem: str
    coverage: tuple[float, float, float]  # mean, least and most
    width: float


def rows() -> list[Row]:
    """Read the rows of ``dp_advi``, the others of which name their method."""
    page = (DOCS / "truth.md").read_text(encoding="utf-8")
    table = page.split("| problem | sets |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return [Row(c[0], _range(c[2]), float(c[6])) for c in cells if "`" not in c[0]]


def _range(cell: str) -> tuple[float, float, float]:
    mean, least, most = RANGE.fullmatch(cell).groups()
    return float(mean), float(least or mean), float(most or mean)


def draw() -> None:
    """Draw coverage and width, a line for each model."""
    mpl.use("agg")
    from matplotlib import pyplot as plt

    found = rows()
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(6.2, 4.4), sharey=True, width_ratios=(3, 2), layout="constrained"
    )
    for height, (_, (mean, least, most), width) in enumerate(found):
        left.plot([least, most], [height, height], color="C0", lw=1.5, alpha=0.5)
        left.plot(mean, height, "o", color="C0", ms=5)
        right.plot(width, height, "o", color="C1", ms=5)
    left.axvline(0.9, color="0.6", lw=1, zorder=0)
    left.set(xlim=(0.5, 1), xlabel="share of 90% intervals\nthat hold the truth")
    right.axvline(1, color="0.6", lw=1, zorder=0)
    right.set(xlim=(0.9, 2), xlabel="width of intervals\n(1: without privacy)")
    left.set(yticks=range(len(found)), yticklabels=[row.problem for row in found])
    left.set_ylim(len(found) - 0.5, -0.5)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(PICTURE, dpi=150)


if __name__ == "__main__":
    draw()
