"""From a released sum to new means of loadings and intercept; all of it post-processing."""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.vips.factor_sums import CURVATURE, ENERGY, Sums

# least weights of the latest curvature and of the latest energy in their averages
CURVATURE_WEIGHT, ENERGY_WEIGHT = 0.2, 0.5
# eigenvalues of the curvature and energies of a record are at least this
LEAST = 1e-3
# the count of records is at least this many standard deviations of its noise,
# and at least this share of a declared number
SURE, LEAST_SHARE = 2.0, 0.05
# steps fall like 1 / (1 + DECAY t) to LEAST_STEP
DECAY, LEAST_STEP = 0.2, 0.15
# how far noise may move a predictor: steps stay whole below the first, and shrink above the second
NEGLIGIBLE, TOLERANCE = 0.02, 1.2
# numbers in one stack of matrices that are solved together: 64 MB
STACK = 2**23


class Curvature(NamedTuple):
    """What the released curvatures say.

    Attributes
    ----------
    average : (K + 1, K + 1)
        As released, clipping and all.
    floored : (K + 1, K + 1)
        Eigenvalues raised to the noise's edge, and clipping undone as far as it is known.
    number : float
        The number of records, likewise.
    share : float
        What clipping leaves of a record, on average, if the number of records is declared.
    inverse_trace : float
        Sum of the inverse eigenvalues over the count.
    """

    average: np.ndarray
    floored: np.ndarray
    number: float
    share: float
    inverse_trace: float

    def seen_by(self, latents: np.ndarray) -> "Curvature":
        """Return the curvature of other latents (z, 1), ``latents`` times those of this one."""
        average, floored = (latents @ x @ latents.T for x in (self.average, self.floored))
        return self._replace(average=average, floored=floored)


def averaged(
    t: int, before: np.ndarray, sums: Sums, sd: float, num_records: int | None
) -> Curvature:
    """Average the curvature of release t with those before it; the first one with a public guess.

    ``sd`` is the noise's standard deviation on the released vector.
    """
    weight = 0.5 if t == 0 else max(1 / (t + 1), CURVATURE_WEIGHT)
    doubt = sd / CURVATURE * np.sqrt(weight / (2 - weight))
    least = max(SURE * doubt, LEAST_SHARE * (num_records or 0), LEAST)
    if t == 0:
        before = max(sums.curvature[-1, -1], least) * before
    average = (1 - weight) * before + weight * sums.curvature
    count = max(average[-1, -1], least)
    share = min(1.0, count / num_records) if num_records else 1.0
    values, vectors = np.linalg.eigh(average)
    values = np.maximum(values, max(doubt * np.sqrt(2 * len(average)), LEAST * count))
    return Curvature(
        average,
        (vectors * values) @ vectors.T / share,
        count / share,
        share,
        float(np.sum(1 / values) / count),
    )


def averaged_energy(
    t: int, before: float, sums: Sums, sd: float, least: float
) -> tuple[float, float]:
    """Average the energies; also return the average at the noise's own scale or above it."""
    weight = max(1 / (t + 1), ENERGY_WEIGHT)
    average = (1 - weight) * before + weight * sums.energy
    return average, max(average, sd / ENERGY * np.sqrt(weight / (2 - weight)), LEAST * least)


def length(t: int, noise_of_psi: float) -> float:
    """Length of step t: whole where noise moves psi by little, else falling, and ever shorter.

    >>> length(0, 0.0), length(5, 0.1), round(length(100, 12.0), 4)
    (1.0, 0.5, 0.0198)
    """
    return max(
        min(1.0, _at_rest(noise_of_psi, NEGLIGIBLE)),
        min(max(LEAST_STEP, 1 / (1 + DECAY * t)), _at_rest(noise_of_psi, TOLERANCE)),
    )


def _at_rest(noise: float, allowed: float) -> float:
    """Step at which the noise of many steps together has standard deviation ``allowed``."""
    return 2 * allowed**2 / (noise**2 + allowed**2)


def solve_rows(
    shared: np.ndarray, weights: np.ndarray, alphas: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """Solve (w_j H + diag(alpha_j)) x_j = g_j for every row j.

    Parameters
    ----------
    shared : (n, n)
        H.
    weights : (J,)
    alphas, slopes : (J, n)

    Returns
    -------
    (J, n)
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
    return np.vecdot(typical, typical)
