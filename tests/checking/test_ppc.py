"""Private predictive checks show what a model misses, and nothing where it is right."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp import Ledger
from pymc_dp.checking.private_checks import _tails
from pymc_dp.contributions.checks import sort_by_rank
from pymc_dp.ledger.file import fits_of
from tests.checking.models import QUIETLY, ROWS, TERMS, bent, coin, columns, result, straight

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
EDGES = [-2.0, -1.0, 0.0, 1.0, 2.0]


def test_a_histogram_without_noise_is_that_of_the_outcomes():
    found = pymc_dp.ppc(
        result(straight), straight(columns()), statistic="histogram", bins=EDGES, epsilon=math.inf
    )["ppc"]
    exact, _ = np.histogram(columns()["y"], [-np.inf, *EDGES, np.inf])
    np.testing.assert_allclose(found["observed"], exact, rtol=1e-5)
    replicated = found["replicated"]
    np.testing.assert_allclose(replicated.mean("replicate"), found["expected"])
    np.testing.assert_allclose(replicated.sum("bin"), ROWS, rtol=1e-5)
    np.testing.assert_allclose(found["difference"], found["observed"] - found["expected"])


@pytest.mark.parametrize("statistic", [{}, {"statistic": "histogram", "bins": EDGES}])
def test_a_model_that_is_wrong_is_told_from_one_that_is_right(statistic):
    wrong = pymc_dp.ppc(result(straight), straight(columns()), **TERMS, **statistic)
    assert wrong["ppc"].attrs["tail_probability"] < 1e-6
    right = pymc_dp.ppc(result(coin), coin(), **TERMS, bins=4)
    assert right["ppc"].attrs["tail_probability"] > 1e-6


def tails_of_right_models(sd, spread, number=1500, tries=200):
    """Tails where outcomes, and all draws, come from the model at draws of its posterior."""
    rng, found = np.random.default_rng(3), []
    for _ in range(tries):
        means = rng.normal(0, spread, size=49)
        outcomes = means + rng.normal(size=(number, 49))
        uniform = rng.random((number, 9, 1))
        ranks = sort_by_rank(10, 8)(outcomes[:, :, None], uniform)[:, :9, 0]
        sums = np.stack([(ranks == k).sum(axis=0) for k in range(10)], axis=1).astype(float)
        own, others = sums[0], sums[1:]
        mean = others.mean(axis=0)
        noisy = others - mean + 8**0.5 * sd * rng.normal(size=others.shape)
        noisy -= noisy.mean(axis=0)
        differ = own - mean + sd * rng.normal(size=10)
        found.append(_tails(differ, mean + sd * rng.normal(size=10), noisy, sd, 1))
    return np.array(found)


@pytest.mark.parametrize(("sd", "spread"), [(0.0, 0.0), (10.0, 0.08)])
def test_tails_of_models_that_are_right_are_seldom_small(sd, spread):
    """The posterior's own spread counts: 0.08 is three sds of a mean of 1500 outcomes."""
    tails = tails_of_right_models(sd, spread)
    assert (tails < 0.05).mean() < 0.09
    assert (10 * tails.min(axis=1) < 0.01).mean() < 0.08


def test_tails_that_forget_the_posteriors_spread_are_caught():
    """The planted fault: replicates vary as independent outcomes do, whatever the posterior."""
    differ = np.array([60.0, -60.0, 0.0, 0.0])
    expected, wide = np.full(4, 500.0), 60.0 * np.random.default_rng(0).normal(size=(8, 4))
    counted = _tails(differ, expected, wide - wide.mean(axis=0), 5.0, 1)
    forgotten = _tails(differ, expected, 0 * wide, 5.0, 1)
    assert counted[0] > 0.1 > 0.01 > forgotten[0]


def test_records_of_several_outcomes_count_once():
    pairs = np.random.default_rng(0).normal(size=(400, 3))
    with pm.Model() as model:
        mean = pm.Data("x", np.ones((400, 1))) * pm.Normal("m", 0, 1, shape=3)
        pm.Normal("y", mean, 1.0, observed=pairs)
    idata = pymc_dp.fit(model=model, progressbar=False, backend="python", **TERMS)
    more = {"statistic": "histogram", "bins": [0.0]}
    found = pymc_dp.ppc(idata, model, epsilon=math.inf, **more)["ppc"]
    np.testing.assert_allclose(
        found["observed"], [400 * (pairs < 0).mean(), 400 * (pairs >= 0).mean()], rtol=1e-5
    )


