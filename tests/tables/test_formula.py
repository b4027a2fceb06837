"""Formulas of bambi: outcomes of two arguments, effects of persons, limits of censoring."""

import logging

import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.driver.fit import model_in_use, set_up
from pymc_dp.model import separate
from pymc_dp.privacy.private_data import open_private

N = 300
rng = np.random.default_rng(1)
X, FOLLOWED = rng.uniform(-1, 1, N), rng.uniform(0.3, 3, N)
EVENT = rng.weibull(1.5, N) * np.exp(0.5 * X)
RIGHT = FOLLOWED < EVENT
PERSON = np.repeat(np.arange(N // 3), 3)
TABLE = pd.DataFrame(
    {
        "x": X,
        "y": 0.5 + X + rng.normal(size=N // 3)[PERSON] + rng.normal(size=N),
        "w": rng.uniform(0.5, 2, N),
        "k": rng.binomial(5, 0.4, N),
        "n": 5,
        "arm": pd.Categorical(rng.choice(["a", "b"], N), ["a", "b", "c"], ordered=True),
        "person": PERSON,
        "time": np.minimum(EVENT, FOLLOWED),
        "status": pd.Categorical(np.where(RIGHT, "right", "none")),
    }
)
NEW = pd.DataFrame({"x": [-1.0, 0, 1], "arm": pd.Categorical(["a", "b", "a"]), "person": [7, 8, 7]})
OF_PERSONS = "y ~ x + arm + (1|person)"
BUDGET = {"epsilon": 10, "delta": 1e-5, "backend": "python"}


def built(formula, family="gaussian"):
    logging.getLogger("bambi").setLevel(logging.ERROR)
    model = bmb.Model(formula, TABLE, family, auto_scale=False, center_predictors=False)
    normal, half = bmb.Prior("Normal", mu=0, sigma=2), bmb.Prior("HalfNormal", sigma=1)
    effects = bmb.Prior("Normal", mu=0, sigma=half)
    model.set_priors(common=normal, group_specific=effects)
    model.set_priors({"Intercept": normal} | dict.fromkeys(model.marginal_parameters, half))
    return model


def fitted(model, **settings):
    return pymc_dp.fit(model=model, progressbar=False, draws=20, **BUDGET, **settings)


@pytest.fixture(scope="module")
def of_persons():
    model = built(OF_PERSONS)
    return model, fitted(model, unit="person")


# --- outcomes ------------------------------------------------------------------------------------


def test_weights_of_a_formula_stand_beside_the_model_that_has_none():
    with pytest.raises(ValueError, match=r"`weighted\(y, w\)`.*SurveyWeights\('w', upper="):
        pymc_dp.plan(built("weighted(y, w) ~ x"), **BUDGET)
    weighted, plain = (model_in_use(built(f"{y} ~ x")) for y in ("weighted(y, w)", "y"))
    point = plain.initial_point()
    assert weighted.compile_logp()(point) == pytest.approx(plain.compile_logp()(point), rel=1e-12)
    assert (weighted["w"].get_value() == TABLE["w"]).all()
    weights = pymc_dp.SurveyWeights("w", upper=2)
    assert pymc_dp.plan(built("weighted(y, w) ~ x"), weights=weights, **BUDGET).epsilon <= 10


# --- limits of censoring -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def survival():
    return built("censored(time, status) ~ x", "weibull")


def test_limits_of_a_formula_follow_from_outcomes_which_a_warning_says(survival):
    with pytest.warns(pymc_dp.PosteriorWarning, match=r"a limit of its own.*censored_at\(model"):
        set_up(survival, "dp_advi", None, epsilon=1.0, delta=1e-5)


def test_with_limits_of_every_record_the_likelihood_is_the_same_and_nothing_warns(survival):
    model = pymc_dp.censored_at(survival, upper=pd.Series(FOLLOWED))
    set_up(model, "dp_advi", None, epsilon=1.0, delta=1e-5)
    before = survival.backend.model
    point = before.initial_point()
    assert model.compile_logp()(point) == pytest.approx(before.compile_logp()(point), rel=1e-12)
    assert [v.name for v in model.free_RVs] == [v.name for v in before.free_RVs]


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"upper": FOLLOWED + 0.1}, "do not fit upper="),
        ({"lower": 1.0}, "do not fit lower="),
        ({"upper": FOLLOWED[1:]}, "one for each"),
        ({"upper": np.where(RIGHT, FOLLOWED, np.nan)}, "none may be missing"),
    ],
)
def test_limits_that_outcomes_do_not_fit_are_refused(survival, limits, sentence):
    with pytest.raises(ValueError, match=sentence):
        pymc_dp.censored_at(survival, **limits)
    with pytest.raises(ValueError, match="0 censored outcomes"):
        pymc_dp.censored_at(built("y ~ x"), **limits)


# --- persons -------------------------------------------------------------------------------------


