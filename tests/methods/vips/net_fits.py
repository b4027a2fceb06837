"""Fits of small belief nets without noise, and references that run until they stand still."""

import functools

import numpy as np
import pymc as pm
from scipy.special import expit

import pymc_dp
from tests.methods.vips import vips_fits
from tests.zoo import build as model_of

N, K = 50, 2
RNG = np.random.default_rng(8)
PARTS = np.array([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 4.0], [2.0, 2.0], [-3.0, 0.0]])
BITS = (RNG.random((N, 6)) < expit(RNG.integers(0, 2, (N, K)) @ PARTS.T - 1.5)).astype(int)
ROUNDS = 2000
NOISELESS = {**vips_fits.NOISELESS, "draws": 2}


@functools.cache
def fitted(build, n=500):
    return pymc_dp.fit(n, model=model_of(build), **NOISELESS)


def until_still(update, *values):
    """Repeat an update until it changes nothing."""
    for _ in range(ROUNDS):
        before, values = values, update(*values)
        pairs = zip(before, values, strict=True)
        if all(np.allclose(a, b, rtol=1e-11, atol=1e-12) for a, b in pairs):
            return values
    raise AssertionError("the reference does not converge")


def moments(idata, name):
    fit = idata["fit"]
    return fit[f"{name}.mean"].values, fit[f"{name}.sd"].values ** 2


def close(got, expected, tolerance=1e-6):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def belief_net():
    b, c = pm.Normal("b", 0, 2, shape=K), pm.Normal("c", 0, 3, shape=6)
    W = pm.Normal("W", 0, 2, shape=(6, K))
    z = pm.Bernoulli("z", logit_p=b, shape=(N, K))
    pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=BITS)


IMAGES = np.random.default_rng(3).integers(0, 2, (2000, K))


PIXELS = (np.random.default_rng(4).random((2000, 6)) < expit(IMAGES @ PARTS.T - 1.5)).astype(int)


def images():
    W, c = pm.Normal("W", 0, 2, shape=(6, K)), pm.Normal("c", 0, 3, shape=6)
    z = pm.Bernoulli("z", p=0.5, shape=(2000, K))
    pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=PIXELS)
