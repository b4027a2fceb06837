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
