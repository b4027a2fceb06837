"""What the page on results says of ArviZ: these plots take a result, and those refuse it."""

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_dp

pytest.importorskip("arviz_plots")
X = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))


@pytest.fixture(scope="module")
def fitted():
    with pm.Model(coords={"term": ["a", "b"]}) as model:
        x = pm.Data("x", X, dims=("person", "term"))
        slope = pm.Normal("slope", 0, 1, dims="term")
        pm.Normal("y", x @ slope, 1.0, observed=X[:, 0] + 1.0, dims="person")
        terms = {"epsilon": 1.0, "delta": 1e-5, "draws": 60, "progressbar": False}
        return model, pm.fit(method="dp_advi", **terms)


PLOTS = ("dist", "forest", "pair", "trace", "ridge", "autocorr")


@pytest.mark.parametrize("name", ["summary", *(f"plot_{plot}" for plot in PLOTS)])
def test_it_takes_a_result_as_it_is(fitted, name):
    shown = getattr(az, name)(fitted[1])
    assert "slope" in str(getattr(shown, "viz", shown))


def test_predictions_are_drawn_without_outcomes(fitted):
    model, idata = fitted
    predictions = pymc_dp.predict(idata, model, {"x": X[:20]})
    shown = {"group": "predictions", "kind": "kde", "visuals": {"observed_dist": False}}
    assert "y" in az.plot_ppc_dist(predictions, **shown).viz["predictive_dist"]
