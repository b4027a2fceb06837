"""Symmetric matrices: as vectors of the same norm, their roots, and floors of their eigenvalues."""

import numpy as np


def svec(matrices: np.ndarray) -> np.ndarray:
    """Upper triangle with off-diagonals times sqrt 2: its norm is the Frobenius norm.

    >>> import numpy as np
    >>> svec(np.array([[1.0, 2.0], [2.0, 3.0]])).round(3)
    array([1.   , 2.828, 3.   ])
    """
    rows, columns = np.triu_indices(matrices.shape[-1])
    return matrices[..., rows, columns] * np.where(rows == columns, 1.0, 2**0.5)


def smat(vector: np.ndarray) -> np.ndarray:
    """Undo `svec`."""
    d = int((2 * vector.shape[-1]) ** 0.5)
    rows, columns = np.triu_indices(d)
    matrix = np.zeros((d, d))
    matrix[rows, columns] = vector / np.where(rows == columns, 1.0, 2**0.5)
    return matrix + np.triu(matrix, 1).T


def floored(precision: np.ndarray, least: float) -> np.ndarray:
    """Raise eigenvalues of symmetric matrices to ``least``."""
    values, vectors = np.linalg.eigh(precision)
    raised = np.maximum(values, least)[..., None, :]
    return (vectors * raised) @ np.swapaxes(vectors, -1, -2)


def roots(matrices: np.ndarray) -> np.ndarray:
    """Symmetric square roots of positive definite matrices."""
    values, vectors = np.linalg.eigh(matrices)
    return (vectors * np.sqrt(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
