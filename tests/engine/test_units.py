"""Predictors and outcomes in any unit, far from 0 or nearly the same, are fitted or warned of."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit

import pymc_dp
from pymc_dp.engine import report
from pymc_dp.methods.method import doubts_in
from pymc_dp.testing import deterministic_noise

ROWS = 4000


def fitted(model, epsilon, key=1, draws=1000):
    with deterministic_noise(key):
        return pymc_dp.fit(
            model=model,
            epsilon=epsilon,
            delta=1e-5,
            draws=draws,
            random_seed=1,
            progressbar=False,
            backend="python",
        )


def draws_of(idata, name="b"):
    return idata["posterior"][name].to_numpy()[0]


@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_covariances_that_rounding_makes_negative_do_not_end_a_fit():
    rng = np.random.default_rng(0)
    ordered = pm.distributions.transforms.ordered
    at = np.array([-0.5, 0.5])
    with pm.Model() as model:
        cuts = pm.Normal("cuts", at, 1, shape=2, transform=ordered, initval=at)
        x = pm.Data("x", 30 * rng.uniform(-1, 1, (600, 3)))
        eta = x @ pm.Normal("b", 0, 1, shape=3)
        pm.OrderedLogistic("y", eta=eta, cutpoints=cuts, observed=rng.integers(0, 3, 600))
    for key in range(4):
        assert np.isfinite(fitted(model, 0.05, key)["fit"]["mean_vector"]).all()


@pytest.mark.parametrize(
    ("prior", "unit"), [(lambda: pm.Normal("mu", 0, 1e9), 1.0), (lambda: pm.Flat("mu"), 1e7)]
)
def test_a_prior_without_an_end_is_as_wide_as_the_outcomes_ask_for(unit, prior):
    y = unit * np.random.default_rng(0).normal(3.0, 1.0, 1000)
    with pm.Model() as model:
        pm.Normal("y", prior(), unit, observed=y)
    for key in range(4):
        mu = draws_of(fitted(model, 1, key), "mu")
        assert abs(mu.mean() - y.mean()) < 3 * mu.std()
        assert 1 < mu.std() / (unit / 1000**0.5) < 2


# --- predictors in raw units ---------------------------------------------------------------------


def measured_animals(link, b):
    """Make lengths, diameters and heights in millimetres, which all follow the animal's size."""
    rng = np.random.default_rng(8)
    size = rng.normal(100, 20, ROWS)
    sides = [share * size + rng.normal(0, 3 * share, ROWS) for share in (1.0, 0.8, 0.3)]
    X = np.column_stack([np.ones(ROWS), *sides])
    return X, rng.poisson(link(X @ b)) if link is np.exp else rng.binomial(1, link(X @ b))


def without_privacy(X, b, y, link):
    """Return the mode under wide priors, and the sds there."""
    for _ in range(20):
        mean = link(X @ b)
        H = (X.T * (mean if link is np.exp else mean * (1 - mean))) @ X
        b = b + np.linalg.solve(H, X.T @ (y - mean))
    return b, np.diag(np.linalg.inv(H)) ** 0.5


@pytest.mark.parametrize(
    ("link", "b"), [(np.exp, [0.4, 0.02, -0.01, 0.03]), (expit, [-6.0, 0.1, -0.05, 0])]
)
def test_raw_predictors_that_are_nearly_the_same_are_as_narrow_as_noise_allows(link, b):
    X, y = measured_animals(link, b)
    mode, sd = without_privacy(X, b, y, link)
    with pm.Model() as model:
        eta = pm.Data("X", X) @ pm.Normal("b", 0, [100, 1, 1, 1])
        if link is np.exp:
            pm.Poisson("y", pm.math.exp(eta), observed=y)
        else:
            pm.Bernoulli("y", logit_p=eta, observed=y)
    draws = np.array([draws_of(fitted(model, 8, key)) for key in range(3)])
    ratios = draws.std(axis=1) / sd
    assert np.median(ratios) < 1.5
    assert np.max(ratios) < 4
    assert np.max(np.abs(draws.mean(axis=1) - mode) / draws.std(axis=1)) < 4


def fitted_in_unit(outcome, unit):
    """Return mean and sd of coefficients, of which one and its predictor have other units."""
    rng = np.random.default_rng(3)
    X, units = rng.normal(size=(ROWS, 3)), np.array([1.0, unit, 1.0])
    eta = X @ [0.4, 0.5, -0.3]
    with pm.Model() as model:
        location = pm.Data("X", X * units) @ pm.Normal("b", 0, 10 / units, shape=3)
        if outcome == "normal":
            pm.Normal("y", location, pm.HalfNormal("s", 2), observed=rng.normal(eta, 0.3))
        else:
            pm.Bernoulli("y", logit_p=location, observed=rng.random(ROWS) < expit(eta))
    # many draws: means of 1000 are a tenth of an sd apart by chance
    draws = draws_of(fitted(model, 1, key=5, draws=10_000)) * units
    return draws.mean(axis=0), draws.std(axis=0)


@pytest.mark.parametrize("outcome", ["normal", "yes or no"])
def test_the_unit_of_a_predictor_changes_nothing(outcome):
    mean, sd = fitted_in_unit(outcome, 1.0)
    same, same_sd = fitted_in_unit(outcome, 2.0**20)
    np.testing.assert_allclose(same_sd, sd, rtol=0.05)
    np.testing.assert_allclose((same - mean) / sd, 0, atol=0.1)


# --- an intercept beside a predictor that is far from 0 for its spread ---------------------------

FAR = 1000.0


def doubts_and_errors(centre):
    """Return the doubts of five fits, and how far the slope of the far predictor is off, in sds."""
    rng = np.random.default_rng(17)
    X, others = FAR + rng.normal(size=3000), rng.normal(size=(3000, 8))
    y = (rng.random(3000) < expit(0.7 * (X - FAR))).astype(int)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1000.0), pm.Normal("b", 0, 2.0)
        location = pm.Data("others", others) @ pm.Normal("c", 0, 2.0, shape=8)
        location += a + b * (pm.Data("x", X) - centre)
        pm.Bernoulli("y", logit_p=location, observed=y)
    for key in range(5):
        idata = fitted(model, 1, key)
        draws = draws_of(idata)
        doubts = doubts_in(idata["privacy"].attrs["doubts"])
        yield bool(doubts), (draws.mean() - 0.7) / draws.std()


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_a_slope_that_is_wrong_on_a_ridge_is_warned_of(monkeypatch):
    assert all(doubted or abs(error) < 4 for doubted, error in doubts_and_errors(0.0))
    monkeypatch.setattr(report, "_falling", lambda records, state: [])
    assert any(not doubted and abs(error) > 4 for doubted, error in doubts_and_errors(0.0))


def test_a_predictor_that_is_centred_by_a_public_number_is_not_warned_of():
    assert all(not doubted and abs(error) < 4 for doubted, error in doubts_and_errors(FAR))
