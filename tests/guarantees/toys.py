"""Walls around a few vectors, and a look at what the noise is added to."""

from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pytest

from pymc_dp.model import Column, PrivateData
from pymc_dp.privacy.contribution import FactoredContribution, Query, RowContribution
from pymc_dp.privacy.norms import row_norms
from pymc_dp.privacy.private_data import units_of
from pymc_dp.privacy.randomness import SecretRandom
from pymc_dp.privacy.wall import PrivacyWall
from tests.plans import plan_from, release_from


def vectors(size):
    """Every record contributes its own row, of which the wall is told the norm."""
    return FactoredContribution(
        size,
        size,
        norms=lambda batch, context: row_norms(batch["x"]),
        weighted_sum=lambda batch, context, weights: weights @ batch["x"],
    )


def rows(size):
    """Every record contributes its own row, of which the wall takes the norm."""
    return RowContribution(size, size, lambda batch, context: batch["x"])


def wall_of(
    x,
    contribution=None,
    *,
    sampling="full",
    sample_rate=1.0,
    clip_norm=1.0,
    noise_multiplier=1.0,
    count=1,
    neighbours="add_remove",
    codes=None,
):
    """Hold one column of vectors, or several columns by name; ``codes`` tell their units."""
    columns = x if isinstance(x, dict) else {"x": Column(np.asarray(x), 0, "float64")}
    contribution = contribution or vectors(columns["x"].values.shape[1])
    release = release_from("score", sampling, sample_rate, clip_norm, noise_multiplier, count)
    units = None if codes is None else units_of(np.asarray(codes, "int64"), "id")
    plan = plan_from((release,), neighbours, 1e-5, "pld", unit=units and units.name)
    return PrivacyWall(PrivateData(columns, units), {"score": contribution}, plan)


def columns_of_rows(columns, rows):
    """Hold records, each a mapping from names to entries, in columns like those given."""
    return {
        leaf: column._replace(
            values=np.array([row[leaf] for row in rows], column.values.dtype).reshape(
                len(rows), *column.values.shape[1:]
            )
        )
        for leaf, column in columns.items()
    }


class Covered(NamedTuple):
    """The exact vector that a release adds noise to, and the noise's standard deviation."""

    total: np.ndarray
    sd: float


class SeenNoise:
    """Noise that keeps the sum it is added to."""

    __array_ufunc__ = None

    def __init__(self, steps, step):
        self.steps, self.step = steps, step
        self.total = np.zeros(0)

    def __radd__(self, total):
        self.total = total * self.step
        return total + self.steps


@contextmanager
def seen_noise():
    """Collect the noise of every release, with the standard deviation it was asked with."""
    drawn: list[tuple[SeenNoise, float]] = []
    gaussian = SecretRandom.rounded_gaussian

    def seen(source, sd, step, size):
        drawn.append((SeenNoise(gaussian(source, sd, step, size), step), sd))
        return drawn[-1][0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecretRandom, "rounded_gaussian", seen)
        yield drawn


def before_noise(wall, context=None, **settings):
    """Make one release and return what its noise had to cover."""
    with seen_noise() as drawn:
        wall.release(Query("score", context, **settings))
    [(noise, sd)] = drawn
    return Covered(noise.total, sd)
