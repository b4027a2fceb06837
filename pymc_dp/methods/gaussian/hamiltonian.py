"""Hamiltonian Monte Carlo with many chains in step, for log densities of many points at once.

All chains make as many leapfrog steps of the same size, so that a hundred of them take hardly
longer than one.

Source: Neal (2011), MCMC using Hamiltonian dynamics.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from pymc_dp.methods.gaussian.defaults import DEFAULTS

# points (n, d) -> log density (n,), and its gradient (n, d)
LogDensity = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
# a chain that accepts a smaller share of its trajectories is stuck; chains have mixed if no larger
# share of them is
STUCK = 0.1


class Chains(NamedTuple):
    """Where all chains are."""

    points: np.ndarray  # (chains, d)
    log_density: np.ndarray  # (chains,)
    gradient: np.ndarray  # (chains, d)

    @classmethod
    def at(cls, log_density: LogDensity, points: np.ndarray) -> Self:
        """Evaluate the density; it is 0 where it is not a number, or a matrix is singular."""
        value, gradient = _of_regular(log_density, points)
        fine = np.isfinite(value) & np.isfinite(gradient).all(axis=1)
        return cls(points, np.where(fine, value, -np.inf), np.where(fine[:, None], gradient, 0.0))

    def moved(self, accepted: np.ndarray, to: "Chains") -> "Chains":
        """Move some chains, (chains,)."""
        return Chains(
            np.where(accepted[:, None], to.points, self.points),
            np.where(accepted, to.log_density, self.log_density),
            np.where(accepted[:, None], to.gradient, self.gradient),
        )


class Drawn(NamedTuple):
    """Draws from a density, and how well the chains that made them moved."""

    points: np.ndarray  # (draws, d)
    stuck: float  # the share of chains that hardly moved, once they were warmed up
    correlations: np.ndarray  # of the chains' first places and their last ones, (d,)
    chains: int

    @property
    def unmixed(self) -> np.ndarray:
        """Which coordinates kept the places where they began, (d,).

        A correlation by chance has a standard deviation of one over the root of the chains.
        """
        return np.asarray(self.correlations > DEFAULTS.visible_count / self.chains**0.5)

    @property
    def has_mixed(self) -> bool:
        """Whether chains move, and forget where they began."""
        return self.stuck <= STUCK and not self.unmixed.any()


class Pace(NamedTuple):
    """How far leapfrog steps go."""

    root: np.ndarray  # a square root of the covariance that whitens them, (d, d)
    log_size: float

    def after(self, acceptance: float) -> Self:
        """Go further where more is accepted than should be."""
        change = DEFAULTS.step_rate * (acceptance - DEFAULTS.accepted)
        return self._replace(log_size=self.log_size + change)


def draw_by_hamiltonian(
    log_density: LogDensity, start: np.ndarray, draws: int, rng: np.random.Generator
) -> Drawn:
    """Draw from a density that need not be normalised.

    ``start``, shape (n, d), is about as wide as the density; chains begin at its last points.

    >>> rng = np.random.default_rng(0)
    >>> normal = lambda x: (-(((x - 5.0) / 3.0) ** 2).sum(axis=1) / 2, -(x - 5.0) / 9.0)
    >>> drawn = draw_by_hamiltonian(normal, rng.normal(size=(100, 2)), 4000, rng)
    >>> drawn.points.shape, drawn.points.mean(axis=0).round(), drawn.points.std(axis=0).round()
    ((4000, 2), array([5., 5.]), array([3., 3.]))
    >>> drawn.has_mixed
    True
    """
    with np.errstate(all="ignore"):  # what is no number is not accepted
        return _draw(log_density, start, draws, rng)


def _draw(
    log_density: LogDensity, start: np.ndarray, draws: int, rng: np.random.Generator
) -> Drawn:
    number = min(DEFAULTS.chains, draws)  # for a rehearsal of a few draws a few chains are enough
    chains, root = Chains.at(log_density, start[-number:]), _root(start)
    for length in DEFAULTS.lengths:  # longer ones where chains are still near where they began
        for trajectories in DEFAULTS.warm_up:
            chains, pace = _warmed_up(log_density, chains, root, length * trajectories, rng)
            root = _root(chains.points)
        drawn, chains = _drawn(log_density, chains, pace, draws, length, rng)
        if drawn.has_mixed:
            break
    return drawn


def _warmed_up(
    log_density: LogDensity,
    chains: Chains,
    root: np.ndarray,
    trajectories: int,
    rng: np.random.Generator,
) -> tuple[Chains, Pace]:
    """Move chains, and find how long steps of this root may be."""
    pace = Pace(root, float(np.log(DEFAULTS.first_step)))
    for _ in range(trajectories):
        chains, probability = _trajectory(log_density, chains, pace, rng)
        pace = pace.after(float(probability.mean()))
    return chains, pace


def _drawn(
    log_density: LogDensity,
    chains: Chains,
    pace: Pace,
    draws: int,
    thinning: int,
    rng: np.random.Generator,
) -> tuple[Drawn, Chains]:
    """Keep the chains' places; return also where they end."""
    first, kept, accepted = chains.points, [], []
    for _ in range(-(-draws // len(first))):
        for _ in range(thinning):
            chains, probability = _trajectory(log_density, chains, pace, rng)
            accepted.append(probability)
        kept.append(chains.points)
    stuck = float((np.mean(accepted, axis=0) < STUCK).mean())
    points = np.concatenate(kept)[:draws]
    correlations = _correlations(first, chains.points)
    return Drawn(points, stuck, correlations, len(first)), chains


def _correlations(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Correlate places of chains, (chains, d), with later ones, coordinate by coordinate.

    They are compared by their order: a few chains that are far out decide nothing.
    """
    one, other = (x.argsort(axis=0).argsort(axis=0).astype("float64") for x in (first, last))
    middle = (len(first) - 1) / 2
    return np.asarray(((one - middle) * (other - middle)).mean(axis=0) / one.var(axis=0))


def _of_regular(log_density: LogDensity, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate a log density where one point, at which a matrix is singular, refuses them all."""
    try:
        return log_density(points)
    except np.linalg.LinAlgError:
        if len(points) == 1:
            return np.full(1, np.nan), np.zeros_like(points)
    halves = [_of_regular(log_density, half) for half in np.array_split(points, 2)]
    value, gradient = map(np.concatenate, zip(*halves, strict=True))
    return value, gradient


def _root(points: np.ndarray) -> np.ndarray:
    """Return a root of the covariance of points, with correlations shrunk where they are few."""
    n, d = points.shape
    sd = np.maximum(points.std(axis=0), np.finfo(float).tiny)  # 0 where all are the same
    white = (points - points.mean(axis=0)) / sd
    correlation = (white.T @ white + 2 * d * np.eye(d)) / (n + 2 * d)
    return np.asarray(sd[:, None] * np.linalg.cholesky(correlation))


def _trajectory(
    log_density: LogDensity, chains: Chains, pace: Pace, rng: np.random.Generator
) -> tuple[Chains, np.ndarray]:
    """Move all chains by a trajectory; return the probability that each accepts it."""
    size, steps = np.exp(pace.log_size), 1 + rng.integers(DEFAULTS.most_steps)
    momentum = rng.normal(size=chains.points.shape)
    end, p = chains, momentum + size / 2 * chains.gradient @ pace.root
    for left in reversed(range(steps)):
        end = Chains.at(log_density, end.points + size * p @ pace.root.T)
        p = p + (size if left else size / 2) * end.gradient @ pace.root
    lost = ((p**2).sum(axis=1) - (momentum**2).sum(axis=1)) / 2
    gained = end.log_density - chains.log_density - lost
    probability = np.exp(np.minimum(np.where(np.isnan(gained), -np.inf, gained), 0.0))
    accepted = rng.random(len(probability)) < probability
    return chains.moved(accepted, end), probability
