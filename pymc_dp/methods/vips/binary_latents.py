"""Binary latents of single records: a damped mean-field update, behind the wall.

The logistic likelihood becomes quadratic by Pólya-Gamma variables, whose means omega are fresh
for every record and every sweep.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from pymc_dp.methods.linear.polya_gamma import pg_weight
from pymc_dp.methods.vips.factor_sums import Asked, Inference, Sums, with_one

# the share of a sweep's log odds in the new ones: all latents move at once, and would overshoot
DAMPING = 0.5
SWEEPS = 8


class Beliefs(NamedTuple):
    """One row a record.

    Attributes
    ----------
    residual : (rows, J)
        kappa - omega E psi.
    features : (rows, K + 1)
        Probabilities p that latents are 1, and a one.
    weight : (rows, J)
        omega.
    """

    residual: np.ndarray
    features: np.ndarray
    weight: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """Variances p (1 - p) of (z, 1)."""
        return self.features * (1 - self.features)


def binary_latents(curvature: np.ndarray, sweeps: int) -> Inference:
    """Infer binary latents; ``curvature`` is the outcomes' largest, 1/4 for a yes or no."""
    return Inference(partial(infer, curvature, sweeps), norms, sums, energies=False)


def infer(curvature: np.ndarray, sweeps: int, slopes: np.ndarray, asked: Asked) -> Beliefs:
    """E-step: start at the prior, update all latents at once, ``sweeps`` times."""
    loadings, intercept = asked.mean[:, :-1], asked.mean[:, -1]
    squares, second = loadings**2, loadings**2 + asked.variance[:, :-1]
    transposed = (np.ascontiguousarray(x.T) for x in (loadings, squares, second))
    across, across_squares, across_second = transposed
    log_odds = np.tile(asked.parameter, (len(slopes), 1))

    def weigh(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        psi = p @ across + intercept
        spread = p @ across_second - p**2 @ across_squares + asked.variance[:, -1]
        return psi, curvature * pg_weight(np.sqrt(psi**2 + np.maximum(spread, 0.0)))

    for _ in range(sweeps):
        p = expit(log_odds)
        psi, omega = weigh(p)
        fresh = (slopes - omega * psi) @ loadings + p * (omega @ squares) - omega @ second / 2
        log_odds += DAMPING * (asked.parameter + fresh - log_odds)
    p = expit(log_odds)
    psi, omega = weigh(p)
    return Beliefs(slopes - omega * psi, with_one(p), omega)


def norms(beliefs: Beliefs, asked: Asked) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Norms of r z~' - omega u' o W, of p~ p~' + diag(u), and no energy.

    Differences of squares are raised by their rounding error: no norm may be short.
    """
    p, u = beliefs.features, beliefs.spread
    straight = np.vecdot(beliefs.residual, beliefs.residual) * np.vecdot(p, p)
    correction = np.vecdot(u**2, beliefs.weight**2 @ asked.mean**2)
    crossed = 2 * np.vecdot(p * u, (beliefs.residual * beliefs.weight) @ asked.mean)
    score = np.maximum(straight - crossed + correction, 0.0) + 1e-12 * (straight + correction)
    curvature = np.vecdot(p, p) ** 2 + np.vecdot(u, u + 2 * p**2)
    return np.sqrt(score), np.sqrt(curvature), np.zeros(len(p))


def sums(beliefs: Beliefs, asked: Asked, weights: np.ndarray) -> Sums:
    """Weighted sums over records."""
    p, u = beliefs.features, beliefs.spread
    residual, weight = (weights[:, None] * x for x in (beliefs.residual, beliefs.weight))
    return Sums(
        residual.T @ p - asked.mean * (weight.T @ u),
        (weights[:, None] * p).T @ p + np.diag(weights @ u),
        0.0,
    )
