"""Outcomes of another shape than the model's are seen, clipped less, and said."""

from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.contributions.goodness_of_fit import BINS, Comparison
from pymc_dp.methods.gaussian import misfit, stages
from pymc_dp.methods.gaussian.long_steps import Way
from pymc_dp.methods.gaussian.schedule import RoundTerms
from pymc_dp.methods.gaussian.start import begin
from pymc_dp.privacy.query import Noisy
from pymc_dp.testing import deterministic_noise

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")

ROWS = 5000


def line(errors):
    """A normal regression, and errors that may not be normal; all have mean 0 and sd 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 3))
    y = 1 + X @ [0.5, -0.5, 1.0] + errors(rng)
    with pm.Model() as model:
        mean = pm.Normal("a", 0, 2) + pm.Data("X", X) @ pm.Normal("b", 0, 1, shape=3)
        pm.Normal("y", mean, pm.HalfNormal("s", 2), observed=y)
    return model


def counts():
    """Poisson outcomes whose rates vary between records, which the model does not say."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=ROWS)
    with pm.Model() as model:
        rate = pm.math.exp(pm.Normal("a", 0, 2) + pm.Normal("b", 0, 1) * pm.Data("x", x))
        y = rng.poisson(np.exp(1 + 0.5 * x) * rng.gamma(2, 1 / 2, ROWS))
        pm.Poisson("y", rate, observed=y)
    return model


MODELS = {
    "normal": lambda: line(lambda rng: rng.normal(size=ROWS)),
    "exponential": lambda: line(lambda rng: rng.exponential(size=ROWS) - 1),
    "gamma": lambda: line(lambda rng: (rng.gamma(4, size=ROWS) - 4) / 2),
    "counts": counts,
}


def fit(name, epsilon):
    with deterministic_noise(2):
        return pymc_dp.fit(
            model=MODELS[name](),
            epsilon=epsilon,
            delta=1e-5,
            progressbar=False,
            backend="python",
            random_seed=1,
        )


@cache
def without_privacy(name):
    return fit(name, np.inf)["posterior"].to_dataset()


def farthest(name, epsilon=1.0):
    """The largest distance of any latent from its mean without privacy, in private sds."""
    found, right = fit(name, epsilon)["posterior"].to_dataset(), without_privacy(name)
    dims = ("chain", "draw")
    off = abs(found.mean(dims) - right.mean(dims)) / found.std(dims)
    return max(float(x.max()) for x in off.values())


@pytest.mark.parametrize("name", MODELS)
def test_the_shape_of_outcomes_does_not_bias_a_fit(name):
    assert farthest(name) < 3.5


@pytest.mark.parametrize("name", ["exponential", "gamma", "counts"])
def test_without_a_comparison_it_does(name, monkeypatch):
    monkeypatch.setattr(misfit, "misfit", lambda *args: 0.0)
    assert farthest(name) > 4.5


@pytest.mark.parametrize("name", MODELS)
def test_a_misfit_is_said_and_nothing_else(name):
    idata = fit(name, 1.0)
    said = "not distributed as the model says" in idata["privacy"].attrs["doubts"]
    assert said == (name != "normal")
    assert (float(idata["fit"]["misfit"]) > 1) == said


def comparison(excess, expected=400.0):
    return Comparison(np.asarray(excess, "float64"), np.full(BINS, expected))


def test_false_alarms_are_no_more_than_the_size_of_the_test_says():
    rng = np.random.default_rng(0)
    sd = (30.0**2 + 400.0) ** 0.5  # that of noise, and of drawing
    excess = rng.normal(0, sd, (20_000, BINS))
    found = [misfit.misfit(comparison(x), 30.0, 1e9, off=0.0) > 1 for x in excess]
    assert np.mean(found) < 0.001 + 5 * (0.001 / 20_000) ** 0.5


def test_what_a_point_beside_the_mode_moves_is_no_misfit():
    moved = np.repeat([0.2, -0.2], BINS // 2) * 4000
    assert misfit.misfit(comparison(moved, 4000.0), 30.0, 4000 * BINS, off=0.0) > 1
    assert misfit.misfit(comparison(moved, 4000.0), 30.0, 4000 * BINS, off=0.2) < 1


def test_where_the_mode_may_be_far_away_nothing_is_concluded():
    state = begin(np.zeros(1), lambda z: -z, ROWS)
    noisy = Noisy(np.full(2 * BINS, 1000.0), sd=1.0, sample_rate=1.0)
    far = state.learnt._replace(way=Way.of(np.ones(1)))
    found = misfit.compare(None, state._replace(learnt=far), None, noisy)
    assert np.isnan(found.misfit)
    assert found.at is state.at


def test_the_release_takes_budget_only_where_it_shows_something():
    shares = [RoundTerms(13, 0, n, False, 4.0).share_of_comparison for n in (50, 5000, 10**6)]
    assert shares[0] == 0
    assert shares[1] == 0.03
    assert shares[2] == 0.002
    assert RoundTerms(13, 0, 5000, False, 0.0).share_of_comparison == 0


def test_a_plan_has_the_comparison_where_outcomes_are_more_than_yes_or_no():
    def releases(model):
        plan = pymc_dp.plan(model=model, epsilon=1, delta=1e-5).plan
        return [release.name for release in plan.releases]

    with pm.Model() as coin:
        pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.repeat([0, 1], 500))
    assert stages.COMPARISON in releases(MODELS["normal"]())
    assert stages.COMPARISON not in releases(coin)
