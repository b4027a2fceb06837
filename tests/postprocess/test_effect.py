"""Margins and effects are those of the model, and their intervals hold both noises."""

import math
from functools import cache

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dp
from pymc_dp import Ledger
from pymc_dp.contributions import checks
from pymc_dp.contributions.checks import Range
from pymc_dp.errors import PrivacyWarning
from pymc_dp.postprocess import effect as margins_of
from pymc_dp.privacy.contribution import Noisy

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")
TERMS = {"epsilon": 4.0, "delta": 1e-5}
ROWS = 4000
LATENTS = (-0.5, 0.7, 0.8)
SETTINGS = {"treated": [0, 1]}


def columns(count: bool = False) -> dict[str, np.ndarray]:
    """Draw records where those with large x are treated more often."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=ROWS)
    treated = (rng.random(ROWS) < 1 / (1 + np.exp(-2 * x))).astype(int)
    linear = LATENTS[0] + LATENTS[1] * treated + LATENTS[2] * x
    y = rng.poisson(np.exp(linear)) if count else rng.random(ROWS) < 1 / (1 + np.exp(-linear))
    person = np.sort(rng.integers(0, ROWS // 4, ROWS))
    return {"treated": treated, "x": x, "y": y.astype(int), "person": person}


def model_of(data: dict[str, np.ndarray], count: bool = False) -> pm.Model:
    with pm.Model() as model:
        a, b, c = (pm.Normal(name, 0, 2) for name in "abc")
        linear = a + b * pm.Data("treated", data["treated"]) + c * pm.Data("x", data["x"])
        pm.Data("person", data["person"])
        if count:
            pm.Poisson("y", pm.math.exp(linear), observed=data["y"])
        else:
            pm.Bernoulli("y", logit_p=linear, observed=data["y"])
    return model


@cache
def result(count: bool = False) -> xr.DataTree:
    """Fit a model, once for all tests."""
    model = model_of(columns(count), count)
    return pymc_dp.fit(model=model, progressbar=False, backend="python", random_seed=1, **TERMS)


def true_margins(x: np.ndarray, count: bool = False) -> np.ndarray:
    linear = LATENTS[0] + LATENTS[1] * np.array([[0], [1]]) + LATENTS[2] * x
    return (np.exp(linear) if count else 1 / (1 + np.exp(-linear))).mean(axis=1)


def exact_margins(idata: xr.DataTree, x: np.ndarray) -> np.ndarray:
    """Compute the logistic model's margins at each draw of its posterior, (2, draws)."""
    a, b, c = (idata["posterior"][name].to_numpy().reshape(-1, 1) for name in "abc")
    return np.stack([(1 / (1 + np.exp(-(a + t * b + c * x)))).mean(axis=1) for t in (0, 1)])


def difference(found: xr.DataTree) -> tuple[float, ...]:
    return tuple(found["effect"]["difference"].to_numpy()[0])


def test_margins_over_public_rows_are_those_of_every_draw():
    x, weights = np.linspace(-2, 2, 30), np.arange(30.0)
    found = pymc_dp.effect(result(), model_of(columns()), SETTINGS, over={"x": x}, weights=weights)[
        "effect"
    ]
    repeated = np.repeat(x, weights.astype(int))
    np.testing.assert_allclose(found["margin_draws"], exact_margins(result(), repeated))
    assert found.attrs["epsilon_spent"] == 0


def test_contrasts_follow_from_the_draws_of_margins():
    found = pymc_dp.effect(result(), model_of(columns()), SETTINGS, over={"x": np.zeros(1)})
    low, high = found["effect"]["margin_draws"].to_numpy()
    expected = {
        "difference": high - low,
        "ratio": high / low,
        "odds_ratio": high / (1 - high) / (low / (1 - low)),
    }
    for name, draws in expected.items():
        summary = [draws.mean(), draws.std(), *np.quantile(draws, [0.05, 0.95])]
        np.testing.assert_allclose(found["effect"][name].to_numpy()[0], summary, rtol=1e-6)


