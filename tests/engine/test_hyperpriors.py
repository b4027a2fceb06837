"""Means and spreads of groups, which no record reads: their posterior follows their own priors."""

from functools import partial

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp
from pymc_dp.contributions.joint_vector import vector_size
from pymc_dp.contributions.score_scales import BINS
from pymc_dp.engine.conditional import NormalLikelihood
from pymc_dp.engine.outcomes import OutcomeScale
from pymc_dp.methods.by_rounds import whitened_method
from pymc_dp.methods.gaussian.doubts import doubts_of_chains
from pymc_dp.methods.gaussian.hyperpriors import (
    Mixing,
    NormalPrior,
    hyperpriors,
)
from pymc_dp.methods.gaussian.likelihood import likelihood
from pymc_dp.methods.gaussian.schedule import RoundTerms
from pymc_dp.methods.gaussian.state import Scored
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.privacy.query import Noisy, Query
from pymc_dp.testing import deterministic_noise
from tests.first_state import first_state
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
    return hyperpriors(records_of(groups))


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
    (draws, _), _ = found.draw(of_independent_errors(sd), NOTHING_LOST, 2000, own)
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
    found = hyperpriors(records_of(lambda: groups(pm.HalfCauchy)))
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

    apart = hyperpriors(records_of(around_a_mean))
    for seed in range(3):
        check_draws(log_tau(apart, NOISE, seed), NOISE)


def test_priors_without_an_end_are_bounded():
    found = hyperpriors(records_of(of_vanishing_precisions))
    assert np.linalg.eigvalsh(found.prior.precision)[0] > 0
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

    found = hyperpriors(records_of(ordinal))
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

    found = hyperpriors(records_of(lines))
    precision = 100 * np.eye(8)
    peak = np.arange(8.0) / 8
    likelihood = NormalLikelihood(precision @ peak, precision)
    (drawn, _), _ = found.draw(likelihood, np.zeros((8, 8)), 200, np.random.default_rng(0))
    assert drawn["b"].mean(axis=0).ravel() == pytest.approx(peak, abs=0.1)


def test_chains_that_drew_another_posterior_are_not_doubted():
    """Runs of a private search draw posteriors of the same model; only the best one leaves."""
    found = hyperpriors(records_of(groups))
    own, other = (first_state(np.full(GROUPS, z), found.prior.gradient, 100.0) for z in (0.0, 1.0))
    found.mixing[other.learnt.mode.mean.tobytes()] = Mixing(1.0, ())
    assert doubts_of_chains(found, own) == ()
    [doubt] = doubts_of_chains(found, other)
    assert "`mu`, `tau` hardly moved" in doubt.text
    found.mixing[own.learnt.mode.mean.tobytes()] = Mixing(0.0, ("tau_log__",))
    [doubt] = doubts_of_chains(found, own)
    assert "chains that draw `tau` stayed near the places where they began" in doubt.text


@pytest.mark.parametrize("shifts", [0, 3])
def test_the_mode_is_believed_to_lie_within_the_wider_prior_and_no_wider(found, shifts):
    records = records_of(groups)
    terms = RoundTerms(6, shifts, ROWS, of_units=False, noise=1.0)
    method = whitened_method(records, partial(prior_gradient, records), terms)
    state, update = method.init(None), method.compile("python").update
    noisy = Noisy(np.full(BINS * (1 if shifts else GROUPS), 9.0), 1.0, 1.0)
    for release in ["score scales", *["whitened scores of shifts"] * shifts]:
        state = update(state, Query(release, None), noisy)
        noisy = Noisy(np.full(vector_size(1), 9.0), 1.0, 1.0)
    start = state.state.learnt.mode.covariance
    apart = np.eye(GROUPS) - (1 / GROUPS if shifts else 0.0)
    wider = apart @ np.linalg.inv(found.prior.precision) @ apart
    np.testing.assert_allclose(apart @ start @ apart, wider, atol=1e-6)


def test_gradient_steps_may_come_before_rounds():
    with pm.Model() as model:
        groups()
    with deterministic_noise(1):
        terms = {"epsilon": 4, "delta": 1e-5, "accountant": "rdp"}
        idata = pymc_dp.fit(model=model, n=20, draws=20, **terms, **QUIETLY)
    assert idata["posterior"].sizes["draw"] == 20


def test_without_such_latents_there_is_nothing_to_part():
    def alone():
        pm.Normal("y", pm.Normal("mu"), pm.HalfNormal("s"), observed=Y)

    assert hyperpriors(records_of(alone)) is None


def test_what_nothing_draws_stays_with_the_rounds():
    def of_an_endless_spread():
        groups(lambda name, _: pm.HalfFlat(name))

    assert hyperpriors(records_of(of_an_endless_spread)) is None


def test_an_exponential_of_a_flat_prior_stays_with_the_rounds():
    """It is beyond any number in half of the draws."""

    def of_a_flat_logarithm():
        groups(lambda name, _: pm.math.exp(pm.Flat(f"log {name}")))

    assert hyperpriors(records_of(of_a_flat_logarithm)) is None


def test_no_draw_lies_where_a_potential_ends_the_prior():
    """It is quadratic up to its end, beyond which the records put the mean of the groups."""

    def below_nothing():
        mu, tau = pm.Normal("mu", -2, 1), pm.HalfNormal("tau", 1.0)
        pm.Potential("end", pm.math.switch(mu < 0, -0.005 * mu**2, -np.inf))
        a = pm.Normal("a", mu, tau, shape=GROUPS)
        pm.Normal("y", a[pm.Data("group", GROUP)], 1.0, observed=Y)

    apart = hyperpriors(records_of(below_nothing))
    own = np.random.default_rng(0)
    (drawn, _), _ = apart.draw(of_independent_errors(NOISE), NOTHING_LOST, 300, own)
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


