"""Conjugate models: one release without noise is the textbook's posterior."""

import numpy as np
import pymc as pm
import pytest

from tests.methods.vips.vips_fits import (
    CATEGORY,
    COUNTS,
    EXPOSURE,
    GROUP,
    IN_GROUP,
    SUCCESSES,
    TRIALS,
    WAITS,
    YES,
    N,
    Y,
    fitted,
    parameters,
)


def p(**kwargs):
    return pm.Beta("p", 2, 3, **kwargs)


def r(**kwargs):
    return pm.Gamma("r", 2.5, 1.5, **kwargs)


def bernoulli():
    pm.Bernoulli("y", p(), observed=YES)


def binomial_with_trials_by_record():
    pm.Binomial("y", pm.Data("trials", TRIALS), p(shape=3)[GROUP], observed=SUCCESSES)


def categorical_by_group():
    pm.Categorical("y", pm.Dirichlet("p", np.full((3, 4), 2.0))[GROUP], observed=CATEGORY)


def poisson():
    pm.Poisson("y", r(), observed=COUNTS)


def poisson_with_exposure_by_group():
    pm.Poisson("y", r(shape=3)[GROUP] * pm.Data("exposure", EXPOSURE), observed=COUNTS)


def exponential():
    pm.Exponential("y", r(), observed=WAITS)


def normal_of_known_mean():
    pm.Normal("y", 0.5, tau=r(), observed=Y)


def by_group(values):
    return IN_GROUP.T @ values


# prior parameters plus sums over records
TEXTBOOK = [
    (bernoulli, "p", (2 + YES.sum(), 3 + (1 - YES).sum())),
    (
        binomial_with_trials_by_record,
        "p",
        (2 + by_group(SUCCESSES), 3 + by_group(TRIALS - SUCCESSES)),
    ),
    (categorical_by_group, "p", (2 + by_group(np.eye(4)[CATEGORY]),)),
    (poisson, "r", (2.5 + COUNTS.sum(), 1.5 + N)),
    (poisson_with_exposure_by_group, "r", (2.5 + by_group(COUNTS), 1.5 + by_group(EXPOSURE))),
    (exponential, "r", (2.5 + N, 1.5 + WAITS.sum())),
    (normal_of_known_mean, "r", (2.5 + N / 2, 1.5 + ((Y - 0.5) ** 2).sum() / 2)),
]


@pytest.mark.parametrize(("build", "name", "expected"), TEXTBOOK)
def test_one_release_gives_the_textbooks_posterior(build, name, expected):
    idata = fitted(build)
    assert idata["privacy"].attrs["releases"] == 1
    for got, wanted in zip(parameters(idata, name), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-8)


def test_draws_have_the_posteriors_moments():
    idata = fitted(poisson, draws=4000)
    shape, rate = parameters(idata, "r")
    draws = idata["posterior"]["r"].values.ravel()
    assert abs(draws.mean() - shape / rate) < 6 * shape**0.5 / rate / 4000**0.5
    np.testing.assert_allclose(idata["fit"]["mean_vector"], shape / rate)
    np.testing.assert_allclose(idata["fit"]["standard_deviation"], shape**0.5 / rate)
