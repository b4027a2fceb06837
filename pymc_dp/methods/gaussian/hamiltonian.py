"""Hamiltonian Monte Carlo with many chains in step, for densities that are cheap for many points.

All chains make the same number of leapfrog steps of the same size, so that a density which takes
a batch of points costs about as much for a hundred chains as for one.

Source: Neal (2011), MCMC using Hamiltonian dynamics.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dp.methods.gaussian.defaults import DEFAULTS

# points (chains, d) -> log density (chains,), and its gradient (chains, d)
LogDensity = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Chains(NamedTuple):
    """Where all chains are."""

    points: np.ndarray  # (chains, d)
    log_density: np.ndarray  # (chains,)
    gradient: np.ndarray  # (chains, d)

    @classmethod
    def at(cls, density: LogDensity, points: np.ndarray) -> "Chains":
        """Evaluate the density; where it is not a number, it is 0."""
        with np.errstate(all="ignore"):
            value, gradient = density(points)
        fine = np.isfinite(value) & np.isfinite(gradient).all(axis=1)
        return cls(points, np.where(fine, value, -np.inf), np.where(fine[:, None], gradient, 0.0))

    def where(self, chosen: np.ndarray, other: "Chains") -> "Chains":
        """Take some chains from here, and the others from there."""
        pick = chosen[:, None]
        return Chains(
            np.where(pick, self.points, other.points),
            np.where(chosen, self.log_density, other.log_density),
            np.where(pick, self.gradient, other.gradient),
        )


def draw_by_hamiltonian(
    density: LogDensity, start: np.ndarray, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw from a density, shape (draws, d); ``start``, (chains, d), is about as wide as it.

    The size of steps and the covariance that whitens them are found first.

    >>> rng = np.random.default_rng(0)
    >>> start = rng.normal(size=(100, 2))
    >>> normal = lambda x: (-(((x - 5.0) / 3.0) ** 2).sum(axis=1) / 2, -(x - 5.0) / 9.0)
    >>> drawn = draw_by_hamiltonian(normal, start, 4000, rng)
    >>> drawn.shape, drawn.mean(axis=0).round(), drawn.std(axis=0).round()
    ((4000, 2), array([5., 5.]), array([3., 3.]))
    """
    chains, log_size = Chains.at(density, start), np.log(DEFAULTS.first_step)
    root = _root(start)
    for length in DEFAULTS.warm_up:
        for _ in range(length):
            chains, accepted = _move(density, chains, root, float(np.exp(log_size)), rng)
            print(round(accepted,2), round(float(np.exp(log_size)),3), end=" ") if DEFAULTS.chatty else None
            log_size += DEFAULTS.step_rate * (accepted - DEFAULTS.accepted)
        root = _root(chains.points)
    kept = []
    for _ in range(-(-draws // len(start))):
        for _ in range(DEFAULTS.thinning):
            chains, _ = _move(density, chains, root, float(np.exp(log_size)), rng)
        kept.append(chains.points)
    return np.concatenate(kept)[:draws]


def _root(points: np.ndarray) -> np.ndarray:
    """A square root of the covariance of points, shrunk to its diagonal where these are few."""
    n, d = points.shape
    covariance = np.cov(points, rowvar=False).reshape(d, d)
    diagonal = np.diag(np.maximum(np.diag(covariance), np.finfo(float).tiny))
    diagonal += 1e-6 * np.trace(diagonal) / d * np.eye(d)
    return np.linalg.cholesky((n * covariance + 2 * d * diagonal) / (n + 2 * d))


def _move(
    density: LogDensity, chains: Chains, root: np.ndarray, size: float, rng: np.random.Generator
) -> tuple[Chains, float]:
    """Make one trajectory of every chain; return the mean probability of acceptance."""
    steps = 1 + rng.integers(DEFAULTS.most_steps)
    momentum = rng.normal(size=chains.points.shape)
    p = momentum + size / 2 * chains.gradient @ root
    for i in range(steps):
        moved = Chains.at(density, (moved if i else chains).points + size * p @ root.T)
        p = p + (size if i < steps - 1 else size / 2) * moved.gradient @ root
    with np.errstate(invalid="ignore"):
        change = moved.log_density - chains.log_density
        change = change + ((momentum**2).sum(axis=1) - (p**2).sum(axis=1)) / 2
    probability = np.exp(np.minimum(np.where(np.isfinite(change), change, -np.inf), 0.0))
    accepted = rng.random(len(probability)) < probability
    return moved.where(accepted, chains), float(probability.mean())
