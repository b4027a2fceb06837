"""Survey weights as they come: what they may be, and where they stand."""

import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dp
from pymc_dp import PrivacyWarning, SurveyWeights

N = 60
rng = np.random.default_rng(3)
X, Y, W = rng.normal(size=N), rng.normal(size=N), rng.uniform(0.5, 3, N)
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
BY_DESIGN = SurveyWeights("w", upper=4)


def model_of(weights=W, reads=False, **dims):
    with pm.Model(coords={"person": np.arange(N)} if dims else None) as model:
        w = pm.Data("w", weights, **dims)
        slope = pm.Normal("slope", 0, 1)
        mean = slope * pm.Data("x", X, **dims) + (0.1 * w if reads else 0)
        pm.Normal("y", mean, 1, observed=Y, **dims)
    return model


def fitted(model, **settings):
    given = {"epsilon": np.inf, "progressbar": False, "backend": "python", "random_seed": 0}
    return pymc_dp.fit(model=model, **{**given, **settings})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (np.where(np.arange(N) == 5, -1.0, W), "weights below 0"),
        (np.where(np.arange(N) == 5, np.nan, W), "not finite|missing values"),
        (np.where(np.arange(N) == 5, 4.5, W), "above upper=4"),
        (W[:-1], "differ in number"),
    ],
)
def test_weights_that_are_none_are_refused_before_anything_is_spent(values, sentence):
    given = {"w": values, "x": X, "y": Y}
    with pytest.raises(ValueError, match=sentence):
        pymc_dp.plan(model_of(), weights=BY_DESIGN, data=given, **BUDGET)


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"weights": SurveyWeights("v", upper=4)}, ValueError, "`v`, which is no pm.Data"),
        ({"weights": BY_DESIGN, "public": ["w"]}, ValueError, "needs it private"),
        ({"weights": BY_DESIGN, "data": {"x": X, "y": Y}}, ValueError, "leaves `w`, which"),
        ({"weights": "w"}, TypeError, "SurveyWeights.*public number"),
        ({"weights": BY_DESIGN, "n": 40}, ValueError, "gradient steps have none"),
        ({"weights": BY_DESIGN, "method": "vips"}, TypeError, "vips takes no weights="),
    ],
)
def test_what_cannot_be_done_with_weights_is_refused_by_a_sentence(settings, error, sentence):
    with pytest.raises(error, match=sentence):
        pymc_dp.plan(model_of(), **settings, **BUDGET)


@pytest.mark.parametrize("given", [{"upper": 0}, {"upper": np.inf}, {"upper": 4, "power": 1.5}])
def test_a_bound_or_a_power_that_is_none_is_refused(given):
    with pytest.raises(ValueError, match=r"upper=|power="):
        SurveyWeights("w", **given)


def weighted_potential(of_records, beside=lambda product: None):
    with pm.Model() as model:
        slope, x = pm.Normal("slope", 0, 1), pm.Data("x", X)
        density = pm.logp(pm.Normal.dist(slope * x if of_records else slope, 1), x)
        product = pm.Data("w", W) * (density if of_records else -(slope**2))
        pm.Potential("density", product)
        beside(product)
    return model


@pytest.mark.parametrize(
    "model",
    [
        model_of(reads=True),
        weighted_potential(True, lambda product: pm.Potential("other", -(product**2))),
        weighted_potential(False),
    ],
    ids=["a predictor", "the product is read elsewhere", "a factor without records"],
)
def test_weights_leave_nothing_but_a_product_with_a_density_of_records(model):
    with pytest.raises(ValueError, match="reads `w`, which weights= names.*weighted twice"):
        pymc_dp.plan(model, weights=BY_DESIGN, **BUDGET)


def test_dims_data_and_powers_change_nothing_but_what_they_say():
    plain = fitted(model_of(), weights=BY_DESIGN)["fit"]["mean_vector"]
    by_dims = fitted(model_of(dims="person"), weights=BY_DESIGN)["fit"]["mean_vector"]
    frame = pd.DataFrame({"w": W, "x": X, "y": Y})
    given = fitted(model_of(np.ones(N)), weights=BY_DESIGN, data=frame)["fit"]["mean_vector"]
    root = fitted(model_of(W**0.5), weights=SurveyWeights("w", upper=2))["fit"]["mean_vector"]
    shrunk = fitted(model_of(), weights=SurveyWeights("w", upper=4, power=0.5))
    assert np.allclose(plain, by_dims, rtol=0, atol=1e-6)
    assert np.allclose(plain, given, rtol=0, atol=1e-6)
    assert np.allclose(root, shrunk["fit"]["mean_vector"], rtol=0, atol=1e-6)


def test_the_report_says_what_of_weights_is_public():
    weights = SurveyWeights("w", upper=4, power=0.5)
    text = pymc_dp.privacy_report(fitted(model_of(), weights=weights))
    assert "Survey weights: `w`, which is private" in text
    assert "4, raised to the power 0.5. That number was declared public" in text
    assert "Survey weights" not in pymc_dp.privacy_report(fitted(model_of()))


def texts(model, **settings):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pymc_dp.plan(model, **BUDGET, **settings)
    return " ".join(str(w.message) for w in caught if issubclass(w.category, PrivacyWarning))


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (np.round(W / W.mean(), 6), "have a mean of 1"),
        (W / W.sum(), "add up to 1, as"),
        (100 * W / W.sum(), "add up to 100"),
    ],
)
def test_weights_that_were_divided_by_their_own_mean_are_warned_of(weights, sentence):
    assert f"weights=`w` {sentence}" in texts(model_of(weights), weights=BY_DESIGN)
    assert "weights=" not in texts(model_of(), weights=BY_DESIGN)


def test_a_bound_that_is_the_largest_weight_at_hand_is_warned_of():
    text = texts(model_of(), weights=SurveyWeights("w", upper=W.max()))
    assert "upper= of weights=`w` equals the largest value of `w`" in text
    cut = np.minimum(W, 1.234)  # by a public rule: many records have the largest
    assert "upper=" not in texts(model_of(cut), weights=SurveyWeights("w", upper=1.234))
