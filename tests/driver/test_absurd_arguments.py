"""Numbers of any size and objects of any kind are refused with a sentence, at once.

What is refused costs neither budget, nor gigabytes, nor minutes.
"""

import re
from decimal import Decimal

import numpy as np
import pytest

import pymc_dp
from pymc_dp.privacy.wall import PrivacyWall
from tests import zoo

HUGE = {"integer": 10**400, "negative": -(10**400)}
NO_NUMBERS = {
    "complex": 1j,
    "decimal": Decimal("0.5"),
    "array": np.ones(3),
    "list": [1],
    "text": "1",
    "object": object(),
    "flag": True,
}
EXTREME = {"large": 1e300, "largest": 1.7e308, "least": 5e-324}
MANY = {"billion": 10**9, "more than a word": 2**64}

NUMBERS = {
    "dp_advi": ["epsilon", "delta", "noise_multiplier", "clip_norm", "sample_rate"],
    "vips": ["clip_norm", "sample_rate", "tau0", "kappa"],
    "dp_sep": ["clip_norm", "sample_rate", "step"],
    "dp_sgld": ["clip_norm", "sample_rate", "step"],
    "dp_ops": ["loglik_bound"],
}
COUNTS = {
    "dp_advi": ["n", "draws", "obj_n_mc", "num_records"],
    "vips": ["n", "iterations"],
    "dp_sep": ["n"],
    "dp_sgld": ["n"],
    "dp_ops": ["n", "transitions"],
}
ABSURD = [
    pytest.param(method, name, values, id=f"{method}-{name}")
    for names, values in [
        (NUMBERS, HUGE | NO_NUMBERS | EXTREME),
        (COUNTS, HUGE | NO_NUMBERS | EXTREME | MANY),
    ]
    for method in names
    for name in names[method]
]


@pytest.fixture(scope="module")
def model():
    return zoo.line(np.random.default_rng(0).normal(size=(24, 2)), np.arange(24.0))


@pytest.fixture(autouse=True)
def unspent(monkeypatch):
    monkeypatch.setattr(PrivacyWall, "__init__", lambda *a, **k: pytest.fail("data were used"))


def refused(call, name, value):
    with pytest.raises((ValueError, TypeError)) as caught:
        call(value)
    sentence = str(caught.value)
    assert re.search(rf"\b{name}\b", sentence), sentence
    assert re.search(r"must|is given|larger", sentence), sentence
    assert len(sentence) < 300


@pytest.mark.parametrize(("method", "name", "values"), ABSURD)
def test_an_absurd_argument_is_refused_with_a_sentence(model, method, name, values):
    budget = {} if name == "epsilon" else {"noise_multiplier": 2.0}
    given = {"delta": 1e-5, "progressbar": False, **budget}

    def fit(value):
        pymc_dp.fit(model=model, method=method, **given | {name: value})

    for kind, value in values.items():
        if (name, kind) != ("num_records", "billion"):  # there are such data
            refused(fit, name, value)


@pytest.mark.parametrize("name", ["epsilon", "runs"])
def test_a_search_refuses_them_too(model, name):
    def search(value):
        given = {"epsilon": 1.0, "delta": 1e-5, "runs": 5.0, name: value}
        pymc_dp.tune(model, [{"clip_norm": 1.0}, {"clip_norm": 2.0}], n=6, **given)

    for value in (HUGE | NO_NUMBERS | EXTREME).values():
        refused(search, name, value)


@pytest.mark.parametrize("name", ["epsilon", "delta", "dataset", "unit"])
def test_a_ledger_with_absurd_terms_leaves_no_file(tmp_path, name):
    path = tmp_path / "a.ledger"
    terms = {"epsilon": 1.0, "delta": 1e-5, "dataset": "survey"}

    def create(value):
        pymc_dp.Ledger(path, **terms | {name: value})

    texts = {"0": 5, "1": b"survey", "2": "a\0b", "3": "\ud800", "4": ["survey"], "5": ""}
    for value in (texts if name in ("dataset", "unit") else HUGE | NO_NUMBERS | EXTREME).values():
        refused(create, name, value)
        assert not path.exists()
    assert pymc_dp.Ledger(path, **terms).terms.dataset == "survey"
