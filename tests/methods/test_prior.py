"""The curvature of a prior: exact where it is smooth, and that of one scale at a kink."""

import numpy as np
import pymc as pm

import pymc_dp
from pymc_dp.testing import deterministic_noise


def test_coefficients_with_laplace_priors_get_where_the_records_say():
    rng = np.random.default_rng(3)
    x, b = rng.normal(size=(4000, 3)), np.array([-2.0, 0.0, 0.7])
    with pm.Model():
        coefficients = pm.Laplace("b", 0, 0.5, shape=3)
        pm.Normal("y", pm.Data("x", x) @ coefficients, 1.0, observed=rng.normal(x @ b))
        with deterministic_noise(1):
            terms = {"epsilon": 1, "delta": 1e-5, "progressbar": False, "backend": "python"}
            idata = pymc_dp.fit(method="dp_advi", random_seed=1, **terms)
    draws = idata["posterior"]["b"].to_numpy()[0]
    assert np.all(draws.std(axis=0) < 0.03)
    assert np.all(abs(draws.mean(axis=0) - b) < 5 * draws.std(axis=0))
