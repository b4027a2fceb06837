"""Means and spreads of groups, which no record reads: their posterior follows their own priors."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp
from pymc_dp.engine import report
from pymc_dp.engine.conditional import NormalLikelihood
from pymc_dp.engine.posterior import Mixing, if_normal, prior_as_written
from pymc_dp.testing import deterministic_noise
from tests.zoo import separated

GROUPS, ROWS = 12, 200
QUIETLY = {"progressbar": False, "backend": "python", "random_seed": 1}
rng = np.random.default_rng(20261123)
OF_GROUP = rng.normal(0.5, 0.4, GROUPS)
NOISE = 0.3  # the likelihood's sd of each group
GROUP = rng.integers(0, GROUPS, ROWS)
Y = rng.normal(OF_GROUP[GROUP], 1.0)
NOTHING_LOST = np.zeros((GROUPS, GROUPS))


def groups(spread=pm.HalfNormal):
    mu, tau = pm.Normal("mu", 0, 2), spread("tau", 1.0)
    a = pm.Normal("a", mu, tau, shape=GROUPS)
    pm.Normal("y", a[pm.Data("group", GROUP)], 1.0, observed=Y)


def records_of(build):
    with pm.Model() as model:
        build()
    return separated(model)[0]


def of_independent_errors(sd):
    precision = np.eye(GROUPS) / sd**2
    return NormalLikelihood(precision @ OF_GROUP, precision)


def exact(sd, spread=stats.halfnorm):
    """Mean and sd of log(tau), by summing over a grid; group means are integrated out."""
    mu, log_tau = np.linspace(-2, 3, 301)[:, None, None], np.linspace(-8, 2, 501)[:, None]
    tau = np.exp(log_tau)
    log_p = stats.norm.logpdf(mu, 0, 2) + spread.logpdf(tau) + log_tau
    log_p = log_p[..., 0] + stats.norm.logpdf(OF_GROUP, mu, np.hypot(tau, sd)).sum(axis=-1)
    p = np.exp(log_p - log_p.max()).sum(axis=0)
    p, x = p / p.sum(), log_tau[:, 0]
    mean = p @ x
    return mean, (p @ (x - mean) ** 2) ** 0.5


def log_tau(found, sd, seed=0):
    own = np.random.default_rng(seed)
    draws, _ = found.draw(of_independent_errors(sd), NOTHING_LOST, 2000, own)
    return draws["tau_log__"]


class Flat:
    """A flat prior of a spread."""

    logpdf = staticmethod(np.zeros_like)


def check_draws(found, sd, spread=stats.halfnorm, seed=0):
    own = np.random.default_rng(seed)
    x = found.draw(of_independent_errors(sd), NOTHING_LOST, 2000, own)[0]["tau_log__"]
    mean, deviation = exact(sd, spread)
    assert x.mean() == pytest.approx(mean, abs=0.15 * deviation)
    assert x.std() == pytest.approx(deviation, rel=0.2)


@pytest.mark.parametrize(
    ("prior", "sd", "density"),
    [
        (pm.HalfNormal, 0.05, stats.halfnorm),
        (pm.HalfNormal, NOISE, stats.halfnorm),
        (pm.HalfCauchy, NOISE, stats.halfcauchy),
        (lambda name, _: pm.HalfFlat(name), NOISE, Flat),
    ],
)
def test_the_posterior_of_a_spread_is_that_of_its_own_prior(prior, sd, density):
    check_draws(prior_as_written(records_of(lambda: groups(prior))), sd, density)


@pytest.mark.parametrize("mean_of_groups", [lambda: pm.Flat("mu"), lambda: pm.Cauchy("mu", 0, 10)])
def test_the_spread_of_groups_is_found_however_wide_the_prior_of_their_mean_is(mean_of_groups):
    """With twelve groups any prior of the mean that is as wide leaves the same spread."""

    def around_a_mean():
        a = pm.Normal("a", mean_of_groups(), pm.HalfNormal("tau", 1.0), shape=GROUPS)
        pm.Normal("y", a[pm.Data("group", GROUP)], 1.0, observed=Y)

    found = prior_as_written(records_of(around_a_mean))
    for seed in range(3):
        check_draws(found, NOISE, seed=seed)


def test_a_spread_of_items_that_persons_answer_is_found():
    """Persons' latents are integrated out, and the items' spread is behind what records read."""
    own = np.random.default_rng(2)
    items, persons, rows = 8, 800, 6
    easy, ability = own.normal(size=items), own.normal(size=persons)
    person, item = np.repeat(np.arange(persons), rows), own.integers(0, items, persons * rows)
    y = own.binomial(1, 1 / (1 + np.exp(-ability[person] - easy[item])))
    with pm.Model() as model:
        e = pm.Normal("e", 0, pm.HalfNormal("s", 2.0), shape=items)
        a = pm.Normal("a", shape=persons)
        p = a[pm.Data("person", person)] + e[pm.Data("item", item)]
        pm.Bernoulli("y", logit_p=p, observed=y)
    with deterministic_noise(3):
        idata = pymc_dp.fit(model=model, epsilon=2, delta=1e-5, unit="person", **QUIETLY)
    draws = idata["posterior"]["e"].to_numpy()[0]
    assert abs((draws.mean(axis=0) - easy) / draws.std(axis=0)).max() < 4
    assert draws.std(axis=0).max() < 0.5
    assert 0.4 < float(idata["posterior"]["s"].mean()) < 2


def test_chains_that_drew_another_posterior_are_not_doubted():
    """Runs of a private search draw posteriors of the same model; only the best one leaves."""
    found = prior_as_written(records_of(groups))
    own, other = (SimpleNamespace(c=np.full(GROUPS, peak)) for peak in (0.5, 1.0))
    found.mixing[other.c.tobytes()] = Mixing(1.0, ())
    assert report.doubts_of_chains(found, own) == ()
    [doubt] = report.doubts_of_chains(found, other)
    assert "`mu`, `tau` hardly moved" in doubt.text
    found.mixing[own.c.tobytes()] = Mixing(0.0, ("tau_log__",))
    [doubt] = report.doubts_of_chains(found, own)
    assert "chains that draw `tau` stayed near the places where they began" in doubt.text


def test_an_exponential_of_a_flat_prior_is_drawn_as_numbers():
    """It is beyond any number in half of the draws."""

    def of_a_flat_logarithm():
        groups(lambda name, _: pm.math.exp(pm.Flat(f"log {name}")))

    found = prior_as_written(records_of(of_a_flat_logarithm))
    assert np.isfinite(found.prior_draws).all()
    assert if_normal(np.zeros_like, np.zeros(2)) is None  # a prior that is flat everywhere
    assert np.linalg.eigvalsh(found.normal.precision)[0] > 0


def test_no_draw_lies_where_a_potential_ends_the_prior():
    """It is quadratic up to its end, beyond which the records put the mean of the groups."""

    def below_nothing():
        mu, tau = pm.Normal("mu", -2, 1), pm.HalfNormal("tau", 1.0)
        pm.Potential("end", pm.math.switch(mu < 0, -0.005 * mu**2, -np.inf))
        a = pm.Normal("a", mu, tau, shape=GROUPS)
        pm.Normal("y", a[pm.Data("group", GROUP)], 1.0, observed=Y)

    apart = prior_as_written(records_of(below_nothing))
    own = np.random.default_rng(0)
    drawn, _ = apart.draw(of_independent_errors(NOISE), NOTHING_LOST, 300, own)
    assert (drawn["mu"] < 0).all()


def summing_to_nothing(a):
    pm.Potential("soft", -0.5 * (a.sum() / 0.01) ** 2)
    return pm.Normal("level", 0, 2) + a


def observed_elsewhere(a):
    level = pm.Normal("level", 0, 2)
    pm.Normal("old", level + a[:3], 0.1, observed=LEVELS[:3])
    return level + a


def above_a_flat_level(a):
    return pm.Flat("level") + a


LEVELS = np.array([1.4, -0.3, 0.2, 0.9, 0.4, 0.7, -0.5, 1.2])


@pytest.mark.parametrize("levels", [summing_to_nothing, observed_elsewhere, above_a_flat_level])
def test_a_spread_is_found_whatever_else_the_prior_holds(levels):
    own = np.random.default_rng(3)
    group = own.integers(0, len(LEVELS), 3000)
    y = own.binomial(1, 1 / (1 + np.exp(-LEVELS[group])))
    with pm.Model() as model:
        a = pm.Normal("a", 0, pm.HalfNormal("s", 1.0), shape=len(LEVELS))
        level = pm.Deterministic("of groups", levels(a))
        pm.Bernoulli("y", logit_p=level[pm.Data("group", group)], observed=y)
    public = ["old"] if levels is observed_elsewhere else []
    with deterministic_noise(3):
        idata = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, public=public, **QUIETLY)
    draws = idata["posterior"]["of groups"].to_numpy()[0]
    assert abs((draws.mean(axis=0) - LEVELS) / draws.std(axis=0)).max() < 4
    assert draws.std(axis=0).max() < 0.5
    assert 0.3 < float(idata["posterior"]["s"].mean()) < 1.5
