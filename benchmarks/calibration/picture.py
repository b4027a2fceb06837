"""Histograms of ranks: flat where intervals can be believed, hollow where they are too narrow."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import binom

from benchmarks.calibration.cell import BINS, DRAWS, Cell, Fits

# what even ranks keep to in a bin, with this chance
BAND = 0.99


def draw(found: Sequence[tuple[Cell, Fits]], folder: Path) -> None:
    """Write one picture a problem: a row a method, a column an epsilon and number of records."""
    for problem in dict.fromkeys(cell.problem for cell, _ in found):
        _draw_problem(problem, [pair for pair in found if pair[0].problem == problem], folder)


def _draw_problem(problem: str, found: Sequence[tuple[Cell, Fits]], folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    rows = list(dict.fromkeys((cell.method, cell.noise_aware) for cell, _ in found))
    columns = list(dict.fromkeys((cell.records, cell.epsilon) for cell, _ in found))
    fig, axes = plt.subplots(
        len(rows),
        len(columns),
        figsize=(2 * len(columns) + 2, 1.3 * len(rows) + 0.8),
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    for cell, fits in found:
        ax = axes[rows.index((cell.method, cell.noise_aware))][
            columns.index((cell.records, cell.epsilon))
        ]
        _draw_ranks(ax, fits)
    for ax, (records, epsilon) in zip(axes[0], columns, strict=True):
        ax.set_title(f"N={records}, epsilon={epsilon:g}", fontsize=9)
    for ax, (method, aware) in zip(axes[:, 0], rows, strict=True):
        label = f"{method}\n{'noise-aware' if aware else 'plain'}"
        ax.set_ylabel(label, fontsize=9, rotation=0, ha="right", va="center")
    fig.suptitle(f"{problem}: ranks of the truth among posterior draws")
    fig.savefig(folder / f"{problem}.png", dpi=100)
    plt.close(fig)


def _draw_ranks(ax, fits: Fits) -> None:
    """Draw the histogram over all latents, and the band for one latent's even ranks."""
    sets, latents = fits.rank.shape
    counts = np.bincount(fits.rank.ravel() * BINS // (DRAWS + 1), minlength=BINS) / latents
    low, high = binom.ppf([(1 - BAND) / 2, (1 + BAND) / 2], sets, 1 / BINS)
    ax.bar(np.arange(BINS), counts, width=1.0, color="C0" if counts.max() <= high else "C1")
    ax.axhspan(low, high, color="0.8", zorder=0)
    ax.set(xticks=[], yticks=[])
    ax.spines[["top", "right", "left"]].set_visible(False)
