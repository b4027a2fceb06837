"""Clipping of vectors that keeps their mean over outcomes of the model.

A score that is cut at a norm has no zero mean any more, however large epsilon is, and the estimate
that makes the sum of such scores vanish is biased. Conditionally unbiased bounded influence
(Künsch, Stefanski and Carroll 1989) subtracts before clipping what makes the mean vanish under the
model. Outcomes that the model draws for the record say what that is.
"""

import numpy as np

from pymc_dp.privacy.norms import clip_factors, row_norms

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
    clipped: np.ndarray = scores * _factors(scores, bound)
    long = np.flatnonzero((clipped != scores).any(axis=(1, 2)))
    if long.size and scores.shape[1] > 1:
        some = scores[long]
        shift = np.zeros_like(some[:, :1])
        for _ in range(SWEEPS):
            moved = some - shift
            excess = moved * (1 - _factors(moved, bound))
            shift = -(excess * _factors(excess, LONGEST_EXCESS * bound)).mean(axis=1, keepdims=True)
        moved = some - shift
        clipped[long] = moved * _factors(moved, bound)
    return clipped


def _factors(vectors: np.ndarray, bound: float) -> np.ndarray:
    norms = row_norms(vectors.reshape(-1, vectors.shape[-1]))
    return np.asarray(clip_factors(norms, bound).reshape(*vectors.shape[:-1], 1))