def test_the_average_over_records_without_noise_is_that_of_the_posterior():
    """Outcomes are drawn: sds of one call are known to 5%."""
    data, calls = columns(), 8
    found = [
        pymc_dp.effect(result(), model_of(data), SETTINGS, epsilon=math.inf) for _ in range(calls)
    ]
    margins = np.array([one["effect"]["margin_draws"].to_numpy() for one in found])
    exact = exact_margins(result(), data["x"])
    np.testing.assert_allclose(margins.mean(axis=(0, 2)), exact.mean(axis=1), atol=2e-3)
    np.testing.assert_allclose(margins.std(axis=2).mean(axis=0), exact.std(axis=1), rtol=0.1)
    sds = [difference(one)[1] for one in found]
    assert np.mean(sds) == pytest.approx((exact[1] - exact[0]).std(), rel=0.1)


def test_bounds_that_are_the_records_own_are_warned_of():
    data, terms = columns(True), {"epsilon": 1.0, "delta": 1e-5}
    ends = np.append(data["y"][:-1], 1234)
    model = model_of({**data, "y": ends}, True)
    with pytest.warns(PrivacyWarning, match="bounds= equals the largest value of `y`"):
        pymc_dp.effect(result(True), model, SETTINGS, bounds=(0, 1234), **terms)


@pytest.mark.parametrize(("count", "unit"), [(False, None), (True, "person")])
def test_effects_of_the_fitted_records_are_near_the_true_ones(count, unit):
    data = columns(count)
    bounds = (0.0, 25.0) if count else None
    model = model_of(data, count)
    found = pymc_dp.effect(result(count), model, SETTINGS, bounds=bounds, unit=unit, **TERMS)
    mean, sd, lower, upper = difference(found)
    low, high = true_margins(data["x"], count)
    assert abs(mean - (high - low)) < 4 * sd
    assert lower < mean < upper
    raw = data["y"][data["treated"] == 1].mean() - data["y"][data["treated"] == 0].mean()
    assert abs(mean - raw) > 4 * sd  # groups as they are differ by their confounder as well
    assert ("odds_ratio" in found["effect"]) is not count


def test_leaving_predictors_as_they_were_is_caught(monkeypatch):
    """The planted fault: the treatment of every record stays as it was."""
    assert difference(pymc_dp.effect(result(), model_of(columns()), SETTINGS, **TERMS))[0] > 0.05
    monkeypatch.setattr(checks, "with_values", lambda batch, axes, values: batch)
    unset = pymc_dp.effect(result(), model_of(columns()), SETTINGS, **TERMS)
    assert abs(difference(unset)[0]) < 0.05


def coverage(draw_margins) -> float:
    """Return how often 90% intervals of a margin hold it, where all width is the release's."""
    rng, along, covered = np.random.default_rng(0), np.zeros((200, 3)), []
    for _ in range(300):
        released = np.array([400.0, 0, 0, 0, 1000 / 2**0.5]) + 20 * rng.normal(size=5)
        noisy = Noisy(released, 20.0, 1.0)
        draws = draw_margins(noisy, along, Range(0.0, 1.0), None)
        low, high = np.quantile(draws[0], [0.05, 0.95])
        covered.append(low <= 0.7 <= high)
    return float(np.mean(covered))


def test_intervals_hold_the_noise_of_the_release():
    assert 0.85 < coverage(margins_of.margin_draws) < 0.95


def test_leaving_the_noise_out_of_the_interval_is_caught():
    """The planted fault: what was released is taken for exact."""

    def without(noisy, *more):
        return margins_of.margin_draws(noisy._replace(sd=0.0), *more)

    assert coverage(without) < 0.1


def test_one_release_is_booked_and_public_rows_cost_nothing(tmp_path):
    ledger = Ledger(tmp_path / "ledger", epsilon=9.0, delta=1e-3, dataset="trial")
    model = model_of(columns())
    found = pymc_dp.effect(result(), model, SETTINGS, ledger=ledger, **TERMS)
    spent = ledger.spent.epsilon
    assert 0 < found["effect"].attrs["epsilon_spent"] <= 4
    pymc_dp.effect(result(), model, SETTINGS, over={"x": np.zeros(3)})
    assert ledger.spent.epsilon == spent > 0
    assert "expected outcomes" in pymc_dp.privacy_report(found)


