"""Private scores agree with the densities that they estimate, and refuse what they cannot price."""

import math
from functools import cache, partial

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp
from pymc_dp import Ledger
from pymc_dp.errors import PrivacyWarning
from pymc_dp.ledger.file import fits_of
from pymc_dp.privacy.wall import PrivacyWall
from tests.checking.models import TERMS, bent, coin, columns, result, straight

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
HELD_OUT = columns(seed=7, rows=1200)
WIDE = {"score_range": (-8.0, 0.0)}


def densities(build, data):
    """Log mean density of every held-out record over the posterior's draws, by SciPy."""
    posterior = result(build)["posterior"].to_dataset().isel(chain=0)
    mean = posterior["b"].values @ data["X"].T
    if "c" in posterior:
        mean = mean + posterior["c"].values[:, None] * (data["X"][:, 0] ** 2 - 1)
    each = stats.norm(mean, posterior["s"].values[:, None]).pdf(data["y"])
    return np.log(each.mean(axis=0))


def both():
    data = columns()
    return {build.__name__: (result(build), build(data)) for build in (straight, bent)}


def test_without_noise_it_is_the_mean_log_predictive_density():
    found = pymc_dp.score(
        result(straight), straight(columns()), data=HELD_OUT, epsilon=math.inf, **WIDE
    )["score"]
    exact = densities(straight, HELD_OUT).clip(-8, 0)
    assert found["mean"].item() == pytest.approx(exact.mean(), abs=0.01)
    assert found["mean_sampling_sd"].item() == pytest.approx(
        exact.std() / len(exact) ** 0.5, rel=0.05
    )
    assert found["number"].item() == pytest.approx(1200)
    assert found["mean_noise_sd"].item() == 0


def test_one_release_compares_models_within_its_noise():
    found = pymc_dp.score(both(), data=HELD_OUT, **TERMS, **WIDE)["score"]
    exact = [densities(build, HELD_OUT).clip(-8, 0) for build in (straight, bent)]
    for k, each in enumerate(exact):
        error = found["mean"][k].item() - each.mean()
        assert abs(error) < 5 * found["mean_noise_sd"][k].item() + 0.1  # of differences beyond 1
    difference = (exact[1] - exact[0]).clip(-1, 1).mean()
    error = found["difference"].sel(model="bent").item() - difference
    assert abs(error) < 5 * found["difference_noise_sd"].sel(model="bent").item() + 0.01
    assert found["difference"].sel(model="bent").item() > 0.05


def test_the_stated_noise_is_that_of_repeated_scores():
    model, idata = coin(), result(coin)
    found = [pymc_dp.score(idata, model, **TERMS)["score"] for _ in range(40)]
    means = [one["mean"].item() for one in found]
    stated = np.mean([one["mean_noise_sd"].item() for one in found])
    tail = stats.chi2(39).cdf(39 * np.var(means, ddof=1) / stated**2)
    assert 1e-6 / 2 < tail < 1 - 1e-6 / 2


def of_persons():
    with pm.Model() as model:  # one person has all ones
        pm.Data("who", np.repeat(np.arange(301), [700, *[1] * 300])[::-1].copy())
        p, ones = pm.Beta("p", 1, 1), pm.Data("ones", np.ones(1000))
        pm.Bernoulli("y", p * ones, observed=np.repeat([0, 1], [300, 700]))
    return model


@cache
def result_of_persons():
    return pymc_dp.fit(
        model=of_persons(), unit="who", neighbours="zero_out", **TERMS, progressbar=False
    )


def test_persons_count_once():
    model, terms = of_persons(), TERMS | {"epsilon": math.inf, "progressbar": False}
    idata = pymc_dp.fit(model=model, unit="who", neighbours="zero_out", **terms)
    found = pymc_dp.score(idata, model, epsilon=math.inf)["score"]
    assert found["number"].item() == pytest.approx(301)
    p = idata["posterior"]["p"].mean().item()
    assert found["mean"].item() == pytest.approx(
        (300 * math.log(1 - p) + math.log(p)) / 301, abs=0.01
    )
    declared = pymc_dp.score(result_of_persons(), model, num_records=301, **TERMS)["score"]
    assert declared["number"].item() == 301
    assert declared["number_noise_sd"].item() == 0


