"""A ledger in a folder of its own, and a small model to fit."""

from functools import partial

import numpy as np
import pymc as pm
import pytest

from pymc_dp import Ledger

DELTA = 1e-5


@pytest.fixture
def path(tmp_path):
    return tmp_path / "survey.ledger"


@pytest.fixture
def new(path):
    return partial(Ledger, path, **{"epsilon": 2.0, "delta": DELTA, "dataset": "survey"})


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Bernoulli("y", p, observed=np.repeat([0, 1], [30, 70]))
    return model
