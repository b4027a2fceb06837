"""Latents of the shape of outcomes are recognised, and found with their mean."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.engine.outcomes import shape_latents
from pymc_dp.testing import deterministic_noise
from tests import zoo

ROWS = 4000
QUIETLY = {"delta": 1e-5, "progressbar": False, "backend": "python", "random_seed": 1}
rng = np.random.default_rng(12)
X = np.column_stack([rng.integers(18, 65, ROWS), rng.binomial(1, 0.2, ROWS)]).astype(float)
TRUTH = np.array([7.0, 0.03, 1.4])
MEAN = np.exp(TRUTH[0] + X @ TRUTH[1:])
COSTS = rng.gamma(2.0, MEAN / 2.0)
SHARES = rng.beta(2.0, 3.0, ROWS)


def with_mean(outcome):
    """A model of a mean exp(a + Xb) and a latent k."""
    with pm.Model() as model:
        a, b, k = pm.Normal("a", 0, 5), pm.Normal("b", 0, 1, shape=2), pm.HalfNormal("k", 5)
        outcome(pm.math.exp(a + pm.Data("X", X) @ b), k)
    return model


def gamma(mu, k):
    pm.Gamma("y", alpha=k, beta=k / mu, observed=COSTS)


def counts(mu, k):
    pm.NegativeBinomial("y", mu=mu, alpha=k, observed=COSTS.astype(int))


def shares(mu, k):
    pm.Beta("y", mu=mu / (1 + mu), nu=k, observed=SHARES)


def student_t(mu, k):
    pm.StudentT("y", nu=k, mu=mu, sigma=pm.HalfNormal("s", 5), observed=COSTS)


@pytest.mark.parametrize("outcome", [gamma, counts, shares, student_t])
def test_a_latent_that_leaves_the_mean_as_it_is_sets_the_shape(outcome):
    records, _ = zoo.separated(with_mean(outcome))
    found = dict(zip(records.latents, records.split(shape_latents(records)), strict=True))
    assert found.pop("k_log__").all()
    assert not any(flags.any() for flags in found.values())


def gamma_of_its_rate(mu, k):
    pm.Gamma("y", alpha=k, beta=1 / mu, observed=COSTS)


def normal(mu, k):
    pm.Normal("y", mu, k, observed=COSTS)


@pytest.mark.parametrize("outcome", [gamma_of_its_rate, normal])
def test_a_latent_of_the_mean_or_the_scale_does_not(outcome):
    records, _ = zoo.separated(with_mean(outcome))
    assert not shape_latents(records).any()


def between(effect, first, second, x):
    """Rivals: the mean is a difference, which a common shift leaves as it is."""
    return effect[first] - effect[second]


def of_weights(effect, first, second, x):
    return pm.math.softmax(effect)[first]


def after_a_year(effect, first, second, x):
    return effect[0] * pm.math.switch(x >= 2005, 1.0, 0.0)


@pytest.mark.parametrize("location", [between, of_weights, after_a_year])
def test_effects_that_seldom_show_in_the_mean_are_none_either(location):
    codes = np.arange(ROWS) % 40
    with pm.Model() as model:
        effect, s = pm.Normal("effect", shape=40), pm.HalfNormal("s")
        first, second = pm.Data("first", codes), pm.Data("second", codes[::-1].copy())
        mu = location(effect, first, second, pm.Data("x", X[:, 0]))
        pm.StudentT("y", nu=pm.Gamma("nu", 2, 0.1), mu=mu, sigma=s, observed=COSTS)
    records, _ = zoo.separated(model)
    found = dict(zip(records.latents, records.split(shape_latents(records)), strict=True))
    assert not found["effect"].any()


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
@pytest.mark.parametrize(("epsilon", "keys"), [(2.0, range(5)), (np.inf, [0])])
def test_a_mean_far_from_its_prior_is_found_with_its_shape(epsilon, keys):
    """It begins seven logarithms away."""
    model, fits = with_mean(gamma), []
    for key in keys:
        with deterministic_noise(key):
            posterior = pymc_dp.fit(model=model, epsilon=epsilon, **QUIETLY)["posterior"]
        fits.append(np.column_stack([posterior[name].to_numpy()[0] for name in ("a", "b", "k")]))
    draws = np.stack(fits)
    sd = draws.std(axis=1)
    assert np.all(abs(draws.mean(axis=1) - [*TRUTH, 2.0]) < 4.5 * sd)
    usual = np.median(sd, axis=0)
    assert usual[0] < 0.5  # and of the shape: far less than under their priors
    assert usual[3] < 0.5
