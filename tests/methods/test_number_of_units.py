"""A declared number is one of units where there are units, in all that asks for it."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.testing import deterministic_noise

UNITS, RECORDS_EACH = 400, 5
RECORDS = UNITS * RECORDS_EACH
TERMS = {"unit": "who", "epsilon": 4, "delta": 1e-5}
QUIETLY = {"progressbar": False, "backend": "python", "random_seed": 1, "draws": 400}

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")


def model_of(kind):
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(RECORDS, 2)), rng.normal(size=RECORDS)
    with pm.Model() as model:
        pm.Data("who", np.repeat(np.arange(UNITS), RECORDS_EACH))
        X = pm.Data("X", x)
        if kind == "line":
            b, tau = pm.Normal("b", 0, 2, shape=2), pm.Gamma("tau", 2, 1)
            pm.Normal("y", X @ b, tau=tau, observed=x @ [0.3, 0.8] + noise)
        else:
            hidden = pm.math.maximum(0, X @ pm.Normal("W", 0, 1, shape=(2, 4)))
            w = pm.Normal("w", 0, 1, shape=4)
            pm.Normal("y", hidden @ w, sigma=0.5, observed=np.tanh(x[:, 0]) + 0.3 * noise)
    return model


def width(kind, method, number, **settings):
    """Return the mean standard deviation of all latents."""
    with deterministic_noise(1):
        idata = pymc_dp.fit(
            model=model_of(kind), method=method, num_records=number, **TERMS, **QUIETLY, **settings
        )
    sds = idata["posterior"].to_dataset().std(("chain", "draw"))
    return np.mean([float(sd.mean()) for sd in sds.values()])


FITS = [("line", "dp_advi", {}), ("network", "dp_sep", {"n": 100, "sample_rate": 0.2})]


@pytest.mark.parametrize(("kind", "method", "settings"), FITS)
def test_a_posterior_is_as_wide_with_the_number_of_units_as_with_a_noisy_one(
    kind, method, settings
):
    counted = width(kind, method, None, **settings)
    assert width(kind, method, UNITS, **settings) == pytest.approx(counted, rel=0.05)


def test_a_dry_run_compares_noise_with_the_signal_of_units():
    ratios = [
        pymc_dp.plan(model_of("line"), num_records=number, **TERMS).noise_to_signal
        for number in (UNITS, 2 * UNITS)
    ]
    # of more units the comparison of outcomes takes less of the budget
    assert ratios[0] == pytest.approx(2 * ratios[1], rel=0.01)
