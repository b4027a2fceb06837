"""The privacy noise on released sums is in the intervals of a factor model's noise precision."""

import functools

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.methods.vips import factors
from pymc_dp.testing import deterministic_noise

ROWS, J, K, FITS = 1000, 5, 2, 6
rng = np.random.default_rng(0)
LOADINGS = rng.normal(size=(J, K))
Y = rng.normal(size=(ROWS, K)) @ LOADINGS.T + rng.normal(size=(ROWS, J)) / 2**0.5


@functools.cache
def model():
    with pm.Model() as found:
        w, z = pm.Normal("w", 0, 1, shape=(J, K)), pm.Normal("z", 0, 1, shape=(ROWS, K))
        pm.Normal("y", z @ w.T, tau=pm.Gamma("tau", 2, 1), observed=Y)
    return found


def squared_surprises():
    """Fit the same records under other noise: how far are precisions from each other?"""
    moments = []
    for seed in range(FITS):
        with deterministic_noise(seed), pytest.warns(pymc_dp.PosteriorWarning, match="`tau`"):
            idata = pymc_dp.fit(
                model=model(),
                method="vips",
                epsilon=4,
                delta=1e-5,
                draws=400,
                progressbar=False,
                random_seed=1,
                backend="python",
            )
        logs = np.log(idata["posterior"]["tau"].to_numpy())
        moments.append((logs.mean(), logs.var()))
    means, variances = np.array(moments).T
    return float(((means - means.mean()) ** 2 / variances).sum())


def test_intervals_of_a_noise_precision_contain_the_privacy_noise():
    # squares of about 1, chi-square with five degrees of freedom: above 36 once in a million
    assert squared_surprises() < 36


def test_a_wider_gamma_has_the_same_mean():
    eta = np.array(9.0), np.array(4.0)
    shape, rate = (x + add for x, add in zip(factors.wider_gamma(eta, 0.3), (1, 0), strict=True))
    assert shape / rate == pytest.approx(2.5)
    assert 1 / shape == pytest.approx(0.1 + 0.3)
    np.testing.assert_allclose(factors.wider_gamma(eta, 0.0), eta)
