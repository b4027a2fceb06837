"""A fit whose scales are far off ends with a result: its budget is spent."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_covariances_that_rounding_makes_negative_do_not_end_a_fit(fixed_keys):
    rng = np.random.default_rng(0)
    ordered = pm.distributions.transforms.ordered
    at = np.array([-0.5, 0.5])
    with pm.Model() as model:
        cuts = pm.Normal("cuts", at, 1, shape=2, transform=ordered, initval=at)
        x = pm.Data("x", 30 * rng.uniform(-1, 1, (600, 3)))
        eta = x @ pm.Normal("b", 0, 1, shape=3)
        pm.OrderedLogistic("y", eta=eta, cutpoints=cuts, observed=rng.integers(0, 3, 600))
    for _ in range(8):
        idata = pymc_dp.fit(
            model=model, epsilon=0.05, delta=1e-5, progressbar=False, backend="python"
        )
        assert np.isfinite(idata["fit"]["mean_vector"]).all()
