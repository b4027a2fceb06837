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


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("plot_rank", ValueError),
        ("plot_rank_dist", ValueError),
        ("plot_energy", KeyError),
        ("loo", TypeError),
        ("plot_loo_pit", AttributeError),
        ("plot_ppc_dist", KeyError),
        ("plot_prior_posterior", AttributeError),
    ],
)
def test_it_needs_what_a_private_fit_does_not_have(fitted, name, error):
    with pytest.raises(error):
        getattr(az, name)(fitted[1])


def test_predictions_are_drawn_without_outcomes(fitted):
    model, idata = fitted
    predictions = pymc_dp.predict(idata, model, {"x": X[:20]})
    shown = {"group": "predictions", "kind": "kde", "visuals": {"observed_dist": False}}
    assert "y" in az.plot_ppc_dist(predictions, **shown).viz["predictive_dist"]


def test_a_prior_may_be_drawn_beside_the_posterior(fitted):
    model, idata = fitted
    idata = idata.copy(deep=True)
    idata["prior"] = pm.sample_prior_predictive(20, model, var_names=["slope"])["prior"]
    assert set(az.plot_prior_posterior(idata).viz["dist"].group.values) == {"prior", "posterior"}
