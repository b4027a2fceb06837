"""Clipping of vectors that keeps their mean over outcomes of the model.

A score that is cut at a norm has no zero mean any more, however large epsilon is, and the estimate
that makes the sum of such scores vanish is biased. Conditionally unbiased bounded influence
(Künsch, Stefanski and Carroll 1989) subtracts before clipping what makes the mean vanish under the
model. Outcomes that the model draws for the record say what that is.
"""

import numpy as np

from pymc_dp.privacy.norms import LARGEST_NORM, SQUARES, clip_factors, row_norms

# sweeps of the fixed point, and the longest excess that a draw may add to it, in clip norms
SWEEPS, LONGEST_EXCESS = 6, 8.0


def clip_consistently(scores: np.ndarray, bound: float) -> np.ndarray:
    """Shift and clip vectors (rows, k, d) so that the clipped ones keep each row's mean.

    With e(v) = v - clip(v), the shift is the fixed point of a = -mean e(s_k - a): then the mean of
    clip(s_k - a) is that of s_k. The s_k of a row are exchangeable under the model and have zero
    mean, so that each clipped one has zero mean, too. Rows without excess are not shifted.

    >>> clipped = clip_consistently(np.array([[[3.0], [-1.0], [-1.0]]]), bound=2.0)
    >>> bool(abs(clipped).max() <= 2), clipped.round(1).ravel()
    (True, array([ 2. , -0.5, -0.5]))
    """
    if np.isinf(bound):
        return scores
    factors = clip_factors(lengths(scores), bound)
    clipped: np.ndarray = scores * factors[:, :, None]
    long = np.flatnonzero((factors < 1).any(axis=1))
    if long.size and scores.shape[1] > 1:
        some = scores[long]
        shift = np.zeros_like(some[:, :1])
        for _ in range(SWEEPS):
            moved = some - shift
            norms = lengths(moved)
            beyond = np.minimum(
                1 - clip_factors(norms, bound), clip_factors(norms, LONGEST_EXCESS * bound)
            )
            shift = -(moved * beyond[:, :, None]).mean(axis=1, keepdims=True)
        moved = some - shift
        clipped[long] = moved * clip_factors(lengths(moved), bound)[:, :, None]
    return clipped


def clip_both(scores: np.ndarray, weights: np.ndarray, bound: float) -> np.ndarray:
    """Weight and clip (rows, 3, d): a score, and those of both outcomes that a record can have.

    The two are opposite vectors, and the shift that keeps their mean at zero makes them shorter by
    one factor, which brings the longer to the bound. The observed one is that of one of them.

    >>> clip_both(np.array([[[3.0], [-1.0], [3.0]]]), np.ones(1), bound=1.5).ravel()
    array([ 1.5, -0.5,  1.5])
    """
    observed, no, yes = lengths(scores).T
    longest = np.maximum(np.maximum(no, yes), observed)
    factors = np.fmin(weights, clip_factors(longest, bound))
    return np.asarray(scores * factors[:, None, None])


def lengths(vectors: np.ndarray) -> np.ndarray:
    """Return the norms of vectors (rows, k, d), whatever their order in memory."""
    if vectors.shape[-1] == 1:
        norms = np.abs(vectors[:, :, 0])
        return np.where(norms > LARGEST_NORM, np.inf, norms)
    norms = np.asarray(np.sqrt(np.einsum("rkd,rkd->rk", vectors, vectors)))
    unsafe = ~((norms > SQUARES[0]) & (norms < SQUARES[1]))
    norms[unsafe] = row_norms(vectors[unsafe])  # and no other: their last bits would change
    return norms
