"""An intercept beside a predictor that is far from 0 for its spread: right, or warned of."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.engine import report
from pymc_dp.methods.method import doubts_in
from pymc_dp.testing import deterministic_noise

ROWS, FAR = 3000, 1000.0
rng = np.random.default_rng(17)
X, OTHERS = FAR + rng.normal(size=ROWS), rng.normal(size=(ROWS, 8))
Y = (rng.random(ROWS) < 1 / (1 + np.exp(-0.7 * (X - FAR)))).astype(int)


def doubts_and_errors(centre, key):
    """Return the doubts of a fit, and how far the slope of the far predictor is off, in sds."""
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1000.0), pm.Normal("b", 0, 2.0)
        others = pm.Data("others", OTHERS) @ pm.Normal("c", 0, 2.0, shape=8)
        location = a + b * (pm.Data("x", X) - centre) + others
        pm.Bernoulli("y", logit_p=location, observed=Y)
    with deterministic_noise(key):
        idata = pymc_dp.fit(
            model=model, epsilon=1, delta=1e-5, random_seed=0, progressbar=False, backend="python"
        )
    draws = idata["posterior"]["b"].to_numpy()
    return doubts_in(idata["privacy"].attrs["doubts"]), (draws.mean() - 0.7) / draws.std()


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_a_slope_that_is_wrong_on_a_ridge_is_warned_of():
    found = [doubts_and_errors(0.0, key) for key in range(5)]
    assert all(doubts or abs(error) < 4 for doubts, error in found)
    assert any(abs(error) > 4 for _, error in found)  # it is a ridge


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_the_warning_is_what_speaks(monkeypatch):
    monkeypatch.setattr(report, "_falling", lambda records, state: [])
    found = [doubts_and_errors(0.0, key) for key in range(5)]
    assert any(not doubts and abs(error) > 4 for doubts, error in found)


def test_a_predictor_that_is_centred_by_a_public_number_is_not_warned_of():
    found = [doubts_and_errors(FAR, key) for key in range(5)]
    assert not any(doubts for doubts, _ in found)
    assert all(abs(error) < 4 for _, error in found)
