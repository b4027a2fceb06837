"""Clipped scores of records, their variance, slopes and counts of lengths, in any coordinates.

Scores of the dispersion of outcomes are weighted, clipped and counted by themselves: they are
quadratic in residuals, and a norm that suits them would let all others pass.
"""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.consistent_clipping import clip_both, clip_consistently, lengths
from pymc_dp.contributions.drawn_scores import WEIGHING, probabilities, without_weighing
from pymc_dp.contributions.joint_vector import At
from pymc_dp.contributions.layout import svec
from pymc_dp.contributions.outcomes import BOTH
from pymc_dp.contributions.tails import counts as counts_of
from pymc_dp.privacy.norms import LARGEST_NORM, clip_factors
from pymc_dp.privacy.rowwise import each_product


class Clipped(NamedTuple):
    """Records' clipped scores; their slopes are means of products of ``scores`` and ``whole``."""

    score: np.ndarray  # (rows, d): at the observed outcome
    scores: np.ndarray  # (rows, k, d): at k outcomes
    whole: np.ndarray  # (rows, k, d): these before they were clipped
    variance: np.ndarray  # (rows,): mean squared norms of ``scores``
    information: np.ndarray  # (rows,): of ``whole``
    counts: np.ndarray  # (rows, parts * SIZE): of lengths before they were weighted and clipped

    def slopes(self) -> np.ndarray:
        """Return the slopes of the expected scores: symmetric parts, as vectors."""
        slope = each_product(np.swapaxes(self.scores, 1, 2), self.whole) / self.scores.shape[1]
        return svec((slope + np.swapaxes(slope, 1, 2)) / 2)

    def diagonals(self) -> np.ndarray:
        """Return the diagonals of the slopes alone, (rows, d)."""
        return np.asarray((self.scores * self.whole).mean(axis=1))

    def along(self, direction: np.ndarray | None, kept: np.ndarray, bound: float) -> np.ndarray:
        """Return ``kept`` of the slopes along a direction, (d,) or (rows, d), clipped; (rows,)."""
        if direction is None:
            return np.zeros(len(self.score))
        u, whole = (np.vecdot(x, direction[..., None, :]) for x in (self.scores, self.whole))
        return np.asarray(np.clip(kept * (u * whole).mean(axis=1), -bound, bound))

    def averaged(self, slope_share: np.ndarray | None, at: At) -> "Clipped":
        """Bring slopes and variances of scores that were averaged over q to what they are.

        Products of such scores at outcomes drawn from q hold the variance of means under q, too.
        With h the mean square of a whitened score, they are h + h^2 times q's variance.
        """
        if slope_share is None:
            if at.root is None:
                return self
            squares = np.maximum(np.vecdot(self.scores, self.whole).mean(axis=1), 0.0)
            slope_share = 2 / (1 + np.sqrt(1 + 4 * at.spread * squares))
        return self._replace(
            whole=self.whole * slope_share[:, None, None],
            variance=np.maximum(self.variance * slope_share, 0.0),
            information=np.maximum(self.information * slope_share, 0.0),
        )


def clipped_scores(z: np.ndarray, at: At, dispersion: np.ndarray) -> Clipped:
    """Weight and clip scores (rows, 1 + draws, d), the observed one first.

    ``dispersion`` says which of their coordinates are of the dispersion, (d,), if any are.
    """
    z = np.ascontiguousarray(z)  # what is added up in another order has other last bits
    if at.dispersion is None:
        return _clipped(z, at.score_bound, at)
    parts = ~dispersion, dispersion
    location, own = (
        _clipped(np.ascontiguousarray(z[..., part]), bound, at)
        for part, bound in zip(parts, (at.score_bound, at.dispersion.bound), strict=True)
    )
    score, scores, whole = (
        _joined(x, y, dispersion) for x, y in zip(location[:3], own[:3], strict=True)
    )
    variance, information = (x + y for x, y in zip(location[3:5], own[3:5], strict=True))
    counts = np.concatenate([location.counts, own.counts], axis=1)
    return Clipped(score, scores, whole, variance, information, counts)


def _joined(location: np.ndarray, own: np.ndarray, dispersion: np.ndarray) -> np.ndarray:
    joined = np.empty((*own.shape[:-1], dispersion.size))
    joined[..., dispersion], joined[..., ~dispersion] = own, location
    return joined


def _clipped(z: np.ndarray, bound: float, at: At) -> Clipped:
    """Weight and clip one part of scores."""
    of_both = z.shape[1] == 1 + len(BOTH)
    return (_from_both if of_both else _from_draws)(z, bound, at.curvature_bound)


def _from_draws(z: np.ndarray, bound: float, weight_bound: float) -> Clipped:
    """Clip observed scores; estimate their slopes and variances from drawn ones."""
    weighted, drawn = z[:, :1], z[:, :1]
    if z.shape[1] > 1:
        variance = (z[:, 1 : 1 + WEIGHING] ** 2).sum(axis=-1).mean(axis=1)
        weights = clip_factors(variance, weight_bound)  # a record of large variance weighs less
        drawn = without_weighing(z)
        weighted = weights[:, None, None] * drawn
    u = clip_consistently(weighted, bound)
    first = min(1, drawn.shape[1] - 1)  # means over drawn outcomes alone, where there are any
    variance, information = ((x[:, first:] ** 2).sum(axis=-1).mean(axis=1) for x in (u, drawn))
    return Clipped(u[:, 0], u[:, first:], drawn[:, first:], variance, information, _counts(z))


def _from_both(z: np.ndarray, bound: float, weight_bound: float) -> Clipped:
    """Clip observed scores beside those of both outcomes, from which all means follow.

    Scores have zero mean: those of probabilities q and p = 1 - q are -p x and q x, so that every
    mean of their products, p q x x', is minus their product.
    """
    no, yes = z[:, 1:2], z[:, 2:]
    variance = np.maximum(-(no * yes).sum(axis=(1, 2)), 0.0)
    weights = clip_factors(variance, weight_bound)  # a record of large variance weighs less
    u = clip_both(z, weights, bound)
    of_clipped = np.maximum(-(u[:, 1] * u[:, 2]).sum(axis=-1), 0.0)
    return Clipped(u[:, 0], -u[:, 1:2], yes, of_clipped, variance, _counts(z))


def _counts(z: np.ndarray) -> np.ndarray:
    """Count the lengths of whitened scores, before they are weighted and clipped."""
    norms = np.minimum(lengths(z), LARGEST_NORM)
    drawn = norms[:, 1:]
    if drawn.shape[1] == len(BOTH):
        return counts_of(norms, probabilities(drawn))
    return counts_of(norms, np.full(drawn.shape, 1 / max(drawn.shape[1], 1)))
