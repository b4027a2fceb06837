"""Figure 7 of the paper on VIPS: a private sigmoid belief net of handwritten digits.

One pass over 60,000 images in batches of several sizes, with the noise that three accountants ask
for at one epsilon; and the defaults of this package at several epsilons. The score is the share of
pixels of held-out images that are reconstructed. It reads public data: it is not private.
"""

import argparse
import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import pymc_dp
from benchmarks.data import load
from benchmarks.papers.experiment import (
    NOT_PRIVATE,
    Experiment,
    mean_and_error,
    options,
    quiet_fit,
    run,
)
from benchmarks.papers.paper_accounting import (
    DELTA,
    LABELS,
    MOMENTS,
    STRONG,
    TODAY,
    Schedule,
    column,
    epsilons,
    moments,
    noises,
)
from benchmarks.papers.picture import COLOURS, line, log_epsilon, panels

PIXELS, LATENTS, IMAGES, HELD_OUT = 784, 100, 60_000, 2000
# the paper's noise multiplier, and the number of images by which its code divides a batch
PAPERS_NOISE, PAPERS_IMAGES = 1.0, 50_000
# of the method's defaults
TWO_PASSES = Schedule(0.05, 40)
DEFAULTS, MEAN_IMAGE = "defaults", "mean image"
SIZE = (5.0, 4.8)  # with room for the legends
TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200)


class Images(NamedTuple):
    """Rows of pixels, 0 or 1: to fit, and to score."""

    train: np.ndarray
    held_out: np.ndarray


class Cell(NamedTuple):
    """One fit."""

    fit: str  # the accountant that chose the noise of one pass, or one of the other labels
    noise: float  # multiplier; without noise there is no clipping either
    batch: int  # expected images of a release
    releases: int
    seed: int

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.batch / IMAGES, self.releases)


def main() -> None:
    parser = options("belief_net", __doc__, seeds=1)
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[800, 3200], help="expected images, one pass each"
    )
    parser.add_argument(
        "--epsilons", type=float, nargs="+", default=[1, 2.35], help="of fits by defaults"
    )
    run(Experiment("belief_net", cells, measure, summary, draw), parser.parse_args())


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """One pass by batch size and accountant, then the defaults by epsilon."""
    yield Cell(MEAN_IMAGE, 0.0, 0, 0, 0)
    for seed in range(arguments.seeds):
        for batch in arguments.batches:
            yield from _one_pass(batch, seed)
        of_defaults = int(TWO_PASSES.sample_rate * IMAGES), TWO_PASSES.n, seed
        for epsilon in arguments.epsilons:
            yield Cell(DEFAULTS, noises(epsilon, TWO_PASSES)[TODAY], *of_defaults)


def _one_pass(batch: int, seed: int) -> Iterator[Cell]:
    releases = IMAGES // batch
    by_accountant = noises(papers_epsilon(batch), Schedule(batch / IMAGES, releases))
    by_accountant |= {MOMENTS: PAPERS_NOISE, NOT_PRIVATE: 0.0}
    for fit, noise in by_accountant.items():
        yield Cell(fit, noise, batch, releases, seed)


