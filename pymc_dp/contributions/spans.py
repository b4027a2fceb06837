"""Vectors of records in coordinates of the span of few vectors of each record."""

import numpy as np

from pymc_dp.privacy.norms import SQUARES, row_norms

# what is left of a vector beside the others, as a share of it, that is rounding alone
ROUNDING = 1e-14
# shorter vectors count as 0: of numbers so small only some digits are kept
SHORTEST = 1e-280


def orthonormal(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Q (c, rows, d) and R (c, c, rows) with ``vectors[j] = sum over i of R[i, j] Q[i]``.

    For every row the Q[i] are orthonormal, or 0 where the vectors span fewer than c dimensions
    (Gram-Schmidt, twice: Björck 1994). R is upper triangular, and nan where a vector is not finite
    or longer than `LARGEST_NORM`: what is said in this basis is then not finite either.

    >>> Q, R = orthonormal(np.array([[[3.0, 4.0]], [[6.0, 8.0]]]))
    >>> Q.round(1).tolist(), R[..., 0].tolist()
    ([[[0.6, 0.8]], [[0.0, 0.0]]], [[5.0, 10.0], [0.0, 0.0]])
    """
    c, rows, _ = vectors.shape
    Q, R = np.empty_like(vectors), np.zeros((c, c, rows))
    for j, vector in enumerate(vectors):
        left, whole = vector, row_norms(vector)
        for _ in range(2 if j else 0):
            for i in range(j):
                part = np.vecdot(Q[i], left)
                R[i, j] += part
                left = left - part[:, None] * Q[i]
        norms = np.where(np.isfinite(whole), row_norms(left) if j else whole, np.nan)
        none = norms <= np.maximum(ROUNDING * whole, SHORTEST)
        R[j, j] = np.where(none, 0.0, norms)
        np.multiply(left, np.where(none, 0.0, 1 / np.where(none, 1.0, norms))[:, None], out=Q[j])
    return Q, R


def orthogonal(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Q, S and R with orthonormal ``S[i, :, None] * Q[i]``, and R as `orthonormal`.

    One vector of each row is left as it is, which saves a pass, if the squares of its norm and of
    one over it are far from what numbers can hold; S has a length of 1 along rows for several.
    """
    if len(vectors) > 1:
        Q, R = orthonormal(vectors)
        return Q, np.ones((len(Q), 1)), R
    norms = row_norms(vectors[0])
    within = (norms > SQUARES[0]) & (norms < SQUARES[1])
    shares = np.divide(1.0, norms, out=np.ones_like(norms), where=within)
    if not within.all():
        unit, R = orthonormal(vectors[:, ~within])
        vectors, norms = vectors.copy(), norms.copy()
        vectors[:, ~within], norms[~within] = unit, R[0, 0]
    return vectors, shares[None], norms[None, None]


def scaled_pairs(packed: np.ndarray, S: np.ndarray) -> np.ndarray:
    """Multiply symmetric matrices, packed as by `svec`, by S[i] S[j] of each row."""
    rows, columns = np.triu_indices(len(S))
    return np.asarray(packed * S[rows].T * S[columns].T)


def coordinates(R: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sums of vectors with weights (rows, k, c) as weights of an orthonormal basis.

    R has shape (b, c, rows), and they (rows, k, b).

    >>> coordinates(np.array([[[5.0], [10.0]], [[0.0], [0.0]]]), np.array([[[1.0, 2.0]]]))
    array([[[25.,  0.]]])
    """
    found = np.zeros((len(R), *weights.shape[:2]))
    for i, row in enumerate(R):
        for j, share in enumerate(row):  # those of 0, too: a weight that is not finite shows
            found[i] += weights[:, :, j] * share[:, None]
    return np.moveaxis(found, 0, -1)  # in this order in memory, loops are long


def combined(weights: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Sum vectors (c, rows, d) with weights (rows, k, c); shape (rows, k, d)."""
    total = np.zeros((*weights.shape[:2], vectors.shape[2]))
    for j, vector in enumerate(vectors):
        total += weights[:, :, j, None] * vector[:, None]
    return total


def sum_of_products(Q: np.ndarray, packed: np.ndarray) -> np.ndarray:
    """Sum the symmetric matrices Q' M Q of all rows; ``packed`` are their M as `svec` packs them.

    ``Q`` has shape (c, rows, d), ``packed`` (rows, c (c + 1) / 2), and the sum (d, d).
    """
    c, _, d = Q.shape
    total = np.zeros((d, d))
    for m, i, j in zip(packed.T, *np.triu_indices(c), strict=True):
        product = Q[i].T @ (m[:, None] * Q[j])
        total += product if i == j else (product + product.T) / 2**0.5
    return total


def diagonals(Q: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Return the diagonals of Q' M Q, shape (rows, d), for symmetric M, shape (rows, c, c)."""
    total = np.zeros(Q.shape[1:])
    for i, q in enumerate(Q):
        for j in range(i + 1):
            total += (M[:, i, j] * (1 if i == j else 2))[:, None] * q * Q[j]
    return total
