"""Normal distributions whose precisions are arrow matrices along fixed axes.

The precision of groups of one spread is, in their prior, a factor times I. Along the eigenvectors
of any matrix that is added it is diagonal, whatever the factor is: nothing of it is inverted. The
other coordinates, as the mean of the groups, come first.
"""

from typing import NamedTuple, Self

import numpy as np


class Conditional(NamedTuple):
    """The normal distribution of u given each of n values of the others."""

    mean: np.ndarray  # (n, k)
    covariance: np.ndarray  # (n, r, r) of the first of u
    slopes: np.ndarray  # (n, k - r, r) of the mean of the last of u, in the first
    variances: np.ndarray  # (n, k - r) of the last along the axes, given the first
    axes: np.ndarray  # (k - r, k - r)
    log_determinant: np.ndarray  # (n,) of the precision

    @classmethod
    def of(cls, linear: np.ndarray, first: np.ndarray, last: np.ndarray, axes: np.ndarray) -> Self:
        """Return exp(l'u - u' A u / 2), from l, (n, k), and from A.

        A has the ``first`` columns, (n, k, r), and behind them the diagonal ``last``, (n, k - r),
        along the axes.
        """
        r, variances = first.shape[2], 1 / last
        slopes = -axes @ (variances[:, :, None] * (axes.T @ first[:, r:]))
        transposed = slopes.swapaxes(1, 2)
        covariance, log_determinant = _inverted(first[:, :r] + transposed @ first[:, r:])
        mean = _times(covariance, linear[:, :r] + _times(transposed, linear[:, r:]))
        of_last = (linear[:, r:] @ axes * variances) @ axes.T + _times(slopes, mean)
        log_determinant = log_determinant + np.log(last).sum(axis=1)
        mean = np.append(mean, of_last, axis=1)
        return cls(mean, covariance, slopes, variances, axes, log_determinant)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw once from each, (n, k)."""
        values, vectors = np.linalg.eigh(self.covariance)
        first = _times(vectors, np.sqrt(np.maximum(values, 0.0)) * rng.normal(size=values.shape))
        sd = np.sqrt(np.maximum(self.variances, 0.0))
        last = (sd * rng.normal(size=sd.shape)) @ self.axes.T + _times(self.slopes, first)
        return np.asarray(self.mean + np.append(first, last, axis=1))

    def covariances(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return entries of the covariance, (n, m); between the last ones, variances alone."""
        r, between = self.covariance.shape[2], self.slopes @ self.covariance
        entries = np.zeros((*self.mean.shape, r + 1))
        entries[:, :r, :r], entries[:, r:, :r] = self.covariance, between
        entries[:, r:, r] = self.variances @ (self.axes**2).T + (between * self.slopes).sum(axis=2)
        return entries[:, np.maximum(rows, columns), np.minimum(np.minimum(rows, columns), r)]


def _times(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return np.asarray(np.einsum("nij,nj->ni", matrices, vectors))


def _inverted(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return inverses of matrices, (n, k, k), and logarithms of determinants.

    These are not numbers where a matrix is not positive definite, and the inverse is then I.
    """
    k = A.shape[-1]
    unit = np.sqrt(np.einsum("nii->ni", A))
    units = unit[:, :, None] * unit[:, None, :]
    scaled = A / units
    fine = np.isfinite(scaled).all(axis=(1, 2))
    scaled[~fine] = np.eye(k)
    sign, log_determinant = np.linalg.slogdet(scaled)
    fine &= sign > 0
    scaled[~fine] = np.eye(k)
    inverse = np.linalg.inv(scaled) / np.where(fine[:, None, None], units, 1.0)
    return inverse, np.where(fine, log_determinant + 2 * np.log(unit).sum(axis=1), np.nan)
