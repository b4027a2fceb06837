"""A model of repeated measures, private per subject, finds what made the data."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp

SUBJECTS, VISITS = 2000, 5
REGIONS = np.array([-1.0, 0.0, 0.5, 1.0])
SLOPE = 0.8


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    subject = np.repeat(np.arange(SUBJECTS), VISITS)
    region = rng.integers(0, 4, SUBJECTS)[subject]
    x = rng.normal(size=len(subject))
    own = 0.5 * rng.normal(size=SUBJECTS)[subject]
    y = REGIONS[region] + SLOPE * x + own + 0.8 * rng.normal(size=len(subject))
    order = rng.permutation(len(subject))
    with pm.Model() as model:
        pm.Data("subject_id", subject[order], dims="visit")
        slope = pm.Normal("slope", 0, 2)
        effect = pm.Normal("effect", 0, 2, shape=4)
        eta = effect[pm.Data("region", region[order])] + slope * pm.Data("x", x[order])
        pm.Normal("y", eta, tau=pm.Gamma("tau", 2, 1), observed=y[order], dims="visit")
    return model


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "vips"},
        pytest.param({"method": "dp_advi", "clip_norm": 8.0}, marks=pytest.mark.slow),
    ],
    ids=lambda settings: settings["method"],
)
def test_slope_and_groups_are_found_at_epsilon_one_per_subject(model, settings):
    idata = pymc_dp.fit(
        model=model,
        unit="subject_id",
        epsilon=1,
        delta=1e-5,
        random_seed=1,
        draws=400,
        progressbar=False,
        **settings,
    )
    assert idata["privacy"].attrs["privacy_unit"] == "subject"
    assert idata["privacy"].attrs["epsilon"] <= 1
    mean = idata["posterior"].mean(("chain", "draw"))
    assert abs(mean["slope"] - SLOPE) < 0.15
    assert (abs(mean["effect"] - REGIONS) < 0.3).all()