LATER = {
    "score": pymc_dp.score,
    "ppc": partial(pymc_dp.ppc, bins=2),
    "effect": partial(pymc_dp.effect, settings={"ones": [0.5, 1.0]}),
}


@pytest.mark.filterwarnings("error::pymc_dp.errors.PrivacyWarning")
@pytest.mark.parametrize("name", LATER)
def test_a_later_release_has_the_unit_and_the_neighbours_of_the_fit(name):
    model, idata, release = of_persons(), result_of_persons(), LATER[name]
    found = release(idata, model, **TERMS)["privacy"].attrs
    assert (found["unit"], found["neighbours"]) == ("who", "zero_out")
    assert pymc_dp.compose([idata, release(idata, model, **TERMS)], delta=1e-5).fits == 2
    with pytest.warns(PrivacyWarning, match="The fit has neighbours='zero_out' and unit='who'"):
        release(idata, model, neighbours="add_remove", **TERMS)


REFUSED = [
    ({"score_range": (0.0, -1.0)}, "two finite numbers, the smaller one first"),
    ({"largest_difference": 0.0}, "largest_difference=0.0 must be above 0"),
    ({"noise_multiplier": 1.0}, "exactly one of epsilon="),
    ({"delta": None}, "delta= is missing"),
    ({"unit": "who"}, "unit= names `who`, which is no pm.Data"),
    ({"data": {"y": [0, 1], "z": [0, 1]}}, "data= names `z`"),
]


@pytest.mark.parametrize(("terms", "sentence"), REFUSED)
def test_bad_input_is_refused_before_anything_is_spent(tmp_path, terms, sentence):
    ledger = Ledger(tmp_path / "x", epsilon=10.0, delta=1e-4, dataset="toy")
    with pytest.raises(ValueError, match=sentence):
        pymc_dp.score(result(coin), coin(), ledger=ledger, **{**TERMS, **terms})
    assert fits_of(ledger.path) == []


def test_several_models_need_records_that_all_of_them_predict():
    models = both()
    with pytest.raises(ValueError, match="row by row the same"):
        pymc_dp.score(models, **TERMS)
    with pytest.raises(ValueError, match="an array of none of the models"):
        pymc_dp.score(models, data={**HELD_OUT, "z": HELD_OUT["y"]}, **TERMS)
    with pytest.raises(TypeError, match="There is no model: give model="):
        pymc_dp.score(result(coin), **TERMS)


def test_a_result_without_privacy_is_refused():
    model = coin()
    open_result = pymc_dp.fit(model=model, epsilon=math.inf, progressbar=False, backend="python")
    with pytest.raises(ValueError, match="would be no more private"):
        pymc_dp.score(open_result, model, **TERMS)


@pytest.mark.parametrize(("place", "booked"), [("release", 0), ("_clipped_sum", 1)])
def test_an_interrupted_score_is_paid_for_once_it_is_booked(tmp_path, monkeypatch, place, booked):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivacyWall, place, interrupted)
    ledger = Ledger(tmp_path / "x", epsilon=10.0, delta=1e-4, dataset="toy")
    with pytest.raises(KeyboardInterrupt, match="the ledger's report says whether it was booked"):
        pymc_dp.score(result(coin), coin(), ledger=ledger, **TERMS)
    [entry] = fits_of(ledger.path)
    assert entry.booked == booked
    assert ledger.spent.amount == booked * entry.of_plan.rounded().amount


def test_the_price_is_that_of_one_gaussian_of_all_records():
    attrs = pymc_dp.score(result(coin), coin(), **TERMS)["privacy"].attrs
    of_one = {"sampling": "full", "sample_rate": 1.0, "n": 1, "delta": 1e-5}
    assert attrs["epsilon"] <= 4.0
    assert attrs["epsilon"] == pytest.approx(
        pymc_dp.epsilon(noise_multiplier=attrs["noise_multiplier"], **of_one)
    )
    assert attrs["clip_norm"] == pytest.approx(1.75**0.5)
