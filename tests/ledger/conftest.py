"""A ledger in a folder of its own, and a small model to fit."""

import time
from functools import partial

import pytest

from pymc_dp import Ledger
from pymc_dp.ledger import file
from tests.checking.models import coin


@pytest.fixture
def path(tmp_path):
    return tmp_path / "survey.ledger"


@pytest.fixture
def new(path):
    return partial(Ledger, path, **{"epsilon": 2.0, "delta": 1e-5, "dataset": "survey"})


@pytest.fixture
def slow_reader(monkeypatch):
    """Widen the gap between reading what is left and taking it."""
    within = file._within

    def slowly(*args):
        found = within(*args)
        time.sleep(0.05)
        return found

    monkeypatch.setattr(file, "_within", slowly)


@pytest.fixture(scope="module")
def model():
    return coin(70, 30)
