"""What is doubtful about a posterior is said: by a warning, in the result and in the report."""

import json
import warnings
from functools import cache

import numpy as np
import pymc as pm

import pymc_dp
from pymc_dp.methods.method import doubts_in
from pymc_dp.testing import deterministic_noise

ROWS = 2000
COUNTS = np.arange(ROWS) % 3
QUIETLY = {"delta": 1e-5, "progressbar": False, "backend": "python", "random_seed": 1, "draws": 20}


@cache
def waiting_times(observe):
    y = np.random.default_rng(0).exponential(1 / 3.0, ROWS)
    with pm.Model() as model:
        observe(pm.Gamma("rate", 2, 1), y)
    return model


def density(y, rate):
    return pm.logp(pm.Exponential.dist(rate), y)


def by_distribution(rate, y):
    pm.Exponential("y", rate, observed=y)


def by_potential(rate, y):
    pm.Potential("y", density(pm.Data("times", y), rate))


def by_custom_distribution(rate, y):
    def draws(rate, rng=None, size=None):
        return rng.exponential(1 / rate, size=size)

    pm.CustomDist("y", rate, logp=density, random=draws, observed=y)


@cache
def wide(d=30):
    X = np.random.default_rng(0).normal(size=(ROWS, d))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=d)
        pm.Bernoulli("y", logit_p=X @ b, observed=X[:, 0] > 0)
    return model


@cache
def two_rates():
    with pm.Model() as model:
        w, rates = pm.Dirichlet("w", np.ones(2)), pm.Gamma("rates", 2, 2, shape=2)
        pm.Mixture("y", w, pm.Poisson.dist(rates), observed=COUNTS)
    return model


@cache
def doubts_of(model, epsilon=4.0, **settings):
    with deterministic_noise(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        idata = pymc_dp.fit(model=model, epsilon=epsilon, **{**QUIETLY, **settings})
    warned = [str(w.message) for w in caught if w.category is pymc_dp.PosteriorWarning]
    assert warned == [doubt.text for doubt in doubts_in(idata["privacy"].attrs["doubts"])]
    assert all(doubt in pymc_dp.privacy_report(idata) for doubt in warned)
    return " ".join(warned)


def test_clipping_that_is_not_centred_is_doubted():
    assert "`y` are clipped without being centred" in doubts_of(waiting_times(by_potential))
    assert doubts_of(waiting_times(by_distribution)) == ""


def test_what_is_said_against_it_helps():
    uncentred = "clipped without being centred"
    doubts = doubts_of(waiting_times(by_potential))
    assert "pm.CustomDist with logp= and random= in place of a pm.Potential" in doubts
    assert "method='dp_advi'" not in doubts
    model = waiting_times(by_custom_distribution)
    assert uncentred in doubts_of(model)
    assert uncentred not in doubts_of(model, public=("CustomDist_y",))
    model = waiting_times(by_distribution)
    assert "Rounds, which noise_aware=False leaves out" in doubts_of(model, noise_aware=False)
    assert uncentred not in doubts_of(model)
    assert "method='dp_advi' centres" in doubts_of(model, method="vips", clip_norm=3.0)


def test_without_noise_nothing_is_clipped_and_nothing_doubted():
    model = waiting_times(by_potential)
    assert doubts_of(model, epsilon=np.inf, delta=None) == ""


def test_curvature_that_noise_hides_is_doubted():
    doubts = doubts_of(wide(), epsilon=0.1)
    assert "directions of the latents" in doubts
    advice = "more records, fewer latents or predictors scaled by public limits would show more"
    assert f"A larger epsilon, {advice}" in doubts


def test_latents_that_noise_hides_are_named():
    rng = np.random.default_rng(0)
    common, rare = rng.normal(size=ROWS), rng.random(ROWS) < 0.002
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1), pm.Normal("b", 0, 1)
        y = rng.random(ROWS) < 1 / (1 + np.exp(-common))
        pm.Bernoulli("y", logit_p=a * common + b * rare, observed=y)
    doubts = doubts_of(model, epsilon=1.0)
    assert "most of all of `b`." in doubts
    assert "`a`" not in doubts


