"""Binary latents of single records: a damped mean-field update, behind the wall.

The logistic likelihood becomes quadratic by Pólya-Gamma variables, whose means omega are fresh
for every record and every sweep.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from pymc_dp.methods.linear.link import pg_weight
from pymc_dp.methods.vips.factors.defaults import DEFAULTS
from pymc_dp.methods.vips.factors.sums import Context, Sums, with_one


class BinaryMoments(NamedTuple):
    """One row a record."""

    residual: np.ndarray  # kappa - omega E psi
    features: np.ndarray  # probabilities p that latents are 1, and a one
    weight: np.ndarray  # omega

    @property
    def spread(self) -> np.ndarray:
        """Variances p (1 - p) of (z, 1)."""
        return np.asarray(self.features * (1 - self.features))

    def norms(self, context: Context) -> Sums:
        """Norms of r z~' - omega u' o W and of p~ p~' + diag(u).

        Differences of squares are raised by their rounding error: no norm may be short.
        """
        p, u = self.features, self.spread
        straight = np.vecdot(self.residual, self.residual) * np.vecdot(p, p)
        correction = np.vecdot(u**2, self.weight**2 @ context.mean**2)
        crossed = 2 * np.vecdot(p * u, (self.residual * self.weight) @ context.mean)
        score = np.maximum(straight - crossed + correction, 0.0) + 1e-12 * (straight + correction)
        curvature = np.vecdot(p, p) ** 2 + np.vecdot(u, u + 2 * p**2)
        return Sums(np.sqrt(score), np.sqrt(curvature))

    def sums(self, context: Context, weights: np.ndarray) -> Sums:
        """Weighted sums over records."""
        p, u = self.features, self.spread
        residual, weight = (weights[:, None] * x for x in (self.residual, self.weight))
        return Sums(
            residual.T @ p - context.mean * (weight.T @ u),
            (weights[:, None] * p).T @ p + np.diag(weights @ u),
        )


def infer(
    curvature: np.ndarray, sweeps: int, slopes: np.ndarray, context: Context
) -> BinaryMoments:
    """E-step: start at the prior, update all latents at once, ``sweeps`` times.

    ``curvature`` is the largest of each outcome, 1/4 for a yes or no.
    """
    loadings, intercept = context.mean[:, :-1], context.mean[:, -1]
    squares, second = loadings**2, loadings**2 + context.variance[:, :-1]
    transposed = (np.ascontiguousarray(x.T) for x in (loadings, squares, second))
    across, across_squares, across_second = transposed
    log_odds = np.tile(context.parameter, (len(slopes), 1))

    def weigh(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        psi = p @ across + intercept
        spread = p @ across_second - p**2 @ across_squares + context.variance[:, -1]
        return psi, curvature * pg_weight(np.sqrt(psi**2 + np.maximum(spread, 0.0)))

    for _ in range(sweeps):
        p = expit(log_odds)
        psi, omega = weigh(p)
        fresh = (slopes - omega * psi) @ loadings + p * (omega @ squares) - omega @ second / 2
        log_odds += DEFAULTS.damping * (context.parameter + fresh - log_odds)
    p = expit(log_odds)
    psi, omega = weigh(p)
    return BinaryMoments(slopes - omega * psi, with_one(p), omega)
