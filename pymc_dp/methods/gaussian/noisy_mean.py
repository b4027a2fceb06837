"""What a Gaussian posterior becomes where its mean is known with privacy noise alone.

With prior precision P and curvature H the posterior has the covariance V = (P + H)^-1, and noise on
its mean, of covariance N, is noise of covariance B = V^-1 N V^-1 on the score. A noisy score says
H (H + B)^-1 H about the latents: no more than H, and nothing where noise exceeds it. So the result
is never wider than the prior in any direction. Arrays are matrices, or diagonals of shape (d,).
"""

import numpy as np


def covariance_with_noise(
    covariance: np.ndarray, noise: np.ndarray, precision: np.ndarray
) -> np.ndarray:
    """Return (P + H (H + B)^-1 H)^-1, about V + N where N is small.

    >>> covariance_with_noise(np.array([0.5, 0.5]), np.array([0.0, 1e9]), np.ones(2)).round(3)
    array([0.5, 1. ])
    """
    if covariance.ndim == 1:
        curvature = np.maximum(1 / covariance - precision, 0.0)
        of_score = noise / covariance**2
        known = curvature**2 / np.maximum(curvature + of_score, 1e-300)
        return np.asarray(1 / (precision + known))
    unit = np.sqrt(np.diag(covariance))
    scales = np.outer(unit, unit)
    whole, prior = np.linalg.inv(covariance / scales), precision * scales
    values, vectors = np.linalg.eigh(whole - prior)
    curvature = (vectors * np.maximum(values, 0.0)) @ vectors.T
    of_score = whole @ (noise / scales) @ whole
    inverse = np.linalg.pinv(curvature + of_score, rcond=1e-12, hermitian=True)
    found: np.ndarray = np.linalg.inv(prior + curvature @ inverse @ curvature) * scales
    return np.asarray((found + found.T) / 2)


def mean_with_noise(
    mean: np.ndarray, noise: np.ndarray, linear: np.ndarray, precision: np.ndarray
) -> np.ndarray:
    """Shrink a noisy mean towards the prior's, as far as noise exceeds the prior.

    ``linear`` is the prior's precision times its mean.

    >>> zero = np.zeros(2)
    >>> mean_with_noise(np.array([3.0, 3.0]), np.array([0.0, 2.0]), zero, np.ones(2))
    array([3., 1.])
    """
    if noise.ndim == 1:
        return np.asarray((mean + noise * linear) / (1 + noise * precision))
    widened = np.eye(len(mean)) + noise @ precision
    return np.asarray(np.linalg.solve(widened, mean + noise @ linear))
