"""The paper's own contribution: the gradient with respect to the 2d variational parameters."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.contribution import Batch, Contribution, row_norms
from pymc_dp.contributions.gradients import each_gradient
from pymc_dp.records import Records


class Directions(NamedTuple):
    """Points z, shape (draws, size), and d z / d rho at each of them, same shape."""

    points: np.ndarray
    slopes: np.ndarray


def plain_gradient(records: Records, backend: str, draws: int = 1) -> Contribution:
    """Contribute the gradients with respect to mu and rho, both clipped and noised.

    For reproduction of Jälkö et al. (2017): the second half is a function of the first, so noise
    on it is wasted (`gradient` releases the first half alone). Context is a `Directions`.
    """
    gradients = each_gradient(records, backend)

    def rows(batch: Batch, at: Directions) -> np.ndarray:
        parts = []
        for z, slope in zip(at.points, at.slopes, strict=True):
            g = gradients(batch, z)
            parts += [g, g * slope]
        return np.concatenate(parts, axis=1)

    def norms(batch: Batch, at: Directions) -> np.ndarray:
        return row_norms(rows(batch, at))

    def weighted_sum(batch: Batch, at: Directions, weights: np.ndarray) -> np.ndarray:
        parts = []
        for z, slope in zip(at.points, at.slopes, strict=True):
            total = weights @ gradients(batch, z)
            parts += [total, total * slope]
        return np.concatenate(parts)

    size = 2 * draws * records.size
    return Contribution(size, size, norms, weighted_sum, rows=rows)
