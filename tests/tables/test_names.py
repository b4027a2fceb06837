"""Any name that PyMC takes works, also one that NumPy or PyTensor would read as a type."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.driver.fit import set_up

# what NumPy reads as types, or tries to; what stands for something elsewhere; what is hard to print
NAMES = ["answer, 1 to 5", "censored(time, status)", "int", "half", "i4,f8", "(2,3)i4", "floatX"]
NAMES += ["O", ">f8", "datetime64", "float32", "index", "dtype", "x y", "a\nb", "x[0]", "data", "1"]
NAMES += ["posterior", "rows", "é", "[T.b]", "bs(x, df=6)"]
BUDGET = {"epsilon": 1, "delta": 1e-5, "backend": "python", "num_records": 300}
ROLES = 6


def named(latent, scale, predictor, group, outcome, effects):
    """A model whose variables have these names."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    with pm.Model() as model:
        b, s = pm.Normal(latent), pm.HalfNormal(scale, 1)
        u = pm.Normal(effects, shape=100)
        mu = b * pm.Data(predictor, x) + u[pm.Data(group, np.repeat(np.arange(100), 3))]
        pm.Normal(outcome, mu, s, observed=x + rng.normal(size=300))
    return model


@pytest.mark.parametrize("first", range(0, len(NAMES), 3))
def test_names_that_look_like_types_are_names(first):
    latent, scale, _, group, _, _ = names = np.roll(NAMES, -first)[:ROLES]
    records = set_up(named(*names), "dp_advi", None, unit=group, epsilon=1.0, delta=1e-5).records
    assert set(records.latents) == {latent, f"{scale}_log__"}


def test_a_result_has_them():
    model = named("i4,f8", "half", "int", ">f8", "answer, 1 to 5", "O")
    idata = pymc_dp.fit(model=model, unit=">f8", progressbar=False, draws=20, **BUDGET)
    assert set(idata["posterior"].data_vars) == {"i4,f8", "half"}
    new = {"int": np.zeros(3), ">f8": np.arange(3)}
    drawn = pymc_dp.predict(idata, model, new)["predictions"]
    assert drawn["answer, 1 to 5"].shape == (1, 20, 3)
