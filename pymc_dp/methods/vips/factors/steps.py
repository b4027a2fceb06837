"""From a released sum to new means of loadings and intercept; all of it post-processing."""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.vips.factors.defaults import DEFAULTS
from pymc_dp.methods.vips.factors.sums import Sums

STACK = 2**23  # numbers in one stack of matrices that are solved together: 64 MB


class Curvature(NamedTuple):
    """Estimates from the released curvatures."""

    average: np.ndarray  # as released
    # positive definite: eigenvalues raised to the largest that noise alone would have, and
    # divided by ``share``
    corrected: np.ndarray
    number: float  # the number of records, likewise
    noise_of_number: float  # sd of the noise on it, as a share of it
    # what clipping leaves of a record, on average, if the number of records is declared
    share: float
    inverse_trace: float  # sum of the inverse eigenvalues over the count


def averaged(
    t: int, before: np.ndarray, sums: Sums, sd: float, num_records: int | None
) -> Curvature:
    """Average the curvature of release t with those before it; the first one with a public guess.

    ``sd`` is the noise's standard deviation on the released vector.
    """
    weight = 0.5 if t == 0 else max(1 / (t + 1), DEFAULTS.curvature_weight)
    noise = sd / DEFAULTS.curvature_scale * np.sqrt(weight / (2 - weight))
    least = max(
        DEFAULTS.count_deviations * noise, DEFAULTS.count_share * (num_records or 0), DEFAULTS.least
    )
    if t == 0:
        before = max(sums.curvature[-1, -1], least) * before
    average = (1 - weight) * before + weight * sums.curvature
    count = max(average[-1, -1], least)
    share = min(1.0, count / num_records) if num_records else 1.0
    values, vectors = np.linalg.eigh(average)
    values = np.maximum(values, max(noise * np.sqrt(2 * len(average)), DEFAULTS.least * count))
    return Curvature(
        average,
        (vectors * values) @ vectors.T / share,
        count / share,
        noise / count,
        share,
        float(np.sum(1 / values) / count),
    )


def averaged_energy(
    t: int, before: float, sums: Sums, sd: float, least: float
) -> tuple[float, float, float]:
    """Average the energies; also return the average at the noise's own scale or above it.

    The last number is the noise's standard deviation.
    """
    weight = max(1 / (t + 1), DEFAULTS.energy_weight)
    average = (1 - weight) * before + weight * sums.energy
    noise = sd / DEFAULTS.energy_scale * np.sqrt(weight / (2 - weight))
    return average, max(average, noise, DEFAULTS.least * least), noise


def step_length(t: int, noise_of_psi: float) -> float:
    """Length of step t: 1 where noise moves psi by little, else falling with t and with the noise.

    >>> step_length(0, 0.0), step_length(5, 0.1), round(step_length(100, 12.0), 4)
    (1.0, 0.5, 0.0198)
    """
    return max(
        min(1.0, _stationary(noise_of_psi, DEFAULTS.negligible_noise)),
        min(
            max(DEFAULTS.least_step, 1 / (1 + DEFAULTS.decay * t)),
            _stationary(noise_of_psi, DEFAULTS.tolerated_noise),
        ),
    )


def _stationary(noise: float, allowed: float) -> float:
    """Step at which the noise of many steps together has standard deviation ``allowed``."""
    return 2 * allowed**2 / (noise**2 + allowed**2)


def solve_rows(
    shared: np.ndarray, weights: np.ndarray, alphas: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """Solve (w_j H + diag(alpha_j)) x_j = g_j for every row j.

    H is ``shared``, (n, n); ``weights`` has shape (J,), the others and the result (J, n).
    """
    if np.ptp(weights) == 0 and not np.ptp(alphas, axis=0).any():
        return np.linalg.solve(weights[0] * shared + np.diag(alphas[0]), slopes.T).T
    found = []
    size = max(1, STACK // shared.size)
    for start in range(0, len(weights), size):
        part = slice(start, start + size)
        stack = weights[part, None, None] * shared
        stack[:, *np.diag_indices(len(shared))] += alphas[part]
        found.append(np.linalg.solve(stack, slopes[part, :, None])[..., 0])
    return np.concatenate(found)


def noise_spread(shared: np.ndarray, weights: np.ndarray, alphas: np.ndarray) -> np.ndarray:
    """Variance of a whole step from noise of variance 1 on each slope, for a typical row; (n,)."""
    typical = np.linalg.inv(weights.mean() * shared + np.diag(alphas.mean(axis=0)))
    return np.asarray(np.vecdot(typical, typical))


def expansion(moments: np.ndarray, prior_precision: np.ndarray, intercept: bool) -> np.ndarray:
    """Find the scale and the location of Gaussian latents in one step, not in hundreds.

    Where noise is small, the latents' scales converge slowly: loadings that are too small make
    latents too large by the same factor, and every update corrects little of it. The released
    ``moments``, the average of z~ z~', give the factor (Liu, Rubin and Wu 1998, Parameter expansion
    to accelerate EM). The result is A, shape (K + 1, K + 1), with z~ = A z~', where z' has the
    prior's moments: (W, c) A is as good for them as (W, c) for z. Without an ``intercept`` the
    latents' mean has nothing to absorb it.
    """
    centre = moments[:-1, -1] * intercept
    unit = np.sqrt(prior_precision)
    spread = unit[:, None] * (moments[:-1, :-1] - np.outer(centre, centre)) * unit
    values, vectors = np.linalg.eigh(spread)
    roots = np.clip(
        np.sqrt(np.maximum(values, 0.0)), 1 / DEFAULTS.largest_stretch, DEFAULTS.largest_stretch
    )
    found = np.eye(len(moments))
    found[:-1, :-1] = (vectors * roots) @ vectors.T / unit[:, None] * unit
    found[:-1, -1] = centre
    return found
