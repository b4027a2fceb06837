"""Stochastic expectation propagation for linear predictors: fixed points, and what privacy adds."""

import functools

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit, log_expit, log_ndtr, ndtr

import pymc_dp
from pymc_dp.testing import deterministic_noise
from tests.methods.sep.expectation_propagation import propagate

N, D = 400, 3
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D))
TRUE = np.array([1.0, -0.7, 0.4])
PSI = X @ TRUE
NORMAL = PSI + 0.7 * RNG.normal(size=N)
YES = (RNG.random(N) < expit(PSI)).astype(int)
ABOVE = (RNG.random(N) < ndtr(PSI)).astype(int)
COUNTS = RNG.poisson(np.exp(PSI))
HEAVY = PSI + RNG.standard_t(4, N)


def linear(eta):
    pm.Normal("y", eta, 0.7, observed=NORMAL)


def logistic(eta):
    pm.Bernoulli("y", logit_p=eta, observed=YES)


def probit(eta):
    pm.Bernoulli("y", p=pm.math.invprobit(eta), observed=ABOVE)


def poisson(eta):
    pm.Poisson("y", pm.math.exp(eta), observed=COUNTS)


def student(eta):
    pm.StudentT("y", nu=4, mu=eta, sigma=1.0, observed=HEAVY)


LIKELIHOODS = {
    logistic: lambda psi: log_expit((2 * YES - 1)[:, None] * psi),
    probit: lambda psi: log_ndtr((2 * ABOVE - 1)[:, None] * psi),
    poisson: lambda psi: COUNTS[:, None] * psi - np.exp(psi),
    student: lambda psi: -2.5 * np.log(1 + (HEAVY[:, None] - psi) ** 2 / 4),
}


def model_of(likelihood):
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=D)
        likelihood(pm.math.dot(pm.Data("X", X), b))
    return model


@functools.cache
def fitted(likelihood, **settings):
    settings = {"method": "sep", "sampling": "full", "num_records": N, **settings}
    settings |= {"progressbar": False, "draws": 5, "backend": "python", "random_seed": 1}
    return pymc_dp.fit(model=model_of(likelihood), **settings)


def gaussian(idata):
    fit = idata["fit"]
    last = idata["fit_stats"]["mean_path"].isel(release=-1).values
    return last, fit["covariance_matrix"].values


def test_one_release_of_a_linear_model_is_its_conjugate_posterior():
    mean, covariance = gaussian(fitted(linear, n=1))
    precision = np.eye(D) + X.T @ X / 0.49
    np.testing.assert_allclose(mean, np.linalg.solve(precision, X.T @ NORMAL / 0.49), atol=1e-12)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), atol=1e-12)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_a_fit_ends_at_the_fixed_point(likelihood):
    expected = propagate(X, LIKELIHOODS[likelihood], np.eye(D), shared=True)
    for got, wanted in zip(gaussian(fitted(likelihood)), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("likelihood", [logistic, probit])
def test_sharing_one_site_hardly_changes_expectation_propagation(likelihood):
    mean, covariance = propagate(X, LIKELIHOODS[likelihood], np.eye(D), shared=False)
    got, its_covariance = gaussian(fitted(likelihood))
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(got, mean, atol=0.03 * sd.min())
    np.testing.assert_allclose(np.sqrt(np.diag(its_covariance)), sd, rtol=0.02)


def test_a_private_fit_comes_close():
    mean, covariance = gaussian(fitted(logistic))
    with deterministic_noise(5):
        private = fitted(logistic, method="dp_sep", epsilon=20.0, delta=1e-5)
    off = private["fit"]["mean_vector"].values - mean
    noise = np.diag(private["fit"]["noise_covariance"].values)
    np.testing.assert_array_less(np.abs(off), 5 * np.sqrt(noise) + np.sqrt(np.diag(covariance)))
    assert private["privacy"].attrs["method"] == "dp_sep"


def test_the_literal_algorithm_contracts_by_its_number_of_records():
    gamma, passes = 40.0, 5
    exact = gaussian(fitted(linear, n=1))
    settings = {"form": "algorithm3", "step": gamma, "n": passes, "sample_rate": 1.0}
    with pytest.warns(UserWarning, match="of the way from the prior"):
        idata = fitted(linear, method="dp_sep", epsilon=np.inf, clip_norm=np.inf, **settings)
    left = (1 - gamma / N) ** passes
    got = np.linalg.inv(gaussian(idata)[1])
    wanted = np.eye(D) + (1 - left) * (np.linalg.inv(exact[1]) - np.eye(D))
    np.testing.assert_allclose(got, wanted, rtol=1e-10)
    assert abs(left - np.exp(-passes * gamma / N)) < 0.03


def test_the_literal_algorithm_needs_a_public_number_of_records():
    with pytest.raises(ValueError, match="give num_records="):
        fitted(
            linear, method="dp_sep", epsilon=1.0, delta=1e-5, form="algorithm3", num_records=None
        )
