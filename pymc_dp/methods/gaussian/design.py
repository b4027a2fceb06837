"""The variance of weighted scores, by which a survey's posterior is as wide as its design says.

With weights the curvature H of the log likelihood no longer is the variance J of its score. Rounds
release the products of the records' (or of the clusters') weighted scores, whose sum estimates J,
and the posterior has the covariance H^-1 J H^-1 of an estimate from such scores (Binder 1983).
"""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.gaussian.belief import Curvature, symmetric
from pymc_dp.methods.gaussian.defaults import DEFAULTS


class DesignVariance(NamedTuple):
    """What releases say of the variance J of the sum of weighted scores."""

    matrix: Curvature | None = None  # J, (d, d), where products were released as a matrix
    # of many latents: the trace of J over that of H, pooled over rounds, and its precision
    ratio: float = 1.0
    weight: float = 0.0

    def add(
        self, found: Curvature, H: np.ndarray, W: np.ndarray, weak: np.ndarray
    ) -> "DesignVariance":
        """Add a round's products, (d, d), or their trace (1, 1) in coordinates W.

        ``weak``, (d,), are latents that are weakly correlated with others.
        """
        if len(found.estimate) == len(H):
            earlier = self.matrix
            joined = found if earlier is None else earlier.scaled_like(found, weak).combined(found)
            return self._replace(matrix=joined)
        trace = max(float(np.trace(W @ H @ W.T)), np.finfo(float).tiny)
        kept, own = DEFAULTS.kept_share * self.weight, (trace / float(found.noise[0, 0])) ** 2
        ratio = (kept * self.ratio + own * float(found.estimate[0, 0]) / trace) / (kept + own)
        return self._replace(ratio=ratio, weight=kept + own)

    def moved(self, share: float, units: np.ndarray) -> "DesignVariance":
        """Let J change along a step, as `Curvature.moved`, and with the scale of outcomes."""
        if self.matrix is None:
            return self
        moved = self.matrix.moved(share, DEFAULTS.floor_on_average).in_units(units)
        return self._replace(matrix=moved)

    def of(self, H: np.ndarray) -> np.ndarray:
        """Return J, (d, d), beside the curvature H: where noise hides its form, it is that of H.

        >>> noise = 1e-3 * np.eye(2)
        >>> DesignVariance(Curvature(np.diag([2.0, 6.0]), noise)).of(np.eye(2)).round(2)
        array([[2., 0.],
               [0., 6.]])
        >>> DesignVariance(Curvature(np.diag([2.0, 6.0]), 10 * np.eye(2))).of(np.eye(2)).round(2)
        array([[4., 0.],
               [0., 4.]])
        """
        if self.matrix is None:
            return max(self.ratio, DEFAULTS.least_share) * H
        root = np.linalg.cholesky(self.matrix.noise)
        inverse = np.linalg.inv(root)
        seen, like = (symmetric(inverse @ x @ inverse.T) for x in (self.matrix.estimate, H))
        size = max(float((seen * like).sum() / (like * like).sum()), DEFAULTS.least_share)
        left = seen - size * like
        # beside the noise, whose entries have variance 1 as `svec` packs them
        freedom = len(H) * (len(H) + 1) / 2 - 1
        excess = max(float((left**2).sum()) / freedom - 1, 0.0) if freedom else 0.0
        values, vectors = np.linalg.eigh(size * like + excess / (1 + excess) * left)
        least = DEFAULTS.least_left * size * np.vecdot(vectors.T, vectors.T @ like)
        back = root @ vectors
        return symmetric((back * np.maximum(values, least)) @ back.T)
