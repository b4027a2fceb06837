"""Data, fits without noise, and what is read off them, for the tests of recovery by VIPS."""

import functools
import math

import numpy as np
import pymc as pm
from scipy.special import expit

import pymc_dp
from tests.zoo import build as model_of

N = 120
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 2))
GROUP = RNG.integers(0, 3, N)
OFFSET = RNG.normal(size=N)
ONES = np.ones((N, 1))
IN_GROUP = np.eye(3)[GROUP]
PSI = 0.3 + X @ [1.0, -0.5]
Y = PSI + RNG.normal(size=N)
YES = (RNG.random(N) < expit(PSI)).astype(int)
TRIALS = RNG.integers(1, 9, N)
SUCCESSES = RNG.binomial(TRIALS, expit(PSI))
COUNTS = RNG.poisson(3.0, N)
EXPOSURE = RNG.uniform(0.5, 2.0, N)
WAITS = RNG.exponential(0.5, N)
CATEGORY = RNG.integers(0, 4, N)
VOTES = RNG.multinomial(5, [0.2, 0.3, 0.5], N)
TWO_BUMPS = np.where(RNG.random(N) < 0.3, -3.0, 2.0) + RNG.normal(size=N)
A = ["a", "b[0]", "b[1]"]
WITH_ONES = np.column_stack([ONES, X])
NOISELESS = {
    "method": "vips",
    "epsilon": math.inf,
    "clip_norm": math.inf,
    "sampling": "full",
    "random_seed": 1,
    "progressbar": False,
    "backend": "python",
    "draws": 5,
}


@functools.cache
def fitted(build, **settings):
    """Fit without noise and clipping; every release replaces what is known from those before."""
    model = model_of(build)
    settings = {"kappa": 0.0, **settings}
    return pymc_dp.fit(model=model, **{**NOISELESS, **settings})


def parameters(idata, name):
    """Read the usual parameters of a block: a result shows the coefficients of log densities."""
    fit = idata["fit"]
    shape = fit[f"{name}.log_coefficient"].values + 1
    if f"{name}.rate" in fit:
        return shape, fit[f"{name}.rate"].values
    if f"{name}.log_complement_coefficient" in fit:
        return shape, fit[f"{name}.log_complement_coefficient"].values + 1
    return (shape,)


def coefficients(sd=2.0):
    return pm.Normal("a", 0, sd), pm.Normal("b", 0, sd, shape=2)


def gaussian(idata, names):
    """Return where the fit ended, and its covariance, in the order of ``names``."""
    last = idata["fit_stats"]["mean_path"].isel(release=-1).sel(gaussian=names)
    covariance = idata["fit"]["covariance_matrix"].sel(gaussian=names, gaussian_=names)
    return last.values, covariance.values


def same_to(tolerance, got, expected):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 10)