def test_a_mixture_of_which_something_is_hidden_is_doubted_as_a_whole():
    assert "`y` is a mixture" in doubts_of(two_rates(), epsilon=0.1, method="vips")
    assert "is a mixture" not in doubts_of(wide(), epsilon=0.1)


def test_latents_of_which_records_only_tell_through_others_are_not_hidden_by_noise():
    X = np.random.default_rng(0).uniform(-1, 1, size=(ROWS, 2))
    with pm.Model() as model:
        b = pm.Normal("b", 0, tau=pm.Gamma("tau", 2, 2), shape=2)
        pm.Bernoulli("y", logit_p=X @ b, observed=X[:, 0] > 0)
    assert "Noise hides" not in doubts_of(model, epsilon=8.0)


def test_a_mode_that_was_not_reached_is_doubted():
    y = np.random.default_rng(0).normal(0, 1e-3, ROWS)
    with pm.Model() as model:
        pm.Normal("y", 0, pm.HalfNormal("s"), observed=y)
    assert "`s` was a long one" in doubts_of(model, n=3)
    assert "`s` was a long one" in doubts_of(model, epsilon=np.inf, delta=None, n=3)
    assert "a long one" not in doubts_of(model)


def test_a_warning_that_is_an_error_does_not_cost_the_result():
    with warnings.catch_warnings(), deterministic_noise(1):
        warnings.simplefilter("error", pymc_dp.PosteriorWarning)
        model = waiting_times(by_potential)
        idata = pymc_dp.fit(model=model, epsilon=4.0, **QUIETLY)
    assert json.loads(idata["privacy"].attrs["doubts"])


def test_skewed_outcomes_of_a_linear_predictor_are_doubted():
    x = np.random.default_rng(0).normal(size=ROWS)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Poisson("y", pm.math.exp(b[0] + b[1] * x), observed=np.ones(ROWS, int))
    assert "clipped without being centred" in doubts_of(model, method="dp_sep", form="damped")
    assert "clipped without being centred" not in doubts_of(model, method="dp_sep")


def test_intervals_of_components_are_doubted():
    model = two_rates()
    with pm.Model() as alone:
        pm.Poisson("y", pm.Gamma("rates", 2, 2), observed=COUNTS)
    too_narrow = "are too narrow where components overlap"
    assert too_narrow in doubts_of(model, method="vips", form="absolute")
    assert too_narrow not in doubts_of(model, epsilon=0.1, method="vips")
    assert too_narrow not in doubts_of(alone, method="vips", form="absolute")


def test_belief_nets_doubt_their_intervals():
    with pm.Model() as model:
        z, w = pm.Bernoulli("z", 0.5, shape=(ROWS, 1)), pm.Normal("w", 1, 1, shape=(3, 1))
        pm.Bernoulli("y", logit_p=z @ w.T, observed=np.ones((ROWS, 3), dtype=int))
    assert "Intervals of `w` are too narrow" in doubts_of(model, method="vips")


def groups(spread):
    group = np.arange(ROWS) % 12
    y = np.random.default_rng(0).normal(group / 6 - 1, 1.0)
    with pm.Model() as model:
        a = pm.Normal("a", pm.Normal("mu", 0, 2), spread("spread"), shape=12)
        pm.Normal("y", a[pm.Data("group", group)], 1.0, observed=y)
    return model


def test_chains_that_do_not_move_are_doubted():
    found = doubts_of(groups(lambda name: pm.math.exp(-50 * pm.Uniform(name, 0, 10))), draws=50)
    assert "Markov chains that draw `mu`, `spread` hardly moved" in found
    assert doubts_of(groups(lambda name: pm.HalfCauchy(name, 1.0)), draws=50) == ""
