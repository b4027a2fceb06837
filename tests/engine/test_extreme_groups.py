"""Groups whose answers are nearly all alike: their own curvature falls on the path to them."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.testing import deterministic_noise

ROWS, GROUPS, SPREAD = 5000, 40, 2.0


@pytest.fixture(scope="module")
def model_and_effects():
    """Yes-no answers; of a group at 4 logits all but two in a hundred say yes."""
    rng = np.random.default_rng(4)
    member, effects = rng.integers(0, GROUPS, ROWS), SPREAD * rng.normal(size=GROUPS)
    answers = rng.random(ROWS) < 1 / (1 + np.exp(-effects[member]))
    with pm.Model() as model:
        group = pm.Normal("group", 0, pm.HalfNormal("spread", 2), shape=GROUPS)
        pm.Bernoulli("y", logit_p=group[pm.Data("member", member)], observed=answers.astype(int))
    return model, effects


def z(model_and_effects, key):
    """How far the private effects are from the truth, in standard deviations, (GROUPS,)."""
    model, effects = model_and_effects
    with deterministic_noise(key):
        idata = pymc_dp.fit(
            model=model, epsilon=1, delta=1e-5, random_seed=0, progressbar=False, backend="python"
        )
    draws = idata["posterior"]["group"].stack(sample=("chain", "draw"))
    return (draws.mean("sample").to_numpy() - effects) / draws.std("sample").to_numpy()


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_extreme_effects_are_not_silently_pulled_to_the_others(model_and_effects):
    every = np.array([z(model_and_effects, key) for key in range(8)])
    extreme = np.abs(model_and_effects[1]) > 2.5
    # 8.9 and 2.4 where a diagonal is shrunk as all of a matrix is
    assert np.abs(every).max() < 5.5
    assert np.mean(every[:, extreme] ** 2) ** 0.5 < 2.3
