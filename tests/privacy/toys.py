"""Walls around a few vectors, and a look at what the noise is added to."""

from typing import NamedTuple

import numpy as np
import pytest

from pymc_dp.contributions import Contribution
from pymc_dp.contributions.contribution import row_norms
from pymc_dp.plans import Plan
from pymc_dp.query import Query
from pymc_dp.records import Column
from pymc_dp.release import Release
from pymc_dp.rng import SecretRandom
from pymc_dp.units import units_of
from pymc_dp.wall import PrivacyWall


def vectors(size):
    """Every record contributes its own row."""
    return Contribution(
        size,
        size,
        norms=lambda batch, context: row_norms(batch["x"]),
        weighted_sum=lambda batch, context, weights: weights @ batch["x"],
    )


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
    release = Release("score", sampling, sample_rate, clip_norm, noise_multiplier, count)
    units = None if codes is None else units_of(np.asarray(codes, "int64"), "id")
    plan = Plan((release,), neighbours, 1e-5, "pld", unit=units and units.name)
    return PrivacyWall(columns, {"score": contribution}, plan, units)


class Covered(NamedTuple):
    """The exact vector that a release adds noise to, and the noise's standard deviation."""

    total: np.ndarray
    sd: float


def before_noise(wall, context=None, **settings):
    """Make one release and return what its noise had to cover."""
    seen = []

    class Noiseless:
        __array_ufunc__ = None

        def __init__(self, sd):
            self.sd = sd

        def __radd__(self, total):
            seen.append(Covered(total, self.sd))
            return total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecretRandom, "gaussian", lambda self, sd, size: Noiseless(sd))
        wall.release(Query("score", context, **settings))
    [covered] = seen
    return covered