def test_a_column_of_a_matrix_is_set_by_its_number():
    data = columns()
    X = np.column_stack([data["treated"], data["x"]])
    with pm.Model() as model:
        b, group = pm.Normal("b", 0, 2, shape=2), pm.Normal("g", 0, 1, shape=2)
        linear = pm.Data("X", X) @ b + group[pm.Data("place", data["person"] % 2)]
        pm.Bernoulli("y", logit_p=linear, observed=data["y"])
    idata = pymc_dp.fit(model=model, progressbar=False, backend="python", **TERMS)
    rows = {"X": X[:5], "place": np.arange(5) % 2}
    settings = {("X", 0): [0, 1]}
    for found in (
        pymc_dp.effect(idata, model, settings, **TERMS),
        pymc_dp.effect(idata, model, settings, over=rows),
    ):
        assert 0.05 < difference(found)[0] < 0.25
    for more in ({"over": rows}, TERMS):
        with pytest.raises(ValueError, match="beyond"):
            pymc_dp.effect(idata, model, {"place": [0, 2]}, **more)


BAD = [
    ({"settings": {"z": [0, 1]}}, "names `z`"),
    ({"settings": {"treated": [0.5]}}, "holds int64 numbers"),
    ({"settings": {"treated": [0, 1], "x": [1.0]}}, "equally many"),
    ({"settings": {("treated", 0): [0, 1]}}, "no matrix"),
    ({"settings": {"x": [math.nan]}}, "finite"),
    ({"outcome": "z"}, "outcome='z'"),
    ({"weights": [1.0]}, "public rows"),
    ({"over": {"x": [0.0]}}, "nothing is released"),
]


@pytest.mark.parametrize(("more", "text"), BAD, ids=[text for _, text in BAD])
def test_what_cannot_be_done_is_refused_before_any_budget_is_spent(more, text, tmp_path):
    ledger = Ledger(tmp_path / "ledger", epsilon=9.0, delta=1e-3, dataset="trial")
    given = {"settings": SETTINGS, "ledger": ledger, **TERMS} | more
    with pytest.raises(ValueError, match=text):
        pymc_dp.effect(result(), model_of(columns()), **given)
    assert ledger.spent.epsilon == 0


def test_a_posterior_without_its_noise_is_warned_of():
    quiet = result().copy()
    del quiet["noise_sd"]
    with pytest.warns(pymc_dp.PosteriorWarning, match="leaves the privacy noise of its fit out"):
        pymc_dp.effect(quiet, model_of(columns()), SETTINGS, over={"x": np.zeros(2)})


def test_counts_need_bounds():
    with pytest.raises(ValueError, match="needs bounds"):
        pymc_dp.effect(result(True), model_of(columns(True), True), SETTINGS, **TERMS)


def test_formulas_are_averaged_over_data_frames_unless_bambi_centres_them_anew():
    bmb, pd = pytest.importorskip("bambi"), pytest.importorskip("pandas")
    frame = pd.DataFrame({name: columns()[name] for name in ("treated", "x", "y")})
    priors = {name: bmb.Prior("Normal", mu=0, sigma=2) for name in ("Intercept", "common")}
    settings = {"priors": priors, "auto_scale": False}
    model = bmb.Model(
        "y ~ treated * x", frame, family="bernoulli", center_predictors=False, **settings
    )
    idata = pymc_dp.fit(model=model, progressbar=False, backend="python", **TERMS)
    rows = pd.DataFrame({"x": columns()["x"][:300]})
    found = pymc_dp.effect(idata, model, SETTINGS, over=rows, public="p")
    low, high = true_margins(rows["x"].to_numpy())
    mean, sd = difference(found)[:2]
    assert abs(mean - (high - low)) < 4 * sd < high - low
    assert "odds_ratio" in found["effect"]
    centred = bmb.Model("y ~ treated * x", frame, family="bernoulli", **settings)
    for ask in (pymc_dp.predict, lambda *at: pymc_dp.effect(*at[:2], SETTINGS, over=rows)):
        with pytest.raises(ValueError, match="center_predictors=False"):
            ask(idata, centred, rows.assign(treated=1))
