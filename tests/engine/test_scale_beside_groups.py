"""The scale of outcomes is found beside the effects of many groups."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.testing import deterministic_noise

ROWS, GROUPS, SCALE = 5000, 20, 0.25


@pytest.fixture(scope="module")
def model():
    """A line of its own for each group."""
    rng = np.random.default_rng(5)
    member, x = rng.integers(0, GROUPS, ROWS), rng.normal(size=ROWS)
    a, b = rng.normal(size=(2, GROUPS))
    y = rng.normal(a[member] + b[member] * x, SCALE)
    with pm.Model() as built:
        level = pm.Normal("level", pm.Normal("mu"), pm.HalfNormal("spread"), shape=GROUPS)
        slope = pm.Normal("slope", pm.Normal("k"), pm.HalfNormal("spread of slopes"), shape=GROUPS)
        own = pm.Data("member", member)
        mean = level[own] + slope[own] * pm.Data("x", x)
        pm.Normal("y", mean, pm.HalfNormal("s"), observed=y)
    return built


def scale(model, epsilon, key):
    """Mean and sd of the scale in a fit."""
    terms = {"delta": 1e-5, "progressbar": False, "backend": "python", "random_seed": 1}
    with deterministic_noise(key):
        idata = pymc_dp.fit(model=model, epsilon=epsilon, **terms)
    draws = idata["posterior"]["s"].to_numpy()
    return draws.mean(), draws.std()


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_the_scale_is_found(model):
    means, sds = np.transpose([scale(model, epsilon=1.0, key=key) for key in (2, 3, 4)])
    assert np.mean(((means - SCALE) / sds) ** 2) ** 0.5 < 2
    assert np.abs(means - SCALE).max() < 0.06


@pytest.mark.slow  # the same at less noise is quick
@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_more_noise_leaves_it_known(model):
    means, sds = np.transpose([scale(model, epsilon=0.3, key=key) for key in (2, 3, 4, 8, 9)])
    assert (np.abs(means - SCALE) < 2 * sds).all()
    assert np.median(sds) < 0.45  # the prior's is 0.6
