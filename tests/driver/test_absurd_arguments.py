"""Numbers of any size and objects of any kind are refused with a sentence, at once.

What is refused costs neither budget, nor gigabytes, nor minutes.
"""

import re
from decimal import Decimal
from functools import partial

import numpy as np
import pytest

import pymc_dp
from pymc_dp.privacy.wall import PrivacyWall
from tests import zoo

ABSURD = [
    *(10**400, -(10**400), 1e300, 1.7e308, 5e-324),
    *(1j, Decimal("0.5"), np.ones(3), [1], "1", object(), True),
]

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
# a billion records there are
MANY = {"num_records": [2**64]}


@pytest.fixture(scope="module")
def model():
    return zoo.line(np.random.default_rng(0).normal(size=(24, 2)), np.arange(24.0))


@pytest.fixture(autouse=True)
def unspent(monkeypatch):
    monkeypatch.setattr(PrivacyWall, "__init__", lambda *a, **k: pytest.fail("data were used"))


def refused(call, name, value, **terms):
    with pytest.raises((ValueError, TypeError)) as caught:
        call(**terms | {name: value})
    sentence = str(caught.value)
    assert re.search(rf"\b{name}\b", sentence), sentence
    assert re.search(r"must|is given|larger", sentence), sentence
    assert len(sentence) < 300


@pytest.mark.parametrize("kind", [NUMBERS, COUNTS], ids=["numbers", "counts"])
@pytest.mark.parametrize("method", NUMBERS)
def test_an_absurd_argument_is_refused_with_a_sentence(model, method, kind):
    fit = partial(pymc_dp.fit, model=model, method=method, progressbar=False)
    for name in kind.get(method, []):
        budget = {} if name == "epsilon" else {"noise_multiplier": 2.0}
        many = MANY.get(name, [10**9, 2**64]) if kind is COUNTS else []
        for value in [*ABSURD, *many]:
            refused(fit, name, value, delta=1e-5, **budget)


@pytest.mark.parametrize("name", ["epsilon", "runs"])
def test_a_search_refuses_them_too(model, name):
    search = partial(pymc_dp.tune, model, [{"clip_norm": 1.0}, {"clip_norm": 2.0}], n=6)
    for value in ABSURD:
        refused(search, name, value, epsilon=1.0, delta=1e-5, runs=5.0)


@pytest.mark.parametrize("name", ["epsilon", "delta", "dataset", "unit"])
def test_a_ledger_with_absurd_terms_leaves_no_file(tmp_path, name):
    path = tmp_path / "a.ledger"
    terms = {"epsilon": 1.0, "delta": 1e-5, "dataset": "survey"}
    texts = [5, b"survey", "a\0b", "\ud800", ["survey"], ""]
    for value in texts if name in ("dataset", "unit") else ABSURD:
        refused(partial(pymc_dp.Ledger, path), name, value, **terms)
        assert not path.exists()
    assert pymc_dp.Ledger(path, **terms).terms.dataset == "survey"


@pytest.mark.parametrize("seed", [np.random.default_rng(1), np.arange(3), -1, 1.5, True, "1"])
def test_a_seed_is_a_whole_number(model, tmp_path, seed):
    terms = {"epsilon": 1, "delta": 1e-5, "random_seed": seed}
    with pytest.raises(TypeError, match="whole number"):
        pymc_dp.fit(model=model, checkpoint=tmp_path / "a.fit", **terms)
    with pytest.raises(TypeError, match="whole number"):
        pymc_dp.tune(model, [{"clip_norm": 1.0}, {"clip_norm": 2.0}], n=6, **terms)
    assert not list(tmp_path.iterdir())
