"""DP-EM for the mixture: a baseline written here, after Park, Foulds, Chaudhuri and Welling (2017).

It is no part of the package, and not the authors' code. Every iteration releases, with noise, the
expected number of records of each component and the sum of their clipped values. As only the
centres are unknown, these are all the expected sufficient statistics.
"""

from typing import NamedTuple

import numpy as np

import pymc_dp
from benchmarks.papers.mixture_data import (
    COMPONENTS,
    NOISE_VARIANCE,
    PRIOR_VARIANCE,
    D,
    Posterior,
    responsibilities,
)
from pymc_dp.privacy.randomness import SecretRandom

ITERATIONS = 10
START = 1.0  # standard deviation of the centres to start from
# norm to which a record is clipped: the prior's typical norm of a centre, which is public
BOUND = (D * PRIOR_VARIANCE) ** 0.5
LEAST_SHARE = 0.03  # of the records that a component has; noise must not leave it empty


class Statistics(NamedTuple):
    """Expected counts, shape (K,), and expected sums, (K, d)."""

    counts: np.ndarray
    sums: np.ndarray


def fit(X: np.ndarray, seed: int, epsilon: float, delta: float) -> Posterior:
    """Run DP-EM from a random start that ``seed`` chooses.

    Notes
    -----
    **Privacy.** ``ITERATIONS`` Gaussian mechanisms on all records, composed by the package's
    accountant, with secret noise; add/remove neighbours.
    """
    sigma, random = noise_multiplier(epsilon, delta), SecretRandom()
    centres = START * np.random.default_rng(seed).normal(size=(COMPONENTS, D))
    for _ in range(ITERATIONS):
        posterior = update(release(X, centres, BOUND, sigma, random))
        centres = posterior.means
    return posterior


def noise_multiplier(epsilon: float, delta: float) -> float:
    """Calibrate the noise of all iterations together, over what one record can change."""
    return pymc_dp.calibrate(
        epsilon=epsilon, delta=delta, sample_rate=1.0, n=ITERATIONS, sampling="full"
    )


def release(
    X: np.ndarray, centres: np.ndarray, bound: float, sigma: float, random: SecretRandom
) -> Statistics:
    """Release counts and sums as one vector, with noise for the most that a record moves it.

    A record adds its responsibilities, whose norm is at most 1, times (bound, clipped record).
    """
    clipped = X * (bound / np.maximum(np.linalg.norm(X, axis=1), bound))[:, None]
    parts = np.column_stack([np.full(len(X), bound), clipped])
    total = responsibilities(clipped, centres).T @ parts
    sensitivity = 2**0.5 * bound
    sd = sigma * sensitivity
    step = 2.0**-28 * sd
    noise = step * random.rounded_gaussian(sd, step, total.size) if sd else np.zeros(total.size)
    noisy = total + noise.reshape(total.shape)
    return Statistics(noisy[:, 0] / bound, noisy[:, 1:])


def update(statistics: Statistics) -> Posterior:
    """Return the centres' posterior, as if the statistics were those of known labels."""
    counts, sums = statistics
    least = max(LEAST_SHARE * counts.sum(), 1.0)
    variance = 1 / (np.maximum(counts, least) / NOISE_VARIANCE + 1 / PRIOR_VARIANCE)
    means = variance[:, None] * sums / NOISE_VARIANCE
    return Posterior(means, variance[:, None, None] * np.eye(sums.shape[1]))
