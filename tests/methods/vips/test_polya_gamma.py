"""Logistic outcomes without noise are variational Bayes with Pólya-Gamma variables.

The references are written out in NumPy, one update a line, and share nothing with the library.
"""

import functools

import numpy as np
import pymc as pm
import pytest

from pymc_dp.testing import deterministic_noise
from tests.methods.vips.vips_fits import (
    COUNTS,
    OFFSET,
    SUCCESSES,
    TRIALS,
    WITH_ONES,
    YES,
    A,
    N,
    X,
    coefficients,
    fitted,
    gaussian,
    parameters,
    same_to,
)


def logistic():
    a, b = coefficients()
    pm.Bernoulli("y", logit_p=a + X @ b, observed=YES)


def logistic_with_offset():
    a, b = coefficients()
    pm.Bernoulli("y", logit_p=pm.Data("offset", OFFSET) + a + X @ b, observed=YES)


def binomial_logit():
    a, b = coefficients()
    pm.Binomial("y", pm.Data("trials", TRIALS), logit_p=a + X @ b, observed=SUCCESSES)


def negative_binomial():
    a, b = coefficients()
    pm.NegativeBinomial("y", n=4, p=pm.math.sigmoid(-(a + X @ b)), observed=COUNTS)


def polya_gamma(design, kappa, trials, offset=0.0, prior_precision=0.25, start=None):
    """Variational Bayes with Pólya-Gamma variables of shape ``trials``; Polson et al. 2013."""
    d = design.shape[1]
    mean, covariance = np.zeros(d), np.zeros((d, d)) if start is None else start
    prior = prior_precision * np.eye(d) if np.ndim(prior_precision) < 2 else prior_precision
    for _ in range(500):
        psi = offset + design @ mean
        c = np.sqrt(psi**2 + ((design @ covariance) * design).sum(axis=1))
        omega = trials * np.tanh(c / 2) / (2 * c) if c.any() else trials / 4
        before, covariance = covariance, np.linalg.inv((design.T * omega) @ design + prior)
        mean = covariance @ (design.T @ (kappa - omega * offset))
        if np.abs(covariance - before).max() < 1e-15:
            break
    return mean, covariance


LOGISTIC = functools.partial(polya_gamma, WITH_ONES, YES - 0.5, np.ones(N))
NEGATIVE = functools.partial(polya_gamma, WITH_ONES, (COUNTS - 4) / 2, COUNTS + 4)
AUGMENTED = [
    (logistic, A, LOGISTIC),
    (logistic_with_offset, A, functools.partial(LOGISTIC, OFFSET)),
    (binomial_logit, A, functools.partial(polya_gamma, WITH_ONES, SUCCESSES - TRIALS / 2, TRIALS)),
    (negative_binomial, A, NEGATIVE),
]


@pytest.mark.parametrize(("build", "names", "reference"), AUGMENTED)
def test_a_logistic_likelihood_is_that_of_variational_bayes(build, names, reference):
    same_to(1e-6, gaussian(fitted(build), names), reference())


def logistic_with_precision_of_weights():
    tau = pm.Gamma("tau", 2.0, 1.0)
    a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, tau=tau, shape=2)
    pm.Bernoulli("y", logit_p=a + X @ b, observed=YES)


def vb_logistic_with_precision():
    tau = 1.0
    for _ in range(200):
        mean, covariance = LOGISTIC(prior_precision=np.diag([0.25, tau, tau]))
        shape, rate = 2 + 2 / 2, 1 + ((mean**2 + np.diag(covariance))[1:]).sum() / 2
        tau = shape / rate
    return mean, covariance, shape, rate


def test_a_precision_of_logistic_weights_is_that_of_variational_bayes():
    idata = fitted(logistic_with_precision_of_weights)
    got = *gaussian(idata, A), *parameters(idata, "tau")
    same_to(1e-6, got, vb_logistic_with_precision())


def test_small_batches_come_close():
    with deterministic_noise(1):
        settings = {"sampling": "poisson", "sample_rate": 0.2, "kappa": 0.7, "n": 400}
        idata = fitted(logistic, **settings)
    mean, covariance = LOGISTIC()
    got = idata["fit"]["mean_vector"].sel(gaussian=A).values
    np.testing.assert_array_less(np.abs(got - mean), 0.5 * np.sqrt(np.diag(covariance)))
