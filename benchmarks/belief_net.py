"""A private belief net of handwritten digits: ``python -m benchmarks.belief_net``.

A sigmoid belief network of 100 binary latents on binarised MNIST, and how many pixels of held-out
images it gets right when it reconstructs them. The scores read public data: they are not private.
"""

import argparse
import math
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

import pymc_dp
from benchmarks.data import add_data_dir, load
from pymc_dp.paper_accounting import moments_accountant

PIXELS, LATENTS = 784, 100
DELTA = 1e-4
EPSILONS = (1.0, 2.35, 4.83, math.inf)
# the paper's setting: one pass over the images, at a noise multiplier of 1; its q has 50000
BATCHES = (400, 800, 1600, 3200)
PAPERS_RECORDS = 50_000


class Images(NamedTuple):
    """Rows of pixels, 0 or 1: to fit, and to score."""

    train: np.ndarray
    held_out: np.ndarray


def images(folder: Path, held_out: int) -> Images:
    """Read pixels that are not black."""
    packed = load(folder, "mnist_nonzero_packed.npz")
    train, test = (
        np.unpackbits(packed[f"{part}_gt0"], axis=1)[:, :PIXELS] for part in ("train", "test")
    )
    return Images(train, np.random.default_rng(0).permutation(test)[:held_out])


def build() -> pm.Model:
    """Build the network on two made-up images; a fit gets the others by ``data=``."""
    template = np.stack([np.zeros(PIXELS, "uint8"), np.ones(PIXELS, "uint8")])
    with pm.Model() as model:
        b = pm.Normal("b", 0, 3, shape=LATENTS)
        W = pm.Normal("W", 0, 1, shape=(PIXELS, LATENTS))
        c = pm.Normal("c", 0, 10, shape=PIXELS)
        z = pm.Bernoulli("z", logit_p=b, shape=(2, LATENTS))
        pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=template)
    return model


def fitted(model: pm.Model, data: Images, **settings) -> xr.DataTree:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pymc_dp.PrivacyWarning)
        return pymc_dp.fit(
            model=model,
            method="vips",
            data={"y": data.train},
            delta=DELTA,
            draws=1,
            progressbar=False,
            **settings,
        )


def accuracy(model: pm.Model, data: Images, idata: xr.DataTree) -> float:
    """Share of pixels of held-out images that are reconstructed."""
    probabilities = pymc_dp.reconstruct(idata, model, {"y": data.held_out})
    return float(((probabilities > 0.5) == data.held_out).mean())


def of_mean_image(data: Images) -> float:
    """Share of pixels that the mean image gets right."""
    return float(((data.train.mean(axis=0) > 0.5) == data.held_out).mean())


def against_epsilon(model: pm.Model, data: Images) -> None:
    """Print accuracy with defaults, and with neither noise nor clipping."""
    print("\n| epsilon | pixel accuracy | seconds |\n|---|---|---|")
    print(f"| mean image | {of_mean_image(data):.3f} | |", flush=True)
    settings = {f"{epsilon:g}": {"epsilon": epsilon} for epsilon in EPSILONS}
    settings["inf, not clipped"] = {"epsilon": math.inf, "clip_norm": math.inf}
    for label, chosen in settings.items():
        start = time.perf_counter()
        idata = fitted(model, data, **chosen)
        seconds = time.perf_counter() - start
        print(f"| {label} | {accuracy(model, data, idata):.3f} | {seconds:.0f} |", flush=True)


def against_batch_size(model: pm.Model, data: Images) -> None:
    """Print accuracy and both epsilons of one pass over the images at a noise multiplier of 1."""
    print("\n| batch | releases | epsilon, paper | epsilon, today | accuracy | no noise |")
    print("|---|---|---|---|---|---|")
    rows = len(data.train)
    for size in BATCHES:
        n, rate = rows // size, size / rows
        papers = moments_accountant(sigma=1, sample_rate=size / PAPERS_RECORDS, n=n, delta=DELTA)
        today = pymc_dp.epsilon(noise_multiplier=1, sample_rate=rate, n=n, delta=DELTA)
        scores = [
            accuracy(model, data, fitted(model, data, n=n, sample_rate=rate, **noise))
            for noise in ({"noise_multiplier": 1.0}, {"epsilon": math.inf})
        ]
        cells = f"{size} | {n} | {papers:.4f} | {today:.3f} | {scores[0]:.3f} | {scores[1]:.3f}"
        print(f"| {cells} |", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held-out", type=int, default=2000, help="images to score")
    add_data_dir(parser)
    arguments = parser.parse_args()
    data, model = images(arguments.data_dir, arguments.held_out), build()
    against_epsilon(model, data)
    against_batch_size(model, data)


if __name__ == "__main__":
    main()
