"""The curvature of the log likelihood, filtered: what is believed of it is prior to a release.

Four steps, in white coordinates: what of the difference of a released slope and the belief is
signal; the curvature along the path, which has a release of its own; what two scores show of the
step between them; and the null space. docs/engine.md has the formulas.

Matrices are stacks of blocks (b, k, k), and vectors (b, k). Of few latents there is one block of
all of them; of many every latent is a block by itself, so that noise is added to a diagonal alone.
"""

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS


def vector_blocks(vector: np.ndarray) -> np.ndarray:
    """Cut a vector, (d,), into blocks."""
    return vector[:, None] if vector.size > MANY_LATENTS else vector[None]


def matrix_blocks(matrix: np.ndarray) -> np.ndarray:
    """Cut a matrix, (d, d), into the blocks on its diagonal."""
    return np.diag(matrix)[:, None, None] if len(matrix) > MANY_LATENTS else matrix[None]


def dense(K: np.ndarray) -> np.ndarray:
    """Return the matrix, (d, d), that has these blocks."""
    return K[0] if len(K) == 1 else np.diag(K[:, 0, 0])


def times(K: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Multiply vectors by matrices."""
    return np.asarray((K @ x[..., None])[..., 0])


def inner(x: np.ndarray, y: np.ndarray) -> float:
    """Return the inner product."""
    return float((x * y).sum())


def outer(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the outer product, so far as it lies in blocks."""
    return np.asarray(x[..., :, None] * y[..., None, :])


def symmetric(K: np.ndarray) -> np.ndarray:
    """Return the symmetric part."""
    return np.asarray((K + K.swapaxes(-1, -2)) / 2)


def congruent(B: np.ndarray, K: np.ndarray) -> np.ndarray:
    """Return B K B'."""
    return symmetric(B @ K @ B.swapaxes(-1, -2))


def trace(K: np.ndarray) -> float:
    """Return the trace."""
    return float(np.trace(K, axis1=-2, axis2=-1).sum())


def inverse(K: np.ndarray) -> np.ndarray:
    """Invert a positive definite matrix, in units in which its diagonal is 1."""
    unit = np.sqrt(np.einsum("bii->bi", K))
    units = outer(unit, unit)
    return symmetric(np.linalg.inv(K / units) / units)


def positive(K: np.ndarray, least: float) -> np.ndarray:
    """Raise eigenvalues to ``least``."""
    values, vectors = np.linalg.eigh(K)
    return symmetric((vectors * np.maximum(values, least)[..., None, :]) @ vectors.swapaxes(-1, -2))


def whitening(K: np.ndarray, number: float, parts: list[np.ndarray]) -> np.ndarray:
    """Return W with W K W' = number I, for each of the ``parts``, (b, k), by itself."""
    root = np.linalg.cholesky(within_parts(K, parts))
    return np.asarray(np.sqrt(number) * np.linalg.inv(root))


def within_parts(K: np.ndarray, parts: list[np.ndarray]) -> np.ndarray:
    """Return the matrix without what is between different ``parts``, (b, k), of the latents."""
    return np.asarray(sum(K * outer(part, part) for part in parts))


def shrunk(Y: np.ndarray, noise: float) -> np.ndarray:
    """Estimate a symmetric matrix of eigenvalues of about 1 from Y = it + Wigner noise of this sd.

    The diagonal, and its mean, are shrunk by themselves: groups have nothing else. Of the rest
    eigenvectors stay, and each eigenvalue loses the push by the others that noise explains (Bun,
    Allez, Bouchaud and Potters 2016, Rotational invariant estimator for general noisy matrices).

    >>> np.linalg.eigvalsh(shrunk(np.diag([3.0, -1.0])[None], noise=10.0))[0].round(3)
    array([-0.  ,  0.02])
    """
    b, k, _ = Y.shape
    unit = np.eye(k)
    middle, own = trace(Y) / (b * k), np.einsum("bii->bi", Y)
    y, vectors = np.linalg.eigh(Y - own[..., None] * unit)
    gaps = y[..., :, None] - y[..., None, :]
    push = (gaps / (gaps**2 + noise**2)).sum(axis=-1)
    values = (y - 2 * noise**2 * push) / (1 + k * noise**2)
    found = (vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2)
    diagonal = (own - middle) / (1 + 2 * noise**2) + middle / (1 + 2 * noise**2 / (b * k))
    return np.asarray(found + diagonal[..., None] * unit)


def with_path(H: np.ndarray, c: np.ndarray, along: float, sd: float, own_sd: float) -> np.ndarray:
    """Bring the curvature along a unit vector c to what the matrix and a release of it say.

    ``sd`` and ``own_sd`` are those of their noise; the matrix's prior has sd 1.
    """
    if len(H) > 1 or not c.any():
        return H
    Hc = times(H, c)
    own, own_sd = inner(c, Hc), own_sd / (1 + own_sd**2) ** 0.5
    weight = own_sd**2 / (own_sd**2 + sd**2)
    both, left = own + weight * (along - own), (1 - weight) ** 0.5 * own_sd
    both = max(both, left / 2, 1e-3)
    return np.asarray(H + (both / own - 1) / own * outer(Hc, Hc))


def with_secant(
    H: np.ndarray, x: np.ndarray, fall: np.ndarray, noise: np.ndarray, sd: float
) -> np.ndarray:
    """Bring the curvature to the fall of the score over a step x, H x, seen with this covariance.

    Entries of H are normal with this sd beforehand. Source: the symmetric update of Powell (1970),
    A new algorithm for unconstrained optimization, as that of a Kalman filter.

    >>> H, x = np.eye(2)[None], np.array([[1.0, 0.0]])
    >>> with_secant(H, x, fall=np.array([[3.0, 1.0]]), noise=1e-9 * H, sd=1.0).round(3)
    array([[[3., 1.],
            [1., 1.]]])
    """
    if len(H) > 1 or not x.any():
        return H
    of_step = sd**2 * (inner(x, x) * np.eye(x.size) + outer(x, x))
    u = np.linalg.solve(of_step + noise, (fall - times(H, x))[..., None])[..., 0]
    return positive(H + sd**2 * (outer(u, x) + outer(x, u)), 1e-3)


def without_null_space(H: np.ndarray, null_space: np.ndarray, edge: float) -> np.ndarray:
    """Leave no curvature in directions, (d, m), that no made-up record sees, nor the release."""
    if not null_space.size or len(H) > 1:
        return H
    Q = np.linalg.qr(null_space)[0]
    if np.linalg.eigvalsh(Q.T @ H[0] @ Q)[-1] > 2 * max(edge, 1e-3):
        return H
    return congruent((np.eye(len(Q)) - Q @ Q.T)[None], H)
