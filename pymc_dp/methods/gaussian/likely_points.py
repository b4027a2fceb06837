"""Draws of densities of a few latents by importance sampling, and points where chains begin."""

from collections.abc import Callable

import numpy as np

from pymc_dp.methods.gaussian.noise_floor import root_of
from pymc_dp.methods.gaussian.outcome_likelihood import weights_of

# points that are moved to a density, how often they are, how many times as wide as it they are, in
# variance, and how many have to have weight
POINTS, ADAPTED, WIDER, ENOUGH = 400, 6, 1.5, 40
# proposals for each draw, degrees of freedom of their distribution, and the largest shape of the
# weights' tail with which draws are believed (Vehtari et al. 2024)
PROPOSALS, FREEDOM, LONGEST_TAIL = 3, 5.0, 0.7

Values = Callable[[np.ndarray], np.ndarray]  # points (n, d) -> log density (n,)


def likely_points(
    values: Values, mean: np.ndarray, covariance: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return points, (n, d), about as wide as a density, of which the last are drawn from it.

    A Student-t distribution is moved to it by importance sampling, with weights that are flattened
    where few points would have all (Cappé et al. 2004).
    """
    for _ in range(ADAPTED):
        z, log = _proposed(values, mean, covariance, POINTS, rng)
        w = _flattened(log)
        mean = w @ z
        covariance = WIDER * (w * (z - mean).T) @ (z - mean)
    drawn = z[rng.choice(POINTS, POINTS // 2, p=w)]
    return np.concatenate([z, drawn])


def draws_by_importance(
    values: Values, near: np.ndarray, draws: int, rng: np.random.Generator
) -> np.ndarray | None:
    """Draw from a density, (draws, d), that points ``near``, (n, d), are about as wide as.

    Weights are Pareto-smoothed. None where a few proposals would have all of them.
    """
    from arviz_stats.base.array import array_stats  # loads what fits that draw otherwise need not

    number = PROPOSALS * max(draws, POINTS)
    z, log = _proposed(values, near.mean(axis=0), _covariance(near), number, rng)
    z, log = z[np.isfinite(log)], log[np.isfinite(log)]
    smoothed, tail = array_stats.psislw(-log)  # type: ignore[no-untyped-call]
    if not tail <= LONGEST_TAIL:
        return None
    shares = np.cumsum(weights_of(smoothed))
    places = np.searchsorted(shares[:-1], (np.arange(draws) + rng.random()) / draws)
    return np.asarray(z[rng.permutation(places)])


def _covariance(points: np.ndarray) -> np.ndarray:
    centred = points - points.mean(axis=0)
    return np.asarray(centred.T @ centred / len(points))


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
    power = 1.0
    while (w := weights_of(power * log)) @ w > 1 / ENOUGH:
        power *= 0.7
    return w
