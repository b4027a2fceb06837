"""Means and spreads of groups, which no record reads: their posterior follows their own priors."""

from functools import partial

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp
from pymc_dp.engine.conditional import NormalLikelihood
from pymc_dp.engine.method import RoundTerms, rounds_of
from pymc_dp.engine.prior import Mixing, prior_as_written
from pymc_dp.engine.report import doubts_of_chains
from pymc_dp.engine.rounds import likelihood
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.testing import deterministic_noise
from tests.first_state import first_known, scored_state
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


@pytest.fixture(scope="module")
def found():
    return prior_as_written(records_of(groups))


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


def check_draws(x, sd, spread=stats.halfnorm):
    mean, deviation = exact(sd, spread)
    assert x.mean() == pytest.approx(mean, abs=0.15 * deviation)
    assert x.std() == pytest.approx(deviation, rel=0.2)


def test_rounds_take_the_latents_that_records_read(found):
    assert list(found.reduced.latents) == ["a"]
    assert found.reduced.size == GROUPS < found.records.size
    assert found.records.labels[found.places[0]] == "a[0]"


@pytest.mark.parametrize("sd", [0.05, NOISE])
def test_the_posterior_of_a_spread_is_that_of_its_own_prior(found, sd):
    check_draws(log_tau(found, sd), sd)


def test_a_prior_with_heavy_tails_is_drawn():
    found = prior_as_written(records_of(lambda: groups(pm.HalfCauchy)))
    check_draws(log_tau(found, NOISE), NOISE, stats.halfcauchy)


def of_vanishing_precisions():
    """Gamma draws that are 0 by rounding make spreads without end."""
    mu = pm.Normal("mu", 0, tau=pm.Gamma("top", 0.01, 0.01))
    a = pm.Normal("a", mu, tau=pm.Gamma("tau", 0.01, 0.01), shape=GROUPS)
    pm.Normal("y", a[pm.Data("group", GROUP)], 1.0, observed=Y)


WIDE_MEANS = [partial(pm.Flat, "mu"), partial(pm.Cauchy, "mu", 0, 10)]


@pytest.mark.parametrize("mean_of_groups", WIDE_MEANS)
def test_the_spread_of_groups_is_found_however_wide_the_prior_of_their_mean_is(mean_of_groups):
    """With twelve groups any prior of the mean that is as wide leaves the same spread."""

    def around_a_mean():
        a = pm.Normal("a", mean_of_groups(), pm.HalfNormal("tau", 1.0), shape=GROUPS)
        pm.Normal("y", a[pm.Data("group", GROUP)], 1.0, observed=Y)

    apart = prior_as_written(records_of(around_a_mean))
    for seed in range(3):
        check_draws(log_tau(apart, NOISE, seed), NOISE)


def test_priors_without_an_end_are_bounded():
    found = prior_as_written(records_of(of_vanishing_precisions))
    assert np.linalg.eigvalsh(found.normal.precision)[0] > 0
    assert np.isfinite(log_tau(found, NOISE)).all()


def test_spreads_beside_cutpoints_in_order_are_drawn():
    """PyMC draws cutpoints without their order, which have no logarithms of distances."""

    def ordinal():
        ordered = pm.distributions.transforms.ordered
        middle = np.array([-1.0, 0.0, 1.0])
        cut = pm.Normal("cut", middle, 1, transform=ordered, initval=middle)
        a = pm.Normal("a", 0, pm.HalfNormal("tau"), shape=GROUPS)
        category = np.digitize(Y, [-0.5, 0.5, 1.5])
        pm.OrderedLogistic("y", a[pm.Data("group", GROUP)], cut, observed=category)

    found = prior_as_written(records_of(ordinal))
    assert list(found.reduced.latents) == ["cut_ordered__", "a"]
    assert np.isfinite(found.prior_draws).all()


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