def of_scores(
    H,
    S,
    peak,
    noise,
    prior=None,
    points=(0.0, 2.0),
    change=lambda learnt: learnt,
    scale=None,
    number=1e9,
):
    """Score a likelihood with this peak at some points, with the covariance S of all noise."""
    prior = prior or NormalPrior(np.zeros(3), 0.01 * np.eye(3))
    state = first_state(np.zeros(3), prior.gradient, number)
    scored = tuple(Scored(p * np.ones(3), H @ (peak - p), len(points) * S) for p in points)
    mode = state.learnt.mode._replace(mean=peak)
    reported = state.learnt.reported._replace(mean=peak)
    learnt = state.learnt._replace(
        mode=mode, likelihood_curvature=H, reported=reported, scored=scored
    )
    return likelihood(state._replace(learnt=change(learnt), scale=scale), prior, noise)


NEXT_TO_NOTHING = 1e-9 * np.eye(3)


def test_what_the_prior_fixes_takes_no_likelihood():
    """Of high frequencies of a process, say, whose curvature rounding hides."""
    fixed = NormalPrior(np.zeros(3), np.diag([1.0, 1e12, 1.0]))
    found = of_scores(100 * np.eye(3), NEXT_TO_NOTHING, np.ones(3), 0.0, fixed)
    assert found.precision == pytest.approx(np.diag([100.0, 0.0, 100.0]), rel=1e-2)
    assert found.linear == pytest.approx([100.0, 0.0, 100.0], rel=1e-2)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_likelihood_is_where_all_scores_say_whatever_the_prior_is(noise):
    rng = np.random.default_rng(0)
    root, error = rng.normal(size=(2, 3, 3))
    H, S, peak = root @ root.T + np.eye(3), error @ error.T + np.eye(3), rng.normal(size=3)
    wide = of_scores(H, S, peak, noise)
    narrow = of_scores(H, S, peak, noise, NormalPrior(np.ones(3), np.diag([5.0, 1.0, 2.0])))
    precision = H @ np.linalg.inv(learnt_variance(H) + noise * S) @ H
    for found in (wide, narrow):
        assert found.precision == pytest.approx(precision)
        assert found.linear == pytest.approx(precision @ peak)


def learnt_variance(H):
    """Variance of scores before any round has measured it: the curvature, or a little less."""
    return first_state(np.zeros(3), np.negative, 100.0).learnt.variance_share.mean * H


def test_exact_scores_count_more_than_noisy_ones():
    def first_is_noisy(learnt):
        one, other = learnt.scored
        return learnt._replace(scored=(one._replace(score=one.score + 9, noise=1e6 * H), other))

    H, peak = 4.0 * np.eye(3), np.ones(3)
    found = of_scores(H, np.eye(3), peak, 1.0, change=first_is_noisy)
    assert np.linalg.solve(found.precision, found.linear) == pytest.approx(peak, abs=1e-3)


def test_scores_far_from_the_mode_count_less_where_they_may_bend():
    H, peak = 40.0 * np.eye(3), np.ones(3)

    def bent(learnt):  # it is half as large as it would be if it fell linearly
        far, near = learnt.scored
        return learnt._replace(scored=(far._replace(score=far.score / 2), near))

    def found(number):
        scores = {"points": (-4.0, 1.1), "change": bent, "number": number}
        of_likelihood = of_scores(H, np.eye(3), peak, 1.0, **scores)
        return np.linalg.solve(of_likelihood.precision, of_likelihood.linear)

    assert abs(found(number=100.0) - peak).max() < 0.05
    assert abs(found(number=1e9) - peak).min() > 1


def test_the_scale_of_outcomes_is_taken_from_the_mode():
    H, peak = 4.0 * np.eye(3), np.ones(3)
    scale = OutcomeScale(2, np.array([True, True, False]), slope=1.0, outcomes=1)

    def elsewhere(learnt):
        mean, covariance = np.array([1.0, 1.0, 5.0]), 0.5 * np.eye(3)
        mode = learnt.mode._replace(mean=mean, covariance=covariance)
        return learnt._replace(mode=mode, reported=learnt.reported._replace(mean=mean))

    found = of_scores(H, np.eye(3), peak, 1.0, change=elsewhere, scale=scale)
    assert np.linalg.solve(found.precision, found.linear) == pytest.approx([1.0, 1.0, 5.0])
    # the curvature is 4, and the error of the mode .5
    variance = learnt_variance(H)[2, 2] / 16 + 0.5
    assert found.precision[2, 2] == pytest.approx(1 / variance)


def test_the_likelihood_lies_where_the_mean_does_and_is_as_wide():
    prior, H = NormalPrior(np.zeros(3), 50 * np.eye(3)), 100 * np.eye(3)

    def beyond(learnt):
        own = learnt.reported
        return learnt._replace(reported=own._replace(mean=own.mean + 0.5, curvature_left=0.5))

    found = of_scores(H, NEXT_TO_NOTHING, np.ones(3), 0.0, prior, change=beyond)
    peak = np.linalg.solve(found.precision, found.linear)
    assert peak == pytest.approx(np.full(3, 1.5), rel=1e-3)
    assert found.precision == pytest.approx(50 * np.eye(3), rel=1e-2)
