"""Rounds begin where records move every latent, and not at a saddle of the likelihood."""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import skewnorm

import pymc_dp
from pymc_dp.contributions.scores import drawn_scores
from pymc_dp.engine import method
from pymc_dp.engine.made_up import away_from_stationary
from tests.zoo import build as model_of
from tests.zoo import separated

N, GROUPS = 2000, 8
rng = np.random.default_rng(0)
X, MEMBER = rng.uniform(-2, 2, size=N), np.arange(N) % GROUPS
LOADINGS, NOISE = np.array([1.5, -1.0, 0.8, 0.5]), 0.5
Y = X + rng.normal(size=N)
SKEWED = 1 + 0.5 * X + skewnorm.rvs(4, size=N, random_state=rng)
MANY = rng.normal(size=(N, 1)) * LOADINGS + NOISE * rng.normal(size=(N, 4))


def square():
    pm.Normal("y", pm.Normal("a") ** 2 * pm.Data("x", X), 1.0, observed=Y)


def network():
    hidden = pm.math.tanh(pm.Data("x", X)[:, None] * pm.Normal("W", shape=3) + pm.Normal("b"))
    mean = hidden @ pm.Normal("v", shape=3) + pm.Normal("c")
    pm.Normal("y", mean, pm.HalfNormal("s"), observed=Y)


def product_by_group():
    u, v = pm.Normal("u", shape=GROUPS), pm.Normal("v", shape=GROUPS)
    g = pm.Data("member", MEMBER)
    pm.Normal("y", u[g] * v[g] * pm.Data("x", X), 1.0, observed=Y)


def one_factor():
    z, W = pm.Normal("z", shape=(N, 1)), pm.Normal("W", shape=(4, 1))
    pm.Normal("y", z @ W.T + pm.Normal("c", shape=4), pm.HalfNormal("s"), observed=MANY)


def cubic():
    """Scores of large predictors are many orders of magnitude larger than those at the start."""
    mean = pm.Normal("a") + pm.Normal("b") * pm.Data("x", X) ** 3
    pm.Normal("y", mean, pm.HalfNormal("s"), observed=Y)


def two_skewnesses():
    """One depends on the intercept, and the other on the slope: both are moved, and no other."""
    x = pm.Data("x", X)
    mean = pm.Normal("a") + pm.Normal("b") * x
    skew = pm.Normal("skew") + pm.Normal("skew_slope") * x
    pm.SkewNormal("y", mu=mean, sigma=pm.HalfNormal("s"), alpha=skew, observed=SKEWED)


def same_intercept_twice():
    """Their scores depend on each other everywhere: no start is better."""
    pm.Normal("y", pm.Normal("a") + pm.Normal("b"), pm.HalfNormal("s"), observed=Y)


def waiting_times():
    """Outcomes of 0, which made-up records have, are impossible."""
    mean = pm.math.exp(pm.Normal("a") ** 2 * pm.Data("x", X))
    pm.Gamma("y", 2, 2 / mean, observed=np.exp(Y))


def effects_times_their_spread():
    """The spread has no score where effects are 0, and has one as soon as they have moved."""
    u = pm.HalfNormal("spread") * pm.Normal("u", shape=GROUPS)
    pm.Normal("y", pm.Normal("m") + u[pm.Data("member", MEMBER)], 1.0, observed=Y)


def growth():
    """Scores elsewhere have no end; the author's initial value is near the truth."""
    mean = pm.Normal("A", 0, 5, initval=1.5) * pm.math.exp(pm.Normal("r") * pm.Data("t", 20 * X))
    pm.Normal("y", mean, pm.HalfNormal("s"), observed=Y)


def rare_group():
    """No made-up record need be of the last group: it is not known to be stationary."""
    u = pm.Normal("u", shape=5000)
    pm.Normal("y", u[pm.Data("member", MEMBER)], 1.0, observed=Y)


def first_point(describe):
    """Return the names of the latents that are moved, and where rounds begin."""
    records, _ = separated(model_of(describe))
    scores = drawn_scores(records)
    start = away_from_stationary(records, records.start, lambda z: -z, scores)
    names = np.repeat([*records.point], [x.size for x in records.point.values()])
    return names[start != records.start], start


@pytest.mark.parametrize(
    ("describe", "moved"),
    [
        (square, {"a"}),
        (waiting_times, {"a"}),
        (network, {"W", "b", "v"}),
        (product_by_group, {"u", "v"}),
        (one_factor, {"W"}),
        (two_skewnesses, {"skew", "skew_slope"}),
    ],
)
def test_latents_that_no_record_moves_start_at_a_draw_of_the_prior(describe, moved):
    names, start = first_point(describe)
    assert set(names) == moved
    assert np.abs(start).max() < 5


@pytest.mark.parametrize(
    "describe",
    [cubic, growth, effects_times_their_spread, rare_group, same_intercept_twice],
)
def test_others_start_where_the_author_put_them(describe):
    assert not len(first_point(describe)[0])


def test_the_square_of_a_latent_is_found_without_noise():
    idata = pymc_dp.fit(
        model=model_of(square), method="dp_advi", epsilon=np.inf, random_seed=1, progressbar=False
    )
    posterior = idata["posterior"]["a"]
    assert abs(abs(float(posterior.mean())) - 1) < 4 * float(posterior.std())
    assert posterior.std() < 0.05


def test_rounds_that_stay_at_the_saddle_are_rejected(monkeypatch):
    monkeypatch.setattr(method, "away_from_stationary", lambda records, start, *others: start)
    with pytest.raises(AssertionError):
        test_the_square_of_a_latent_is_found_without_noise()


def test_one_factor_is_found_from_loadings_of_0():
    idata = pymc_dp.fit(
        model=model_of(one_factor), method="dp_advi", epsilon=4, delta=1e-5, progressbar=False
    )
    posterior = idata["posterior"].to_dataset().mean("chain")
    products = posterior["W"].values[:, :, 0][:, :, None] * posterior["W"].values[:, :, 0][:, None]
    error = products.mean(axis=0) - np.outer(LOADINGS, LOADINGS)
    assert (abs(error) < 6 * products.std(axis=0)).all()
    assert products.std(axis=0).max() < 0.5
    assert abs(posterior["s"].mean() - NOISE) < 6 * posterior["s"].std() < 0.3
