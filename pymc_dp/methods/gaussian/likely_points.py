"""Points of a density that is not normal, where chains begin."""

import numpy as np

from pymc_dp.methods.gaussian.hamiltonian import Chains, LogDensity
from pymc_dp.methods.gaussian.outcome_likelihood import weights_of
from pymc_dp.methods.gaussian.posterior import draw_gaussian

# points that are moved to a density, how often they are, how many times as wide as it they are, in
# variance, and how many have to have weight
POINTS, ADAPTED, WIDER, ENOUGH = 400, 6, 1.5, 40


def likely_points(
    density: LogDensity, mean: np.ndarray, covariance: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return points, (n, d), about as wide as a density, of which the last are drawn from it.

    A normal distribution is moved to it by importance sampling, with weights that are flattened
    where few points would have all (Cappé et al. 2004).
    """
    for _ in range(ADAPTED):
        z = draw_gaussian(mean, covariance, POINTS, rng)
        unit = np.sqrt(np.diag(covariance))
        white = (z - mean) / unit
        correlation = covariance / np.outer(unit, unit)
        of_normal = -(white * np.linalg.solve(correlation, white.T).T).sum(axis=1) / 2
        with np.errstate(all="ignore"):
            log = Chains.at(density, z).log_density - of_normal
        w = _flattened(log)
        mean = w @ z
        covariance = WIDER * (w * (z - mean).T) @ (z - mean)
    drawn = z[rng.choice(POINTS, POINTS // 2, p=w)]
    return np.concatenate([z, drawn])


def _flattened(log: np.ndarray) -> np.ndarray:
    """Return weights by their logarithms, to a power of at most 1, of enough points."""
    power = 1.0
    while (w := weights_of(power * log)) @ w > 1 / ENOUGH:
        power *= 0.7
    return w
