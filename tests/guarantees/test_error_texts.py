"""What the package says when something is wrong holds names and shapes, and no value.

Guard 6 of the tests of a guarantee: canaries in the data of models that are refused. Releases that
fail are in test_bad_records.
"""

import traceback

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp

N = 12
CANARY = 123456.78125 + np.arange(N)
SETTINGS = {"n": 6, "noise_multiplier": 2.0, "delta": 1e-5, "progressbar": False}


def missing_values(b):
    pairs = np.column_stack([CANARY, np.where(np.arange(N) < 2, np.nan, CANARY)])
    pm.MvNormal("y", pt.stack([b, b]), np.eye(2), observed=pairs)


def coupled(b):
    x = pm.Data("x", CANARY)
    pm.Normal("y", b * (x - x.mean()), 1.0, observed=CANARY)


def prior_from_data(b):
    x = pm.Data("x", CANARY)
    pm.Normal("y", pm.Normal("a", x.mean(), 1.0) * x, 1.0, observed=CANARY)


def undeclared(b):
    pm.Normal("y", b * pm.Data("levels", CANARY[:5]).sum(), 1.0, observed=CANARY)


def rows_that_differ(b):
    pm.Normal("y", b * pm.Data("x", CANARY), 1.0, observed=CANARY)
    pm.Normal("z", b, 1.0, observed=CANARY[:7])


def one_group_a_record(b):
    g = pm.Normal("g", shape=int(CANARY[0]))
    pm.Normal("y", g[pm.Data("who", 123400 + np.arange(N))], 1.0, observed=CANARY)


def a_range_that_folds(b):
    design = pm.Data("x", np.column_stack([CANARY, CANARY]))
    n = design.shape[0]
    index = pt.arange(n).reshape((pt.switch(pt.eq(n, 2), 2, 1), -1))
    pm.Normal("y", design[index].sum(1)[:, 0] * b, 1.0, observed=CANARY)


def start_from_data(b):
    x, start = pm.Data("x", CANARY), lambda rv, size: x.mean()
    a = pm.CustomDist("a", logp=lambda value: -(value**2) / 2, support_point=start)
    pm.Normal("y", a * x, 1.0, observed=CANARY)


def gaussian_process_centred_by_the_data(b):
    gp = pm.gp.HSGP(m=[5], c=2.0, cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    pm.Normal("y", gp.prior("f", X=CANARY[:, None]), 1.0, observed=CANARY)


BAD_MODELS = [missing_values, coupled, prior_from_data, undeclared, rows_that_differ]
BAD_MODELS += [one_group_a_record, a_range_that_folds, start_from_data]
BAD_MODELS += [gaussian_process_centred_by_the_data]


@pytest.mark.parametrize("build", BAD_MODELS)
@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
def test_the_refusal_of_a_model_holds_no_value(build):
    with pm.Model() as model:
        build(pm.Normal("b"))
    with pytest.raises(ValueError, match=r"`|differ in number") as caught:
        pymc_dp.fit(model=model, **SETTINGS)
    assert "1234" not in str(caught.value)


BAD_DATA = [
    {"x": CANARY, "y": CANARY[:5]},
    {"x": CANARY[:, None], "y": CANARY},
    {"x": CANARY.astype(str), "y": CANARY},
    {"x": CANARY.astype(object), "y": CANARY},
    {"x": CANARY},
]


@pytest.mark.parametrize("data", BAD_DATA)
def test_the_refusal_of_data_holds_no_value(data):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("b") * pm.Data("x", CANARY), 1.0, observed=CANARY)
    with pytest.raises(ValueError, match="data=|differ in number") as caught:
        pymc_dp.fit(model=model, data=data, **SETTINGS)
    assert "1234" not in "".join(traceback.format_exception(caught.value))
