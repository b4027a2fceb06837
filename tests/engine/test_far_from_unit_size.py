"""A fit whose scales are far off ends with a result: its budget is spent."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.testing import deterministic_noise

QUIETLY = {"progressbar": False, "backend": "python", "random_seed": 1}


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_covariances_that_rounding_makes_negative_do_not_end_a_fit():
    rng = np.random.default_rng(0)
    ordered = pm.distributions.transforms.ordered
    at = np.array([-0.5, 0.5])
    with pm.Model() as model:
        cuts = pm.Normal("cuts", at, 1, shape=2, transform=ordered, initval=at)
        x = pm.Data("x", 30 * rng.uniform(-1, 1, (600, 3)))
        eta = x @ pm.Normal("b", 0, 1, shape=3)
        pm.OrderedLogistic("y", eta=eta, cutpoints=cuts, observed=rng.integers(0, 3, 600))
    for _ in range(4):
        idata = pymc_dp.fit(
            model=model, epsilon=0.05, delta=1e-5, draws=20, progressbar=False, backend="python"
        )
        assert np.isfinite(idata["fit"]["mean_vector"]).all()


@pytest.mark.parametrize(
    ("prior", "unit"), [(lambda: pm.Normal("mu", 0, 1e9), 1.0), (lambda: pm.Flat("mu"), 1e7)]
)
def test_a_prior_without_an_end_is_as_wide_as_the_outcomes_ask_for(unit, prior):
    y = unit * np.random.default_rng(0).normal(3.0, 1.0, 1000)
    with pm.Model() as model:
        pm.Normal("y", prior(), unit, observed=y)
    with deterministic_noise(1):
        idata = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, **QUIETLY)
    mu = idata["posterior"]["mu"].to_numpy()
    assert abs(mu.mean() - y.mean()) < 3 * mu.std()
    assert 1 < mu.std() / (unit / 1000**0.5) < 2
