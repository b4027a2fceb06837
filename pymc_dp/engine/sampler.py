"""Draws from log densities of many points at once: by importance sampling, or by Markov chains.

Of few latents a Student-t proposal is moved to the density (Cappé et al. 2004, Population Monte
Carlo), with Pareto-smoothed weights (Vehtari et al. 2024). Of many, a hundred chains make leapfrog
steps of the same size together (Neal 2011, MCMC using Hamiltonian dynamics).
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
from scipy.special import softmax

from pymc_dp.engine.constants import CONSTANTS
from pymc_dp.methods.normal import root_of

# points that are moved to a density, how often they are, how many times as wide as it they are, in
# variance, and how many have to have weight
POINTS, ADAPTED, WIDER, ENOUGH = 400, 6, 1.5, 40
# proposals for each draw, degrees of freedom of their distribution, and the largest shape of the
# weights' tail with which draws are believed (Vehtari et al. 2024)
PROPOSALS, FREEDOM, LONGEST_TAIL = 3, 5.0, 0.7

Values = Callable[[np.ndarray], np.ndarray]  # points (n, d) -> log density (n,)


def draw_by_importance(
    values: Values, near: np.ndarray, draws: int, rng: np.random.Generator
) -> np.ndarray | None:
    """Draw from a density, (draws, d), about points (n, d); None if few would have all weight."""
    from arviz_stats.base.array import array_stats  # loads what fits that draw otherwise need not

    d, number = near.shape[1], PROPOSALS * max(draws, POINTS)
    try:
        mean, covariance = near.mean(axis=0), np.cov(near.T, ddof=0).reshape(d, d)
        for _ in range(ADAPTED):
            z, log = _proposed(values, mean, covariance, POINTS, rng)
            w = _flattened(log)
            mean = w @ z
            covariance = WIDER * (w * (z - mean).T) @ (z - mean)
        points = np.concatenate([z, z[rng.choice(POINTS, POINTS // 2, p=w)]])
        centred = points - points.mean(axis=0)
        covariance = centred.T @ centred / len(points)
        z, log = _proposed(values, points.mean(axis=0), covariance, number, rng)
        z, log = z[np.isfinite(log)], log[np.isfinite(log)]
        smoothed, tail = array_stats.psislw(-log)  # type: ignore[no-untyped-call]
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return None
    if not tail <= LONGEST_TAIL:
        return None
    shares = np.cumsum(softmax(smoothed))
    places = np.searchsorted(shares[:-1], (np.arange(draws) + rng.random()) / draws)
    return np.asarray(z[rng.permutation(places)])


def _proposed(
    values: Values, mean: np.ndarray, covariance: np.ndarray, number: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Propose points of a Student-t distribution, (n, d), and logarithms of their weights."""
    d, root = len(mean), root_of(covariance)
    white = rng.normal(size=(number, d)) / np.sqrt(rng.chisquare(FREEDOM, (number, 1)) / FREEDOM)
    z = mean + white @ root.T
    with np.errstate(all="ignore"):  # what is no number has no weight
        log = values(z) + (FREEDOM + d) / 2 * np.log1p((white**2).sum(axis=1) / FREEDOM)
    return z, np.where(np.isfinite(log), log, -np.inf)


def _flattened(log: np.ndarray) -> np.ndarray:
    """Return weights by their logarithms, to a power of at most 1, of enough points."""
    if np.isfinite(log).sum() < 2 * ENOUGH:
        raise FloatingPointError("The density is 0 at nearly all proposals.")
    power = 1.0
    while (w := softmax(power * log)) @ w > 1 / ENOUGH:
        power *= 0.7
    return np.asarray(w)


# points (n, d) -> log density (n,), and its gradient (n, d)
LogDensity = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
# a chain that accepts a smaller share of its trajectories is stuck; chains have mixed if no larger
# share of them is
STUCK = 0.1
# correlations of first and last places of chains are above so many sds of chance where these have
# not mixed
UNMIXED = 6.0
# trajectories of the phases that warm chains up, how many times as many there are at first, and if
# chains are still near where they began (one of them is kept of so many), the most leapfrog steps
# of a trajectory, the size of the first steps, and how fast sizes follow the rate of acceptance
WARM_UP, LENGTHS, MOST_STEPS, FIRST_STEP, STEP_RATE = (5, 10, 15), (1, 4), 9, 0.3, 0.2


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


class Drawn(NamedTuple):
    """Draws from a density, and how well the chains that made them moved."""

    points: np.ndarray  # (draws, d)
    stuck: float  # the share of chains that hardly moved, once they were warmed up
    unmixed: np.ndarray  # which coordinates kept the places where chains began, (d,)

    @property
    def has_mixed(self) -> bool:
        """Whether chains move, and forget where they began."""
        return self.stuck <= STUCK and not self.unmixed.any()


def draw_by_hamiltonian(
    log_density: LogDensity, start: np.ndarray, draws: int, rng: np.random.Generator
) -> Drawn:
    """Draw from a density by chains from the last points of ``start``, (n, d), about as wide."""
    number = min(CONSTANTS.chains, draws)  # for a rehearsal of a few draws a few chains are enough
    with np.errstate(all="ignore"):  # what is no number is not accepted
        chains, following = Chains.at(log_density, start[-number:]), _root(start)
        for length in LENGTHS:  # longer ones where chains are still near where they began
            for trajectories in WARM_UP:
                root, log_size = following, float(np.log(FIRST_STEP))
                for _ in range(length * trajectories):
                    chains, probability = _trajectory(log_density, chains, root, log_size, rng)
                    # steps go further where more is accepted than should be
                    log_size += STEP_RATE * (float(probability.mean()) - CONSTANTS.accepted)
                following = _root(chains.points)
            first, places, accepted = chains.points, [], []
            for _ in range(length * -(-draws // number)):
                chains, probability = _trajectory(log_density, chains, root, log_size, rng)
                places.append(chains.points)
                accepted.append(probability)
            points = np.concatenate(places[length - 1 :: length])[:draws]
            stuck = float((np.mean(accepted, axis=0) < STUCK).mean())
            # a correlation by chance has a standard deviation of one over the root of the chains
            unmixed = _correlations(first, chains.points) > UNMIXED / number**0.5
            drawn = Drawn(points, stuck, unmixed)
            if drawn.has_mixed:
                break
    return drawn


def _correlations(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Correlate ranks of places of chains, (chains, d), with those of later ones; shape (d,)."""
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
    log_density: LogDensity,
    chains: Chains,
    root: np.ndarray,
    log_size: float,
    rng: np.random.Generator,
) -> tuple[Chains, np.ndarray]:
    """Move all chains by a trajectory, in units of a root of the covariance, (d, d).

    Return also the probability that each accepts it.
    """
    size, steps = np.exp(log_size), 1 + rng.integers(MOST_STEPS)
    momentum = rng.normal(size=chains.points.shape)
    end, p = chains, momentum + size / 2 * chains.gradient @ root
    for left in reversed(range(steps)):
        end = Chains.at(log_density, end.points + size * p @ root.T)
        p = p + (size if left else size / 2) * end.gradient @ root
    lost = ((p**2).sum(axis=1) - (momentum**2).sum(axis=1)) / 2
    gained = end.log_density - chains.log_density - lost
    probability = np.exp(np.minimum(np.where(np.isnan(gained), -np.inf, gained), 0.0))
    accepted = rng.random(len(probability)) < probability
    of_chains = accepted[:, None], accepted, accepted[:, None]
    return Chains(*map(np.where, of_chains, end, chains)), probability
