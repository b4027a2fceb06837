"""The curvature of a prior: exact where it is smooth, and that of one scale at a kink."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.methods.prior import prior_curvature, prior_gradient
from pymc_dp.testing import deterministic_noise
from tests.zoo import build as model_of
from tests.zoo import separated


def curvature_of(build, point):
    return prior_curvature(prior_gradient(separated(model_of(build))[0], "python"), np.array(point))


def of_observed(b):
    pm.Normal("y", b, 1.0, observed=np.zeros(5))


@pytest.mark.parametrize("scale", [1e-2, 0.5, 1e3])
@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_that_of_a_laplace_prior_is_one_over_its_squared_scale_about_the_kink(scale, mean):
    found = curvature_of(lambda: of_observed(pm.Laplace("b", mean, scale)), [mean])
    np.testing.assert_allclose(found, [[scale**-2]], rtol=1e-6)


def test_the_kink_is_as_wide_as_the_scale_that_a_latent_has_at_the_point():
    def shrunk():
        of_observed(pm.Laplace("b", 0, pm.HalfNormal("tau", 1)))

    found = curvature_of(shrunk, [np.log(0.05), 0.02])
    np.testing.assert_allclose(found[1, 1], 0.05**-2, rtol=1e-6)


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
