"""A ledger in a folder of its own, and a small model to fit."""

from functools import partial

import pytest

from pymc_dp import Ledger
from tests.checking.models import coin

DELTA = 1e-5


@pytest.fixture
def path(tmp_path):
    return tmp_path / "survey.ledger"


@pytest.fixture
def new(path):
    return partial(Ledger, path, **{"epsilon": 2.0, "delta": DELTA, "dataset": "survey"})


@pytest.fixture(scope="module")
def model():
    return coin(70, 30)
