"""The count of clipped records as one more coordinate of a sum, for adaptive clip norms.

The clipped vector and the coordinate of the count are bounded together, so that one release with
one noise covers both (Andrew et al. 2021; soundness of the joint norm: the squares add).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.privacy.contribution import Contribution, RowContribution, UnitVector, unit_vector
from pymc_dp.privacy.noise import NORM_MARGIN
from pymc_dp.privacy.norms import clip_factors, row_norms

# share of the clip norm that the count takes beside the sum
COUNT_SHARE = 0.2
# the clip norm of the joint vector over that of the sum alone
JOINT = float(np.hypot(1, COUNT_SHARE))


class AtClipNorm(NamedTuple):
    """The context of a counted contribution: that of the sum, and the norm to clip it to."""

    context: Any
    clip_norm: float


def split(value: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return the released sum, and whether its count is above 0: too many records are clipped."""
    return value[:-1], bool(value[-1] > 0)


def with_clipped_count(contribution: Contribution, quantile: float) -> Contribution:
    """Clip vectors, and append whether each was clipped, less the share that should be.

    A share of ``quantile``, between 0 and 1, should not be clipped. The context is an `AtClipNorm`.

    **Privacy.** The norm of a record's (or a unit's) vector is at most `JOINT` times the clip norm,
    also before the wall clips it: a clipped vector has norm at most C, the count at most
    ``COUNT_SHARE * C``, and `JOINT` is the norm of (1, COUNT_SHARE).
    """
    # reduced by the clip margin, so that rounding leaves the wall nothing to clip
    share = COUNT_SHARE / max(quantile, 1 - quantile) * (1 - 2 * NORM_MARGIN)

    def factors(norms: np.ndarray, at: AtClipNorm) -> np.ndarray:
        return clip_factors(norms, at.clip_norm * (1 - NORM_MARGIN))

    def counts(norms: np.ndarray, bound: float) -> np.ndarray:
        return share * bound * ((norms > bound) - (1 - quantile))

    def with_count(rows: np.ndarray, at: AtClipNorm) -> np.ndarray:
        norms = row_norms(rows)
        clipped = rows * factors(norms, at)[:, None]
        both = np.column_stack([clipped, counts(norms, at.clip_norm)])
        return np.where(np.isfinite(norms)[:, None], both, np.nan)

    def norms(prepared: Any, at: AtClipNorm) -> np.ndarray:
        each = contribution.norms(prepared, at.context)
        with np.errstate(invalid="ignore"):
            clipped = each * factors(each, at)
        counted = np.where(np.isfinite(each), counts(each, at.clip_norm), np.nan)
        return np.asarray(np.hypot(clipped, counted))

    def weighted_sum(prepared: Any, at: AtClipNorm, weights: np.ndarray) -> np.ndarray:
        each = contribution.norms(prepared, at.context)
        clipping = np.where(weights > 0, weights * factors(each, at), 0.0)
        total = contribution.weighted_sum(prepared, at.context, clipping)
        return np.append(total, weights @ counts(each, at.clip_norm))

    unit = unit_vector(contribution)
    changed: dict[str, Any] = {
        "size": contribution.size + 1,
        "width": contribution.width + 2,
        "jumps": True,
        "prepare": _in_context(contribution.prepare),
        "draw": contribution.draw and _in_context(contribution.draw),
        "unit": UnitVector(
            unit.size,
            lambda sums, at: with_count(unit.vectors(sums, at.context), at),
            unit.weighted_sum and _in_context(unit.weighted_sum),
            unit.rows and _in_context(unit.rows),
            unit.draw and _in_context(unit.draw),
        ),
    }
    if isinstance(contribution, RowContribution):
        rows = contribution.rows
        return contribution._replace(
            **changed, rows=lambda prepared, at: with_count(rows(prepared, at.context), at)
        )
    return contribution._replace(**changed, norms=norms, weighted_sum=weighted_sum, rows=None)


def _in_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt a function of the sum's context to an `AtClipNorm`."""
    return lambda given, at, *weights: function(given, at.context, *weights)