def test_correlated_latents_of_groups_are_drawn():
    def lines():
        chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1.0, size=2))
        b = pm.MvNormal("b", pm.Normal("mu", shape=2), chol=chol, shape=(4, 2))
        line = b[pm.Data("group", GROUP % 4)]
        pm.Normal("y", line[:, 0] + line[:, 1] * pm.Data("x", Y - 1), 1.0, observed=Y)

    found = prior_as_written(records_of(lines))
    precision = 100 * np.eye(8)
    peak = np.arange(8.0) / 8
    likelihood = NormalLikelihood(precision @ peak, precision)
    drawn, _ = found.draw(likelihood, np.zeros((8, 8)), 200, np.random.default_rng(0))
    assert drawn["b"].mean(axis=0).ravel() == pytest.approx(peak, abs=0.1)


def test_chains_that_drew_another_posterior_are_not_doubted():
    """Runs of a private search draw posteriors of the same model; only the best one leaves."""
    found, H = prior_as_written(records_of(groups)), np.eye(GROUPS)
    known = first_known(found.normal.precision, number=100)
    own, other = (scored_state(known, H, H, z * np.ones(GROUPS)) for z in (0.5, 1.0))
    key, of_other = (likelihood(known, state).c.tobytes() for state in (own, other))
    found.mixing[of_other] = Mixing(1.0, ())
    assert doubts_of_chains(found, known, own) == ()
    [doubt] = doubts_of_chains(found, known, other)
    assert "`mu`, `tau` hardly moved" in doubt.text
    found.mixing[key] = Mixing(0.0, ("tau_log__",))
    [doubt] = doubts_of_chains(found, known, own)
    assert "chains that draw `tau` stayed near the places where they began" in doubt.text


def test_how_chains_moved_is_kept_with_what_they_drew():
    found, H = prior_as_written(records_of(groups)), np.eye(GROUPS)
    known = first_known(found.normal.precision, number=100)
    told = likelihood(known, scored_state(known, H, H, np.ones(GROUPS)))
    given = NormalLikelihood(told.c.reshape(-1), told.A[0])
    found.draw(given, NOTHING_LOST, 20, np.random.default_rng(0))
    assert list(found.mixing) == [told.c.tobytes()]


def test_the_prior_of_the_rounds_is_twice_as_wide_as_that_of_groups(found):
    """Under it groups have the sds and correlations of mu + tau z."""
    exact = 4.0 + np.eye(GROUPS)  # E[tau^2] is 1
    prior = np.linalg.inv(found.normal.precision) / 4
    np.testing.assert_allclose(prior, exact, rtol=0.25)


def test_gradient_steps_may_come_before_rounds():
    with pm.Model() as model:
        groups()
    with deterministic_noise(1):
        terms = {"epsilon": 4, "delta": 1e-5, "accountant": "rdp"}
        idata = pymc_dp.fit(model=model, n=20, draws=20, **terms, **QUIETLY)
    assert idata["posterior"].sizes["draw"] == 20


def written(build):
    records = records_of(build)
    terms = RoundTerms(6, ROWS, of_units=False)
    return rounds_of(records, partial(prior_gradient, records), terms).written


def test_a_normal_prior_of_all_that_records_read_needs_no_draws_of_it():
    def alone(sd):
        pm.Normal("y", pm.Normal("mu"), sd, observed=Y)

    assert written(lambda: alone(1.0)) is None
    assert written(lambda: alone(pm.HalfNormal("s"))) is not None
    assert written(groups) is not None


def test_a_spread_that_nothing_draws_is_found():
    found = prior_as_written(records_of(lambda: groups(lambda name, _: pm.HalfFlat(name))))
    assert np.isfinite(found.prior_draws).all()
    check_draws(log_tau(found, NOISE), NOISE, Flat)


class Flat:
    """A flat prior of a spread."""

    logpdf = staticmethod(np.zeros_like)


