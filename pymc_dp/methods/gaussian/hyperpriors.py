"""Latents that the prior of others reads, and no record: means and spreads of groups.

Records say nothing of them but through the latents that records read. Rounds release scores of
those alone, under a normal prior with the moments of their own; draws of the posterior then take
the prior as it is written, with what the releases say of the likelihood. At the joint mode of all
latents a spread would be too small, or nothing.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from scipy.special import softmax

from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.hamiltonian import draw_by_hamiltonian
from pymc_dp.methods.method import Draws
from pymc_dp.model import Records
from pymc_dp.model.compile import PYTHON, function, without_c


class Likelihood(NamedTuple):
    """A likelihood that is normal in the latents: exp(h'z - z' Lambda z / 2)."""

    linear: np.ndarray  # h, (d,)
    precision: np.ndarray  # Lambda, (d, d)


class NormalPrior(NamedTuple):
    """A normal distribution with the moments of a prior."""

    mean: np.ndarray
    precision: np.ndarray

    @classmethod
    def of(cls, draws: np.ndarray) -> Self:
        """Take the moments of draws, (n, d), without what lies far out in heavy tails."""
        middle = np.median(draws, axis=0)
        spread = np.maximum(np.median(abs(draws - middle), axis=0), 1e-9)
        near = np.clip(draws, middle - DEFAULTS.tail * spread, middle + DEFAULTS.tail * spread)
        covariance = np.cov(near, rowvar=False).reshape(len(middle), -1)
        return cls(near.mean(axis=0), np.linalg.inv(covariance))

    def gradient(self, z: np.ndarray) -> np.ndarray:
        """Gradient of the log density."""
        return np.asarray(self.precision @ (self.mean - z))


class Hyperpriors(NamedTuple):
    """A model's latents, as those that records read and the others."""

    whole: Records
    read: Records  # with the latents that records read alone
    index: np.ndarray  # where their coordinates are among all
    prior: NormalPrior  # of those
    draws: np.ndarray  # of all latents from their prior, (n, size)

    def draw(self, likelihood: Likelihood, draws: int, rng: np.random.Generator) -> Draws:
        """Draw all latents."""
        index, h, Lambda = self.index, likelihood.linear, likelihood.precision
        prior = _log_prior(self.whole)

        def density(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            value, gradient = prior(z)
            x, gradient = z[:, index], gradient.copy()
            slope = x @ Lambda
            gradient[:, index] += h - slope
            return value + x @ h - (x * slope).sum(axis=1) / 2, gradient

        z = draw_by_hamiltonian(density, self._start(likelihood, prior, rng), draws, rng)
        return dict(zip(self.whole.point, self.whole.split(z), strict=True))

    def _start(self, likelihood, prior, rng) -> np.ndarray:
        """Draw what records read as if the prior were normal, and choose likely others."""
        covariance = np.linalg.inv(likelihood.precision + self.prior.precision)
        mean = covariance @ (likelihood.linear + self.prior.precision @ self.prior.mean)
        points = self.draws.copy()
        points[:, self.index] = rng.multivariate_normal(mean, covariance, len(points))
        weight, _ = prior(points)
        weight = np.where(np.isfinite(weight), weight, -np.inf)
        chosen = rng.choice(len(points), DEFAULTS.chains, p=softmax(weight))
        return points[chosen]


def hyperpriors(records: Records) -> Hyperpriors | None:
    """Find latents that no record reads; None without any, or if the prior cannot be drawn."""
    reached = set(ancestors(records.batch.terms))
    read = [name for name, value in records.latents.items() if value in reached]
    if len(read) == len(records.latents) or not read or not records.prior_draws:
        return None
    own = records._replace(
        latents={name: records.latents[name] for name in read},
        point={name: records.point[name] for name in read},
    )
    index = np.concatenate(
        [
            part.ravel()
            for name, part in zip(records.point, records.split(np.arange(records.size)), strict=True)
            if name in read
        ]
    )
    drawn = _draw_prior(records)
    return Hyperpriors(records, own, index, NormalPrior.of(drawn[:, index]), drawn)


def _draw_prior(records: Records) -> np.ndarray:
    """Draw latents from their prior, shape (n, size)."""
    number = DEFAULTS.prior_draws + 4 * records.size
    with without_c():
        found = pm.draw(list(records.prior_draws), number, random_seed=0, mode=PYTHON)
    return np.concatenate([x.reshape(number, -1) for x in found], axis=1).astype("float64")


def _log_prior(
    records: Records,
) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Compile the log prior of points (n, size), and its gradient."""
    z = pt.matrix("z", shape=(None, records.size), dtype="float64")
    parts = records.split(np.arange(records.size))
    batched = {
        value: z[:, part.ravel()].reshape((-1, *part.shape)).astype(value.dtype)
        for value, part in zip(records.latents.values(), parts, strict=True)
    }
    value = vectorize_graph(records.prior, batched)
    return function([z], [value, pt.grad(value.sum(), z)], "python")
