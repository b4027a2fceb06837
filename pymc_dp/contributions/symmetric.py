"""Symmetric matrices as vectors of the same norm."""

import numpy as np


def svec(matrices: np.ndarray) -> np.ndarray:
    """Upper triangle with off-diagonals times sqrt 2: its norm is the Frobenius norm.

    >>> import numpy as np
    >>> svec(np.array([[1.0, 2.0], [2.0, 3.0]])).round(3)
    array([1.   , 2.828, 3.   ])
    """
    rows, columns = np.triu_indices(matrices.shape[-1])
    return matrices[..., rows, columns] * np.where(rows == columns, 1.0, 2**0.5)


def smat(vectors: np.ndarray) -> np.ndarray:
    """Undo `svec`."""
    d = int((2 * vectors.shape[-1]) ** 0.5)
    rows, columns = np.triu_indices(d)
    matrices = np.zeros((*vectors.shape[:-1], d, d))
    matrices[..., rows, columns] = vectors / np.where(rows == columns, 1.0, 2**0.5)
    matrices[..., columns, rows] = matrices[..., rows, columns]
    return matrices
