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


def scales(model, epsilon=1.0, keys=(2, 3)):
    """Mean and sd of the scale in fits whose noise differs."""
    found = []
    for key in keys:
        with deterministic_noise(key):
            idata = pymc_dp.fit(
                model=model,
                epsilon=epsilon,
                delta=1e-5,
                progressbar=False,
                backend="python",
                random_seed=1,
            )
        draws = idata["posterior"]["s"].to_numpy()
        found.append((draws.mean(), draws.std()))
    return np.transpose(found)


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_the_scale_is_found(model):
    mean, sd = scales(model)
    assert np.all(abs(mean - SCALE) < 2 * sd)
    assert np.all(abs(mean - SCALE) < 0.03)


def is_known(sd):
    """Whether more is known of the scale than from its prior, whose sd is 0.6."""
    return np.all(sd < 0.45)


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_more_noise_leaves_it_known(model):
    mean, sd = scales(model, epsilon=0.3, keys=(3, 8, 11))
    assert np.all(abs(mean - SCALE) < 2 * sd)
    assert is_known(sd)