@pytest.mark.filterwarnings("ignore:data=.* has missing values")
def test_bad_records_add_nothing():
    data = columns()
    bad = {**data, "y": np.where(np.arange(ROWS) < 100, np.nan, data["y"])}
    found = pymc_dp.ppc(result(straight), straight(data), data=bad, epsilon=math.inf)["ppc"]
    assert found["observed"].sum().item() == pytest.approx(ROWS - 100, rel=1e-5)


REFUSED = [
    ({"statistic": "mean"}, "statistic='mean' is unknown"),
    ({"bins": [0.0, 1.0]}, "takes a number of bins"),
    ({"statistic": "histogram", "bins": 10}, "as public numbers"),
    ({"statistic": "histogram", "bins": [1.0, 0.0]}, "must increase"),
    ({"var_name": "z"}, r"must be one of \['y'\]"),
    ({"neighbours": "both"}, "neighbours='both' is unknown"),
]


@pytest.mark.parametrize(("terms", "sentence"), REFUSED)
def test_bad_input_is_refused_before_anything_is_spent(tmp_path, terms, sentence):
    ledger = Ledger(tmp_path / "x", epsilon=10.0, delta=1e-4, dataset="toy")
    with pytest.raises(ValueError, match=sentence):
        pymc_dp.ppc(result(coin), coin(), ledger=ledger, **{**TERMS, **terms})
    assert fits_of(ledger.path) == []


def test_a_model_that_cannot_draw_its_outcomes_is_refused():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        y = pm.Data("y", np.repeat([0.0, 1.0], [300, 700]))
        pm.Potential("density", y * pm.math.log(p) + (1 - y) * pm.math.log(1 - p))
    with pytest.raises(ValueError, match="does not say how its outcomes are drawn"):
        pymc_dp.ppc(result(coin), model, **TERMS)


def test_each_outcome_is_checked_beside_its_own_draws():
    """One reads the other, and so is drawn after it."""
    rng = np.random.default_rng(4)
    with pm.Model() as model:
        x = pm.Data("x", rng.normal(20.0, 1.0, 500))
        # a predictor: records that are outcomes alone take seconds
        mean = pm.Normal("m", 20, 1) * pm.Data("ones", np.ones(500))
        size = pm.Normal("size", mean, 1.0, observed=x)
        pm.Normal("y", pm.Normal("b", 0, 1) * size, 1.0, observed=rng.normal(-20.0, 1.0, 500))
    fitted = pymc_dp.fit(model=model, **TERMS, **QUIETLY)
    for name, counts in (("size", [0, 500]), ("y", [500, 0])):
        found = pymc_dp.ppc(
            fitted, model, var_name=name, statistic="histogram", bins=[0.0], epsilon=math.inf
        )
        assert found["ppc"].attrs["variable"] == name
        np.testing.assert_allclose(found["ppc"]["observed"], counts, atol=1e-2)


def test_replacing_a_record_costs_twice_the_noise():
    attrs = [
        pymc_dp.ppc(result(coin), coin(), bins=2, neighbours=name, **TERMS)["privacy"].attrs
        for name in ("add_remove", "replace_one")
    ]
    noise = [one["noise_multiplier"] * one["clip_norm"] for one in attrs]
    assert noise[1] == pytest.approx(2 * noise[0], rel=1e-3)
    assert attrs[0]["clip_norm"] == pytest.approx(3**0.5)


def test_records_in_chunks_are_checked_alike():
    dask = pytest.importorskip("dask.array")
    data = columns(seed=7, rows=1200)
    chunks = {name: dask.from_array(x, chunks=(300, *x.shape[1:])) for name, x in data.items()}
    model, idata = bent(columns()), result(bent)
    free, more = {"epsilon": math.inf}, {"statistic": "histogram", "bins": EDGES}
    whole, cut = (pymc_dp.ppc(idata, model, data=x, **free, **more) for x in (data, chunks))
    np.testing.assert_allclose(cut["ppc"]["observed"], whole["ppc"]["observed"])
    models = {"one": (idata, model), "other": (result(straight), straight(columns()))}
    whole, cut = (pymc_dp.score(models, data=x, **free) for x in (data, chunks))
    np.testing.assert_allclose(cut["score"]["mean"], whole["score"]["mean"])