def papers_epsilon(batch: int) -> float:
    """Epsilon of one pass as the caption of the paper's figure gives it."""
    return round(moments(PAPERS_NOISE, papers_schedule(batch, IMAGES // batch)), 4)


def papers_schedule(batch: int, releases: int) -> Schedule:
    return Schedule(batch / PAPERS_IMAGES, releases)


def measure(cell: Cell, arguments: argparse.Namespace) -> dict[str, float]:
    data = images(arguments.data_dir)
    if cell.fit == MEAN_IMAGE:
        return {"accuracy": _right(data.train.mean(axis=0), data.held_out)}
    idata = fitted(data, cell)
    probabilities = pymc_dp.reconstruct(idata, network(), {"y": data.held_out})
    accuracy = _right(np.asarray(probabilities), data.held_out)
    papers = {column(MOMENTS): moments(cell.noise, papers_schedule(cell.batch, cell.releases))}
    return {"accuracy": accuracy} | epsilons(cell.noise, cell.schedule) | papers


def _right(probabilities: np.ndarray, pixels: np.ndarray) -> float:
    return float(((probabilities > 0.5) == pixels).mean())


@functools.cache
def images(folder: Path) -> Images:
    """Read pixels that are not black; a random part of the test images is held out."""
    packed = load(folder, "mnist_nonzero_packed.npz")
    train, test = (
        np.unpackbits(packed[f"{part}_gt0"], axis=1)[:, :PIXELS] for part in ("train", "test")
    )
    return Images(train, np.random.default_rng(0).permutation(test)[:HELD_OUT])


@functools.cache
def network() -> pm.Model:
    """Build the network on two made-up images; a fit gets the others by ``data=``."""
    template = np.stack([np.zeros(PIXELS, "uint8"), np.ones(PIXELS, "uint8")])
    with pm.Model() as model:
        b = pm.Normal("b", 0, 3, shape=LATENTS)
        W = pm.Normal("W", 0, 1, shape=(PIXELS, LATENTS))
        c = pm.Normal("c", 0, 10, shape=PIXELS)
        z = pm.Bernoulli("z", logit_p=b, shape=(2, LATENTS))
        pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=template)
    return model


def fitted(data: Images, cell: Cell) -> xr.DataTree:
    without_noise = {"epsilon": math.inf, "clip_norm": math.inf}
    terms = {"noise_multiplier": cell.noise} if cell.noise else without_noise
    terms |= {"delta": DELTA, "draws": 1, "random_seed": cell.seed, **cell.schedule._asdict()}
    return quiet_fit(model=network(), method="vips", data={"y": data.train}, **terms)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row a setting, means over seeds."""
    by = ["fit", "batch", "releases", "noise", *map(column, LABELS)]
    return mean_and_error(table, by, "accuracy")


def draw(table: pd.DataFrame) -> Figure:
    figure, (by_batch, by_epsilon) = panels(2, size=SIZE)
    by_epsilon.sharey(by_batch)
    _draw_batches(by_batch, summary(table))
    _draw_epsilons(by_epsilon, summary(table))
    return figure


def _draw_batches(ax: Axes, means: pd.DataFrame) -> None:
    for fit in (NOT_PRIVATE, TODAY, MOMENTS, STRONG):
        label = LABELS.get(fit, fit)
        line(ax, means[means["fit"] == fit], "batch", "accuracy", label, color=COLOURS[fit])
    batches = sorted(means.loc[means["fit"] == MOMENTS, "batch"])
    ax.set_xscale("log")
    ax.set_xticks(batches, batches)
    ax.minorticks_off()
    ax.set(xlabel="images a batch", ylabel="pixels right", title="One pass, the paper's epsilons")
    _legend(ax, "lower left", title="noise by")


def _draw_epsilons(ax: Axes, means: pd.DataFrame) -> None:
    """The fits with the paper's noise, read by every accountant, and the defaults."""
    papers, defaults = (means[means["fit"] == fit] for fit in (MOMENTS, DEFAULTS))
    for accountant, words in LABELS.items():
        label, colour = f"noise of 1, {words}", COLOURS[accountant]
        line(ax, papers, column(accountant), "accuracy", label, color=colour)
    style = {"color": COLOURS[DEFAULTS], "ls": "--", "marker": "s"}
    line(ax, defaults, column(TODAY), "accuracy", "defaults, two passes", **style)
    public = means.loc[means["fit"] == NOT_PRIVATE, "accuracy"].mean()
    ax.axhline(public, color=COLOURS[NOT_PRIVATE], lw=1, label=f"one pass, {NOT_PRIVATE}")
    log_epsilon(ax, TICKS)
    ax.set_title("The same fits, three epsilons")
    _legend(ax, "lower right")


def _legend(ax: Axes, corner: str, **style: str) -> None:
    ax.figure.legend(*ax.get_legend_handles_labels(), loc=f"outside {corner}", ncols=2, **style)


if __name__ == "__main__":
    main()
