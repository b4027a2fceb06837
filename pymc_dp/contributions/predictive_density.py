"""Log posterior predictive densities of records: how well a posterior predicts each."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from pymc_dp.contributions.gradients import checked, on_batch
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch


class Range(NamedTuple):
    """Where a record's log predictive density is clipped to."""

    low: float
    high: float

    @property
    def centre(self) -> float:
        """The middle of the range."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> float:
        """The largest distance from the centre."""
        return (self.high - self.low) / 2


def check_range(score_range: tuple[float, float]) -> Range:
    """Read a caller's range of scores."""
    low, high = score_range
    if not -math.inf < low < high < math.inf:
        raise ValueError(
            f"score_range={score_range!r} must be two finite numbers, the smaller one first: it "
            "bounds what one record can add to the score."
        )
    return Range(float(low), float(high))


def predictive_density(
    records: Records, limits: Range, backend: str
) -> Callable[[Batch, np.ndarray], np.ndarray]:
    """Compile log mean p(record | z) over points z, shape (draws, size), clipped; shape (rows,).

    A record whose density is not a number is as badly predicted as any can be.
    """
    log_density = on_batch(records, [], checked(records, records.batch.log_likelihood()), backend)

    def densities(batch: Batch, points: np.ndarray) -> np.ndarray:
        each = np.stack([log_density(batch, z) for z in points])
        found = logsumexp(each, axis=0) - math.log(len(points))
        return np.clip(np.where(np.isnan(found), limits.low, found), *limits)

    return densities
