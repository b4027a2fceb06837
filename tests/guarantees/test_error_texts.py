"""What the package says when something is wrong holds names and shapes, and no value.

Guard 6 of the tests of a guarantee: canaries in the data of models that are refused, and in
releases that fail.
"""

import traceback

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp
from pymc_dp import ReleaseError
from pymc_dp.privacy.query import Query
from tests.guarantees.toys import vectors, wall_of

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


BAD_MODELS = [
    missing_values,
    coupled,
    prior_from_data,
    undeclared,
    rows_that_differ,
    one_group_a_record,
]


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


def quotes_data(batch, context, *weights):
    raise ValueError(f"bad value {batch['x'][0, 0]}")


@pytest.mark.parametrize("where", ["norms", "weighted_sum", "prepare"])
def test_a_failed_release_holds_no_value(where, capfd):
    wall = wall_of(CANARY[:, None], vectors(1)._replace(**{where: quotes_data}))
    with pytest.raises(ReleaseError) as caught:
        wall.release(Query("score", None))
    assert "1234" not in "".join(traceback.format_exception(caught.value))
    assert "1234" not in "".join(capfd.readouterr())
