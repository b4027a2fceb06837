"""Where the outcomes of a round are drawn: at its point, or each at a point of q."""

from collections.abc import Callable
from functools import cache

import numpy as np

from pymc_dp.contributions.drawn_scores import CENTRING, WEIGHING
from pymc_dp.contributions.joint_vector import At
from pymc_dp.contributions.outcomes import Draw
from pymc_dp.privacy.contribution import Batch


def draw_at_point(draw: Draw) -> Callable[[Batch, At, np.random.Generator], Batch]:
    """Draw outcomes at the point of a round, or each at a point of q."""
    return lambda batch, at, generator: draw(batch, points_of_draws(at), generator)


def points_of_draws(at: At) -> np.ndarray:
    """Return the point, (d,), or points of q for all draws, (DRAWS, d), which are public.

    Those of the draws that centre scores lie opposite each other.
    """
    if at.root is None:
        return at.point
    of_q = at.root * at.whitening if at.is_diagonal else at.root @ at.whitening
    every = _directions_of_draws(at.point.size)
    return np.asarray(at.point + (every * of_q if at.is_diagonal else every @ of_q))


@cache
def _directions_of_draws(d: int) -> np.ndarray:
    """Return vectors, (DRAWS, d), as long as standard normal ones are."""
    far = np.random.Generator(np.random.PCG64(0)).normal(size=(WEIGHING + CENTRING // 2, d))
    far *= (d / (far**2).sum(axis=1, keepdims=True)) ** 0.5
    return np.concatenate([far, -far[WEIGHING:]])