def test_an_exponential_of_a_flat_prior_is_drawn_as_numbers():
    """It is beyond any number in half of the draws."""

    def of_a_flat_logarithm():
        groups(lambda name, _: pm.math.exp(pm.Flat(f"log {name}")))

    found = prior_as_written(records_of(of_a_flat_logarithm))
    assert np.isfinite(found.prior_draws).all()
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


PRIOR = 0.01 * np.eye(3)


def of_scores(H, noise, peak, noisy=True, prior=PRIOR, change=lambda state: state, **settings):
    """Return the likelihood that scores tell of: its peak, and its precision."""
    known = first_known(prior, number=settings.pop("number", 10**9))
    state = change(scored_state(known, H, noise, peak, **settings))
    found = likelihood(known, state, noisy)
    return np.linalg.solve(found.A[0], found.c[0]), found.A[0]


@pytest.mark.parametrize("noisy", [False, True])
def test_the_likelihood_is_where_all_scores_say_whatever_the_prior_is(noisy):
    rng = np.random.default_rng(0)
    root, error = rng.normal(size=(2, 3, 3))
    H, S, peak = root @ root.T + np.eye(3), error @ error.T + np.eye(3), rng.normal(size=3)
    expected = H @ np.linalg.inv(H + noisy * S) @ H
    for prior in (PRIOR, np.diag([5.0, 1.0, 2.0])):
        found, precision = of_scores(H, S, peak, noisy, prior)
        assert found == pytest.approx(peak)
        assert precision == pytest.approx(expected)


def test_the_variance_of_scores_that_records_do_not_follow_widens_the_likelihood():
    def twice_the_variance(state):
        return state._replace(report=state.report._replace(excess=2.0))

    H = 4.0 * np.eye(3)
    _, precision = of_scores(H, H, np.ones(3), change=twice_the_variance)
    assert precision == pytest.approx(4.0**2 / (2 * 4.0 + 4.0) * np.eye(3), abs=1e-6)


def test_exact_scores_count_more_than_noisy_ones():
    H, peak = 4.0 * np.eye(3), np.ones(3)

    def first_is_noisy(state):
        one, other = state.scored
        one = one._replace(score=one.score + 9, noise=1e6 * H[None])
        return state._replace(scored=(one, other))

    found, _ = of_scores(H, np.eye(3), peak, change=first_is_noisy)
    assert found == pytest.approx(peak, abs=1e-3)


def test_scores_far_from_the_mode_count_less_where_they_may_bend():
    H, peak = 40.0 * np.eye(3), np.ones(3)

    def bent(state):  # it is half as large as it would be if it fell linearly
        far, near = state.scored
        return state._replace(scored=(far._replace(score=far.score / 2), near))

    def found(number):
        scores = {"points": (-4.0, 1.1), "change": bent, "number": number}
        return of_scores(H, np.eye(3), peak, **scores)[0]

    assert abs(found(number=100) - peak).max() < 0.05
    assert abs(found(number=10**9) - peak).min() > 1


def test_scores_that_clipping_biases_more_than_others_count_less():
    H, peak = 40.0 * np.eye(3), np.ones(3)

    def biased(state):
        one, other = state.scored
        bias = np.array([1e4, 0.0])[:, None, None] * np.ones((2, 1, 3))
        report = state.report._replace(bias=bias)
        return state._replace(scored=(one._replace(score=one.score + 9), other), report=report)

    found, _ = of_scores(H, np.eye(3), peak, change=biased)
    assert found == pytest.approx(peak, abs=1e-3)


def test_what_clipping_may_leave_out_is_in_the_width():
    def biased(state):
        return state._replace(report=state.report._replace(bias=2.0 + 0 * state.report.bias))

    H = 4.0 * np.eye(3)
    _, precision = of_scores(H, H, np.ones(3), change=biased)
    assert precision == pytest.approx(4.0**2 / (4.0 + 4.0 + 2.0**2) * np.eye(3), abs=1e-6)