def test_effects_of_persons_are_integrated_out(of_persons):
    model, idata = of_persons
    assert "1|person_offset: integrated out" in str(pymc_dp.explain(model, unit="person"))
    names = ["sigma", "Intercept", "x", "arm", "1|person_sigma"]
    assert list(idata["posterior"].data_vars) == names
    assert not [dim for dim in idata["posterior"].coords if "person" in str(dim)]
    assert idata["posterior"]["x"].mean() == pytest.approx(1, abs=0.5)


@pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")
@pytest.mark.parametrize("formula", ["y ~ (x|person)", "y ~ (1|arm) + (1|person)"])
def test_the_column_of_persons_is_that_of_the_formula(formula):
    setup = set_up(built(formula), "dp_advi", None, epsilon=1.0, delta=1e-5, unit="person")
    np.testing.assert_array_equal(open_private(setup.data).units.codes, PERSON)


def test_a_column_outside_the_formula_has_a_door_of_its_own():
    model = built("y ~ x")
    what = r"unit= names `person`, which is no pm.Data .*\(1\|name\) in the formula"
    with pytest.raises(ValueError, match=what):
        pymc_dp.plan(model, unit="person", **BUDGET)
    with model.backend.model:
        pm.Data("person", PERSON)
    assert pymc_dp.plan(model, unit="person", **BUDGET).epsilon <= 10


# --- new rows ------------------------------------------------------------------------------------


def predicted(of_persons, data, **settings):
    model, idata = of_persons
    return pymc_dp.predict(idata, model, data, random_seed=1, **settings)["predictions"]


def test_new_rows_are_those_of_a_data_frame(of_persons):
    drawn = predicted(of_persons, NEW)["y"]
    assert drawn.dims == ("chain", "draw", "__obs__")
    assert drawn.sizes["__obs__"] == 3
    one = predicted(of_persons, NEW[["x", "arm"]].head(1))["y"]
    assert one.sizes["__obs__"] == 1


@pytest.mark.parametrize(
    ("formula", "family"),
    [("y ~ x * arm + offset(w) + (1|arm)", "gaussian"), ("censored(time, status) ~ x", "weibull")],
)
@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_predictors_of_new_rows_are_those_of_bambi(formula, family):
    model, new = built(formula, family), NEW.assign(w=[0.0, 10, 20])
    idata = fitted(model)
    ours = pymc_dp.predict(idata, model, new, public="mu")["predictions"]["mu"]
    theirs = model.predict(idata, data=new, inplace=False)["posterior"]["mu"]
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_trials_of_new_rows_are_theirs():
    model = built("p(k, n) ~ x", "binomial")
    drawn = pymc_dp.predict(fitted(model), model, NEW.assign(n=[1, 10, 1000]), random_seed=1)
    mean = drawn["predictions"]["p(k, n)"].mean(("chain", "draw")).values
    np.testing.assert_allclose(mean / [1, 10, 1000], 0.4, atol=0.2)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (NEW.assign(arm=pd.Categorical(["a", "z", "a"])), "`arm` cannot be computed.*no posterior"),
        (NEW.assign(arm=pd.Categorical(["a", None, "a"])), "missing values in the column `arm`"),
        (NEW[["x"]], "lacks the column `arm`"),
        ({"x": [1.0]}, "data= is a dict, and a formula reads the columns"),
    ],
)
def test_rows_that_the_formula_cannot_read_are_refused_and_nothing_is_quoted(
    of_persons, rows, sentence
):
    with pytest.raises((ValueError, TypeError), match=sentence) as error:
        predicted(of_persons, rows)
    assert "z" not in str(error.value).split()


def test_the_fitted_rows_are_warned_of_and_bambis_model_asked_for(of_persons):
    model, idata = of_persons
    with pytest.warns(pymc_dp.PrivacyWarning, match="as many rows as the fitted records"):
        predicted(of_persons, TABLE)
    with pytest.raises(ValueError, match="give bambi's own model"):
        pymc_dp.predict(idata, model.backend.model, NEW)


def answers(**thresholds):
    """Ordered answers by bambi, with the prior of its thresholds."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 200)})
    frame["y"] = pd.Categorical(np.digitize(frame["x"], [-0.5, 0, 0.5]), ordered=True)
    prior = bmb.Prior("Normal", mu=[-2, 0, 2], sigma=2, **thresholds)
    priors = {"x": bmb.Prior("Normal", mu=0, sigma=2), "threshold": prior}
    settings = {"priors": priors, "auto_scale": False, "center_predictors": False}
    return bmb.Model("y ~ x", frame, family="cumulative", **settings)


@pytest.mark.filterwarnings("ignore:The intercept is omitted")
def test_thresholds_without_an_order_are_refused():
    with pytest.raises(ValueError, match="Nothing keeps the thresholds"):
        pymc_dp.explain(answers())
    ordered = pm.distributions.transforms.ordered
    assert separate(model_in_use(answers(transform=ordered)))[0].outcomes
