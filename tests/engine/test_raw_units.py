"""Predictors in raw units, far from zero and nearly the same, are fitted as scaled ones are."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp  # noqa: F401 - registers the methods
from pymc_dp.testing import deterministic_noise

ROWS = 4000
LINKS = {"counts": np.exp, "yes or no": lambda x: 1 / (1 + np.exp(-x))}


def measured_animals(kind):
    """Make lengths, diameters and heights in millimetres, which all follow the animal's size."""
    rng = np.random.default_rng(8)
    size = rng.normal(100, 20, ROWS)
    sides = [share * size + rng.normal(0, 3 * share, ROWS) for share in (1.0, 0.8, 0.3)]
    X = np.column_stack([np.ones(ROWS), *sides])
    b = np.array([0.4, 0.02, -0.01, 0.03]) if kind == "counts" else np.array([-6.0, 0.1, -0.05, 0])
    mean = LINKS[kind](X @ b)
    return X, b, rng.poisson(mean) if kind == "counts" else rng.binomial(1, mean)


def without_privacy(X, b, y, kind):
    """Return the mode under wide priors, and the sds there."""
    for _ in range(20):
        mean = LINKS[kind](X @ b)
        H = (X.T * (mean if kind == "counts" else mean * (1 - mean))) @ X
        b = b + np.linalg.solve(H, X.T @ (y - mean))
    return b, np.diag(np.linalg.inv(H)) ** 0.5


@pytest.mark.parametrize("kind", LINKS)
def test_raw_predictors_that_are_nearly_the_same_are_as_narrow_as_noise_allows(kind):
    X, b, y = measured_animals(kind)
    mode, sd = without_privacy(X, b, y, kind)
    with pm.Model():
        coefficients = pm.Normal("b", 0, [100, 1, 1, 1])
        eta = pm.Data("X", X) @ coefficients
        if kind == "counts":
            pm.Poisson("y", pm.math.exp(eta), observed=y)
        else:
            pm.Bernoulli("y", logit_p=eta, observed=y)
        ratios, errors = [], []
        for key in range(3):
            with deterministic_noise(key):
                idata = pm.fit(
                    method="dp_advi", epsilon=8, delta=1e-5, random_seed=key, backend="python"
                )
            found = idata["posterior"]["b"].to_numpy().reshape(-1, 4)
            ratios.append(found.std(axis=0) / sd)
            errors.append((found.mean(axis=0) - mode) / found.std(axis=0))
    assert np.median(ratios) < 1.5
    assert np.max(ratios) < 4
    assert np.max(np.abs(errors)) < 4


def fitted_in_unit(outcome, unit):
    """Return mean and sd of coefficients, of which one and its predictor have other units."""
    rng = np.random.default_rng(3)
    X, units = rng.normal(size=(ROWS, 3)), np.array([1.0, unit, 1.0])
    eta = X @ [0.4, 0.5, -0.3]
    with pm.Model():
        b = pm.Normal("b", 0, 10 / units, shape=3)
        location = pm.Data("X", X * units) @ b
        if outcome == "normal":
            pm.Normal("y", location, pm.HalfNormal("s", 2), observed=rng.normal(eta, 0.3))
        else:
            pm.Bernoulli("y", logit_p=location, observed=rng.random(ROWS) < LINKS["yes or no"](eta))
        with deterministic_noise(5):
            terms = {"epsilon": 1, "delta": 1e-5, "random_seed": 1, "backend": "python"}
            idata = pm.fit(method="dp_advi", draws=10_000, **terms)  # little Monte Carlo error
    found = idata["posterior"]["b"].to_numpy()[0] * units
    return found.mean(axis=0), found.std(axis=0)


@pytest.mark.parametrize("outcome", ["normal", "yes or no"])
@pytest.mark.parametrize("unit", [2.0**14, 2.0**20])
def test_the_unit_of_a_predictor_changes_nothing(outcome, unit):
    mean, sd = fitted_in_unit(outcome, 1.0)
    same, same_sd = fitted_in_unit(outcome, unit)
    np.testing.assert_allclose(same_sd, sd, rtol=0.05)
    np.testing.assert_allclose((same - mean) / sd, 0, atol=0.1)
