"""Gaussian latents of single records: their posterior is exact, and its covariance is public."""

from typing import NamedTuple

import numpy as np

from pymc_dp.methods.vips.factors.sums import Context, Sums, with_one
from pymc_dp.privacy.norms import row_norms


class NormalMoments(NamedTuple):
    """One row a record."""

    residual: np.ndarray  # y - psi at the expected latents
    features: np.ndarray  # the expected latents, and a one
    energy: np.ndarray  # the expected squared residual

    def norms(self, context: Context) -> Sums:
        """Norms of r z~' - W V, of z~ z~' + V and of the energy.

        Vectors are shortened to at most 1 first, so that no square leaves the range of doubles. A
        difference of squares is raised by its rounding error: no norm may be short.
        """
        covariance = _covariance(context)
        long, wide = row_norms(self.residual), row_norms(self.features)
        long = np.where(long < 1, 1.0, long)  # nan stays
        r, z = self.residual / long[:, None], self.features / wide[:, None]
        unit = 1 / (long * wide)
        straight = np.vecdot(r, r) * np.vecdot(z, z)
        correction = np.vdot(covariance.loaded, covariance.loaded) * unit**2
        crossed = 2 * unit * np.vecdot(r @ covariance.loaded, z)
        score = np.maximum(straight - crossed + correction, 0.0) + 1e-12 * (straight + correction)
        spread = 2 * np.vecdot(z @ covariance.latents, z) / wide**2
        own = np.vdot(covariance.latents, covariance.latents) / wide**4
        curvature = wide**2 * np.sqrt(np.vecdot(z, z) ** 2 + np.maximum(spread, 0.0) + own)
        return Sums(long * wide * np.sqrt(score), curvature, self.energy)

    def sums(self, context: Context, weights: np.ndarray) -> Sums:
        """Weighted sums over records."""
        covariance = _covariance(context)
        total = weights.sum()
        features = weights[:, None] * self.features
        return Sums(
            (weights[:, None] * self.residual).T @ self.features - total * covariance.loaded,
            features.T @ self.features + total * covariance.latents,
            weights @ self.energy,
        )


class _Covariance(NamedTuple):
    """The covariance V of a record's latents, and W V, both with zeros for the intercept.

    The same for every record, so that it is public.
    """

    latents: np.ndarray
    loaded: np.ndarray


def _covariance(context: Context) -> _Covariance:
    loadings = context.mean[:, :-1]
    second = loadings.T @ loadings + np.diag(context.variance[:, :-1].sum(axis=0))
    covariance = np.linalg.inv(np.diag(context.parameter) + context.precision * second)
    covariance = np.pad((covariance + covariance.T) / 2, (0, 1))
    return _Covariance(covariance, context.mean @ covariance)


def infer(gain: np.ndarray, slopes: np.ndarray, context: Context) -> NormalMoments:
    """E-step: E z = tau V W'(y - c); ``gain`` holds square roots of the outcomes' curvatures."""
    covariance = _covariance(context)
    centred = slopes / gain - context.mean[:, -1]
    z = context.precision * centred @ covariance.loaded[:, :-1]
    residual = centred - z @ context.mean[:, :-1].T
    energy = np.vecdot(residual, residual) + np.vdot(covariance.loaded, context.mean)
    return NormalMoments(residual, with_one(z), energy)
