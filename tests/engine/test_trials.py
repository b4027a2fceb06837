"""A multinomial's trials are part of its record, which is more than an outcome."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp

RNG = np.random.default_rng(5)
SHARES = np.array([0.2, 0.3, 0.5])
FREE = {"epsilon": np.inf, "progressbar": False, "backend": "python"}


@pytest.mark.parametrize("method", ["dp_advi", "vips"])
def test_a_multinomial_without_predictors_is_not_its_prior(method):
    counts = RNG.multinomial(6, SHARES, 400)
    with pm.Model() as model:
        pm.Multinomial("y", 6, pm.Dirichlet("p", np.ones(3)), observed=counts)
    p = pymc_dp.fit(model=model, method=method, **FREE)["posterior"]["p"]
    exact = (1 + counts.sum(axis=0)) / (3 + counts.sum())
    assert abs(p.mean(("chain", "draw")) - exact).max() < 0.005
    assert p.std(("chain", "draw")).max() < 0.02


def test_a_dirichlet_multinomial_is_not_its_prior():
    counts = np.array([RNG.multinomial(20, RNG.dirichlet(10 * SHARES)) for _ in range(1000)])
    with pm.Model() as model:
        sizes = pm.HalfNormal("sizes", 10, shape=3)
        pm.DirichletMultinomial("y", n=20, a=sizes, observed=counts)
    found = pymc_dp.fit(model=model, **FREE)["posterior"]["sizes"]
    np.testing.assert_allclose(found.mean(("chain", "draw")), 10 * SHARES, rtol=0.15)
