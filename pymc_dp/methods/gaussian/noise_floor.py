"""Eigenvalues of noisy symmetric matrices: the edge of the noise, floors and shrinkage."""

from typing import NamedTuple, Self

import numpy as np
from scipy.special import erfcx


def spectral_edge(variance: float | np.ndarray, d: int) -> float:
    """Largest eigenvalue of symmetric (d, d) noise; ``variance`` is that of `svec`'s entries.

    Off-diagonal entries have half of it, so the semicircle's edge is at sqrt(2 d variance).
    """
    return float(np.sqrt(2 * d * variance))


def without_noise(values: np.ndarray, edge: float, least: float) -> np.ndarray:
    """Remove the noise's effect on eigenvalues; those that noise hides become ``least``.

    Source: Benaych-Georges and Nadakuditi (2011).
    """
    signal = (values + np.sqrt(np.maximum(values**2 - edge**2, 0.0))) / 2
    return np.where(values > edge, signal, least)


def mean_if_positive(estimate: np.ndarray, noise_sd: np.ndarray) -> np.ndarray:
    """Return the mean of positive numbers that were measured with normal noise.

    >>> mean_if_positive(np.array([100.0, 0.0, -9.0]), np.ones(3)).round(2)
    array([100.  ,   0.8 ,   0.11])
    """
    hazard = (2 / np.pi) ** 0.5 / erfcx(-estimate / noise_sd / 2**0.5)
    return np.asarray(estimate + noise_sd * hazard)


class Spectrum(NamedTuple):
    """Eigenvalues and eigenvectors of one symmetric matrix, or of several."""

    values: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, matrices: np.ndarray) -> Self:
        """Decompose matrices of shape (..., d, d)."""
        return cls(*np.linalg.eigh(matrices))

    def replaced(self, values: np.ndarray) -> np.ndarray:
        """Return the matrix that has other eigenvalues."""
        transposed = np.swapaxes(self.vectors, -1, -2)
        return np.asarray((self.vectors * values[..., None, :]) @ transposed)

    def floored(self, least: float) -> np.ndarray:
        """Raise eigenvalues to ``least``."""
        return self.replaced(np.maximum(self.values, least))

    def root(self) -> np.ndarray:
        """Return the symmetric square root; the matrix must be positive definite."""
        return self.replaced(np.sqrt(self.values))


def draws_without_noise(points: np.ndarray, lost: np.ndarray) -> np.ndarray | None:
    """Shrink draws, (n, d), to a precision that has not ``lost``, (d, d), to noise.

    None where they are too few to say how wide they are.
    """
    if len(points) <= points.shape[1]:
        return None
    try:
        root = root_of(np.cov(points.T, ddof=0).reshape(lost.shape))
        left = np.linalg.inv(np.eye(len(lost)) + root.T @ lost @ root)
        return shrunk(points, root @ root.T, root @ left @ root.T)
    except np.linalg.LinAlgError:
        return None


def shrunk(points: np.ndarray, covariance: np.ndarray, without: np.ndarray) -> np.ndarray | None:
    """Shrink draws of a covariance, (d, d), about their mean to one that is smaller everywhere.

    The covariance of the draws themselves, where they are enough, becomes smaller everywhere.

    >>> points = np.random.default_rng(0).normal(size=(1000, 2))
    >>> shrunk(points, np.eye(2), np.diag([1.0, 0.25])).std(axis=0).round(1)
    array([1. , 0.5])
    """
    mean = points.mean(axis=0)
    try:
        root = own = root_of(covariance)
        if len(points) > points.shape[1]:
            own = root_of(np.cov(points.T, ddof=0).reshape(covariance.shape))
        inverse = np.linalg.inv(root)
        left = Spectrum.of(inverse @ without @ inverse.T)
        factor = left.replaced(np.sqrt(np.clip(left.values, 0.0, 1.0)))
        found = mean + np.linalg.solve(own, (points - mean).T).T @ factor @ own.T
    except np.linalg.LinAlgError:
        return None
    return found if np.isfinite(found).all() else None


def root_of(covariance: np.ndarray) -> np.ndarray:
    """Return the Cholesky factor, in units of the coordinates, which may be of any size."""
    unit = np.sqrt(np.diag(covariance))
    return np.asarray(unit[:, None] * np.linalg.cholesky(covariance / np.outer(unit, unit)))
