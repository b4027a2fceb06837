"""A mixture whose prior and start are far from its records is doubted; a well-placed one is not."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.methods.method import doubts_in
from pymc_dp.testing import deterministic_noise

ROWS = 2000
rng = np.random.default_rng(0)
Y = np.where(rng.random(ROWS) < 0.4, rng.normal(4, 1, ROWS), rng.normal(-1, 1, ROWS))
FAR = {"both on one side": ([55.0, 60.0], "`mu[0]`"), "one far away": ([-1.0, 80.0], "`mu[1]`")}


def doubts_of(middles, sd=3.0):
    """Fit a mixture of two normal components; return what it warns of, and the means."""
    with pm.Model() as model:
        mu, w = pm.Normal("mu", middles, sd, shape=2), pm.Dirichlet("w", np.ones(2))
        pm.NormalMixture("y", w, mu, 1.0, observed=Y)
    with deterministic_noise(1):
        idata = pymc_dp.fit(
            model=model, epsilon=2, delta=1e-5, progressbar=False, random_seed=1, backend="python"
        )
    found = doubts_in(idata["privacy"].attrs["doubts"])
    return " ".join(doubt.text for doubt in found), idata["posterior"]["mu"]


@pytest.mark.parametrize(("middles", "named"), FAR.values(), ids=FAR)
def test_a_mixture_that_starts_far_from_its_records_is_doubted(middles, named):
    found, _ = doubts_of(middles)
    assert "The posterior of the mixture `y`" in found
    assert named in found
    assert "put each component near its records, by public numbers" in found


def test_a_well_placed_mixture_is_not_doubted():
    found, mu = doubts_of([-4.0, 7.0])
    assert found == ""
    assert (abs(mu.mean(("chain", "draw")) - [-1, 4]) < 0.2).all()
