"""A private posterior is as wide as the records and the privacy noise together make it."""

import dataclasses
import functools
import json
import math
from functools import partial

import numpy as np
import pymc as pm
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import binom, chi2

import pymc_dp
import pymc_dp.testing
from benchmarks.calibration.cell import Cell, fits
from pymc_dp.contributions.curvature import At, curves
from pymc_dp.contributions.lengths import BINS, EDGES, Histogram
from pymc_dp.fit import run
from pymc_dp.methods.blocks.exponential import BETA, DIRICHLET, GAMMA, NORMAL
from pymc_dp.methods.blocks.noise_aware import Told, draw
from pymc_dp.methods.newton import LENGTHS, NEWTON
from pymc_dp.methods.newton_step import RELEASES, STEEPER
from pymc_dp.prepare import compile_prepared, prepare
from pymc_dp.query import Noisy
from pymc_dp.records import separate
from pymc_dp.wall import PrivacyWall

pytestmark = pytest.mark.usefixtures("fixed_keys")

ALPHA = 1e-6
ROWS = 2000
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
QUIETLY = {"progressbar": False, "backend": "python", "random_seed": 1}
AWARE = ("dp_advi", "dp_fullrank_advi", "vips", "dp_sep")


def design(rows=ROWS):
    rng = np.random.default_rng(11)
    return np.column_stack([rng.normal(size=(rows, 2)), np.ones(rows)])


TRUTH = np.array([0.8, -0.5, 0.2])
PRIOR_SD = 2.0


def linear_outcomes(rows=ROWS):
    return np.random.default_rng(12).normal(design(rows) @ TRUTH, 1.0)


def logistic_outcomes(rows=ROWS):
    return np.random.default_rng(13).binomial(1, expit(design(rows) @ TRUTH))


@functools.cache
def linear(rows=ROWS):
    with pm.Model() as model:
        b = pm.Normal("b", 0, PRIOR_SD, shape=3)
        pm.Normal("y", pm.Data("X", design(rows)) @ b, 1.0, observed=linear_outcomes(rows))
    return model


@functools.cache
def logistic(rows=ROWS):
    with pm.Model() as model:
        b = pm.Normal("b", 0, PRIOR_SD, shape=3)
        psi = pm.Data("X", design(rows)) @ b
        pm.Bernoulli("y", logit_p=psi, observed=logistic_outcomes(rows))
    return model


@functools.cache
def coin(rows=1000):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Bernoulli("y", p, observed=np.arange(rows) % 10 < 3)
    return model


def exact_linear():
    """Posterior mean and covariance."""
    X = design()
    covariance = np.linalg.inv(X.T @ X + np.eye(3) / PRIOR_SD**2)
    return covariance @ X.T @ linear_outcomes(), covariance


def laplace_logistic():
    """The posterior's mode, and the inverse of its curvature there."""
    X, y = design(), logistic_outcomes()

    def loss(b):
        return np.logaddexp(0, X @ b).sum() - y @ X @ b + b @ b / (2 * PRIOR_SD**2)

    def slope(b):
        return X.T @ (expit(X @ b) - y) + b / PRIOR_SD**2

    mode = minimize(loss, np.zeros(3), jac=slope, tol=1e-12, options={"gtol": 1e-9}).x
    p = expit(X @ mode)
    return mode, np.linalg.inv((X.T * (p * (1 - p))) @ X + np.eye(3) / PRIOR_SD**2)


# --- the last steps ------------------------------------------------------------------------------


@functools.cache
def ready(build, method="dp_advi", **terms):
    """Settle a fit and compile it, for many runs."""
    prepared = prepare(build(), method, None, **{**BUDGET, **terms})
    return prepared, compile_prepared(prepared, "python")


def newton_steps(build, start, steps, sd=0.0):
    """Take Newton steps of all records, none shortened, from a point of our own."""
    prepared, compiled = ready(build)
    method = prepared.method
    state = method.trials(np.random.default_rng(0))[-1]
    state = state._replace(at=At(np.asarray(start, float), 1e3, 1e5))
    batch = {name: column.take(np.arange(ROWS)) for name, column in prepared.columns.items()}
    contribution = compiled.contributions[NEWTON]
    for _ in range(steps):
        query = method.query(state, rng=np.random.default_rng(0))
        value = contribution.weighted_sum(
            contribution.prepare(batch, query.context), query.context, np.ones(ROWS)
        )
        state = compiled.update(state, query, Noisy(value, sd, 1.0))
    return state


CLOSED = {"linear": (linear, exact_linear), "logistic": (logistic, laplace_logistic)}


@pytest.mark.parametrize("name", CLOSED)
def test_newton_steps_without_noise_end_at_the_mode(name):
    build, answer = CLOSED[name]
    mode, covariance = answer()
    sd = np.sqrt(np.diag(covariance))
    end = newton_steps(build, mode + 3 * sd, steps=10)
    np.testing.assert_allclose((end.at.point - mode) / sd, 0.0, atol=1e-5)


@pytest.mark.parametrize("name", CLOSED)
def test_at_the_mode_they_stay_and_give_laplaces_covariance(name):
    build, answer = CLOSED[name]
    mode, covariance = answer()
    end = newton_steps(build, mode, steps=RELEASES)
    np.testing.assert_allclose(end.average.mean, mode, atol=1e-7)
    np.testing.assert_allclose(end.covariance, covariance, rtol=1e-5, atol=1e-9)
    np.testing.assert_array_equal(end.average.noise, 0.0)


def test_the_first_step_of_a_linear_regression_ends_at_its_posterior():
    mean, covariance = exact_linear()
    end = newton_steps(linear, mean + 0.3, steps=1)
    np.testing.assert_allclose(end.average.mean, mean, atol=1e-6)
    np.testing.assert_allclose(end.covariance, covariance, rtol=1e-6, atol=1e-10)


def test_the_noise_of_the_average_is_that_of_its_steps():
    """Three means of equal weights, each with noise V s^2 V."""
    mean, V = exact_linear()
    end = newton_steps(linear, mean, steps=3, sd=1e-3)
    claimed = 1e-6 * V @ V / 3
    np.testing.assert_allclose(end.average.noise, claimed, rtol=1e-3, atol=1e-14)


def test_a_step_is_no_longer_than_the_prior_allows():
    mean, _ = exact_linear()
    away = mean + 100.0
    end = newton_steps(linear, away, steps=1)
    assert np.sqrt(np.mean((end.at.point - away) ** 2)) == pytest.approx(PRIOR_SD, rel=1e-6)


def test_a_whole_fit_of_a_linear_regression_ends_near_its_posterior():
    """Shortened scores of symmetric outcomes cancel; those of others would leave a bias."""
    prepared, compiled = ready(linear)
    releases = [dataclasses.replace(r, noise_multiplier=0.0) for r in prepared.plan.releases]
    state = repeated(prepared, compiled, plan=dataclasses.replace(prepared.plan, releases=releases))
    mean, covariance = exact_linear()
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((state.average.mean - mean) / sd, 0.0, atol=0.35)
    np.testing.assert_allclose(np.sqrt(np.diag(state.covariance)) / sd, 1.0, atol=0.07)


def weights_of(name, X, z):
    """The curvature of a record's log likelihood in its predictor."""
    psi = X @ z
    return {
        "linear": np.full(len(psi), 1 / 0.7**2),
        "logistic": expit(psi) * expit(-psi),
        "poisson": np.exp(psi),
    }[name]


@pytest.mark.parametrize("name", ["linear", "logistic", "poisson"])
@pytest.mark.parametrize("at", [0.0, 0.7, -2.0])
def test_second_differences_are_the_analytic_curvature(name, at):
    X = design(30)
    with pm.Model() as model:
        psi = pm.Data("X", X) @ pm.Normal("b", shape=3)
        if name == "linear":
            pm.Normal("y", psi, 0.7, observed=linear_outcomes(30))
        elif name == "logistic":
            pm.Bernoulli("y", logit_p=psi, observed=logistic_outcomes(30))
        else:
            pm.Poisson("y", pm.math.exp(psi), observed=np.arange(30) % 4)
    records, columns = separate(model)
    batch = {leaf: column.take(np.arange(30)) for leaf, column in columns.items()}
    z = np.array([at, -at, 0.3])
    bent = curves(records, "python")(batch, z)
    analytic = np.einsum("n,ni,nj->nij", weights_of(name, X, z), X, X)
    found = np.array([bent.add_up(one) for one in np.eye(30)])
    np.testing.assert_allclose(found, analytic, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(bent.norms, np.linalg.norm(analytic, axis=(1, 2)), rtol=1e-5)


# --- the histogram that clip norms come from -----------------------------------------------------

a_count = st.floats(0, 1e6)
histograms = st.lists(a_count, min_size=BINS, max_size=BINS).map(np.array)
shares = st.floats(0, 0.999)


def properties(examples=200):
    return lambda f: seed(1)(settings(max_examples=examples, deadline=None, database=None)(f))


@properties()
@given(histograms, shares)
def test_above_the_norm_there_is_at_most_the_share(counts, share):
    norm = Histogram(counts, 0.0, 2.0).above(share)
    place = np.flatnonzero(norm == 2.0 * EDGES)
    assert place.size == 1
    if norm < 2.0 * EDGES[-1]:  # beyond the last edge there is no more to tell
        beyond = counts[place[0] + 1 :].sum()
        assert beyond <= share * counts.sum() * (1 + 1e-9)


@properties()
@given(histograms, shares, shares)
def test_a_smaller_share_needs_a_larger_norm(counts, one, other):
    histogram = Histogram(counts, 0.0, 1.0)
    assert histogram.above(min(one, other)) >= histogram.above(max(one, other))


@properties()
@given(histograms, st.floats(0.01, 100), st.floats(0.01, 100))
def test_what_is_kept_is_a_share_that_grows_with_the_norm(counts, one, other):
    histogram = Histogram(counts, 0.0, 1.0)
    less, more = histogram.kept(min(one, other)), histogram.kept(max(one, other))
    assert 0 < less <= more <= 1 + 1e-12
    assert histogram.kept(histogram.above(0.0)) == pytest.approx(1)


@pytest.mark.parametrize("shape", [0.5, 3.0, 30.0])
def test_what_is_kept_is_the_share_of_the_curvature_after_shortening(shape):
    norms = np.random.default_rng(0).gamma(shape, 1 / shape, 100_000)  # of curvatures
    roots = np.sqrt(norms)
    counts = np.bincount(np.searchsorted(EDGES, roots), minlength=BINS).astype(float)
    histogram = Histogram(counts, 0.0, 1.0)
    root = histogram.above(STEEPER)
    assert np.mean(roots > root) <= STEEPER
    kept = np.minimum(norms, root**2).sum() / norms.sum()
    assert histogram.kept(root) == pytest.approx(kept, abs=0.1)


def test_a_tail_of_noise_alone_is_taken_to_be_empty():
    """Each of the bins beyond the records is believed with a chance of Phi(-2.5)."""
    rng, repeats = np.random.default_rng(0), 2000
    counts = np.zeros(BINS)
    counts[4:7] = 500.0
    noisy = counts + rng.normal(0, 10.0, (repeats, BINS))
    wrong = sum(Histogram(row, 10.0, 1.0).above(0.0) > EDGES[6] for row in noisy)
    assert wrong <= binom.isf(ALPHA, repeats, (BINS - 7) * 0.00621)


# --- draws of conjugate blocks -------------------------------------------------------------------

ENTRIES, DRAWS = 200, 1000
LARGE = 1e5


def natural(*values):
    return tuple(np.full(ENTRIES, float(value)) for value in values)


def beta_case(sd=300.0):
    a, b = 0.3 * LARGE, 0.7 * LARGE
    plain = 0.3 * 0.7 / LARGE
    noise = sd**2 * (0.7**2 + 0.3**2) / LARGE**2
    return BETA, Told(natural(0, 0), natural(a, b), natural(sd**2, sd**2)), plain, noise


def gamma_case(sd=300.0):
    a, b = 2.0 * LARGE, LARGE
    plain = 2.0 / LARGE
    noise = (sd**2 + 2.0**2 * sd**2) / LARGE**2
    return GAMMA, Told(natural(0, 0), natural(a, b), natural(sd**2, sd**2)), plain, noise


def normal_case(sd=300.0):
    """At a known precision, in closed form: 1 / P + s^2 / P^2."""
    told = Told(natural(0.0, 1.0), natural(1.5 * LARGE, LARGE), natural(sd**2, 0.0))
    return NORMAL, told, 1 / (LARGE + 1), sd**2 / (LARGE + 1) ** 2


def noisy_precision_case(sd=300.0):
    """The score's noise is s^2 at the mean; that of the precision moves nothing to first order."""
    says = natural(1.5 * LARGE, LARGE)
    told = Told(natural(0.0, 0.0), says, natural(sd**2 + 1.5**2 * sd**2, sd**2))
    return NORMAL, told, 1 / LARGE, sd**2 / LARGE**2


def dirichlet_case(sd=300.0):
    p = np.array([0.5, 0.3, 0.2])
    rows = np.broadcast_to(p, (ENTRIES, 3))
    plain = p * (1 - p) / LARGE
    noise = sd**2 * ((1 - p) ** 2 + 2 * p**2) / LARGE**2
    told = Told((0.0 * rows,), (LARGE * rows,), (np.full(rows.shape, sd**2),))
    return DIRICHLET, told, plain, noise


CASES = [beta_case, gamma_case, normal_case, noisy_precision_case, dirichlet_case]


def check_variance(values, variance):
    """Compare the variance of many draws of equal entries, by a chi-square test."""
    freedom = values.shape[1] * (len(values) - 1)
    spread = ((values - values.mean(axis=0)) ** 2).sum(axis=(0, 1))
    # the closed forms leave out what is smaller by (300 / 1e5)
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], freedom)
    assert np.all(spread / variance >= low)
    assert np.all(spread / variance <= high)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_draws_are_as_wide_as_records_and_noise_together(case):
    family, told, plain, noise = case()
    values = draw(family, told, DRAWS, np.random.default_rng(5))
    check_variance(values, plain + noise)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_without_noise_on_what_was_released_they_are_the_posteriors(case):
    family, told, plain, _ = case()
    quiet = told._replace(variances=tuple(0 * v for v in told.variances))
    check_variance(draw(family, quiet, DRAWS, np.random.default_rng(5)), plain)


def leave_the_noise_out(told):
    return told._replace(variances=tuple(0 * v for v in told.variances))


def take_the_sd_for_the_variance(told):
    return told._replace(variances=tuple(v**0.5 for v in told.variances))


def noise_of_a_part(told):
    return told._replace(variances=tuple(0.95 * v for v in told.variances))


@pytest.mark.parametrize(
    "fault", [leave_the_noise_out, take_the_sd_for_the_variance, noise_of_a_part]
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_draws_with_too_little_noise_are_caught(case, fault):
    family, told, plain, noise = case()
    values = draw(family, fault(told), DRAWS, np.random.default_rng(5))
    with pytest.raises(AssertionError):
        check_variance(values, plain + noise)


def test_counts_that_the_noise_has_swallowed_are_drawn_inside_the_support():
    rng = np.random.default_rng(0)
    for family, width in ((BETA, 2), (GAMMA, 2), (NORMAL, 2), (DIRICHLET, 1)):
        says = tuple(np.full((4, 3), -50.0) for _ in range(width))
        variances = tuple(np.full((4, 3), 100.0) for _ in range(width))
        prior = tuple(np.full((4, 3), 1.0) for _ in range(width))
        values = draw(family, Told(prior, says, variances), 200, rng)
        assert np.isfinite(values).all()
        if family in (BETA, DIRICHLET):
            assert (values >= 0).all()
            assert (values <= 1).all()


# --- whole fits ----------------------------------------------------------------------------------


def fitted(model, method, **terms):
    return pymc_dp.fit(model=model, method=method, **{**BUDGET, **QUIETLY, **terms})


@pytest.mark.parametrize("method", AWARE)
def test_by_default_a_posterior_contains_the_noise(method):
    idata = fitted(logistic(), method, **({"n": 20} if "advi" in method else {}))
    assert json.loads(idata["privacy"].attrs["settings"])["noise_aware"] is True
    assert set(idata["noise_sd"].data_vars) == set(idata["posterior"].data_vars)
    assert idata["noise_sd"]["b"].shape == (3,)
    assert (idata["noise_sd"]["b"] > 0).all()


@pytest.mark.parametrize("method", AWARE)
def test_noise_aware_false_leaves_it_out(method):
    short = {"n": 20} if "advi" in method else {}
    idata = fitted(logistic(), method, noise_aware=False, draws=4000, **short)
    assert "noise_sd" not in idata.children
    assert json.loads(idata["privacy"].attrs["settings"])["noise_aware"] is False
    values = idata["posterior"]["b"].to_numpy()[0]
    check_variance(
        ((values - values.mean(axis=0)) / idata["fit"]["standard_deviation"].to_numpy())[:, None],
        np.ones(3),
    )


@pytest.mark.parametrize("method", ["vips", "dp_sep", "dp_advi"])
def test_the_posteriors_covariance_is_that_of_records_plus_that_of_noise(method):
    idata = fitted(linear(), method, draws=4000)
    fit, values = idata["fit"], idata["posterior"]["b"].to_numpy()[0]
    records, noise = fit["covariance_matrix"].to_numpy(), fit["noise_covariance"].to_numpy()
    assert np.linalg.eigvalsh(noise).min() > 0
    whitened = np.linalg.solve(np.linalg.cholesky(records + noise), (values - values.mean(0)).T).T
    check_variance(whitened[:, None], np.ones(3))
    with pytest.raises(AssertionError):  # of the records alone
        check_variance(
            np.linalg.solve(np.linalg.cholesky(records), (values - values.mean(0)).T).T[:, None],
            np.ones(3),
        )


def test_the_plain_posterior_of_a_block_does_not_depend_on_the_choice():
    with pymc_dp.testing.deterministic_noise(1):
        aware = fitted(coin(), "vips", draws=3000)
    with pymc_dp.testing.deterministic_noise(1):
        plain = fitted(coin(), "vips", draws=3000, noise_aware=False)
    np.testing.assert_array_equal(aware["fit"]["mean_vector"], plain["fit"]["mean_vector"])
    wide, narrow = (x["posterior"]["p"].to_numpy().var() for x in (aware, plain))
    assert wide > narrow
    assert float(aware["noise_sd"]["p"]) == pytest.approx((wide - narrow) ** 0.5, rel=0.5)


@pytest.mark.parametrize("method", AWARE)
def test_without_noise_there_is_nothing_to_be_aware_of(method):
    settings = {"epsilon": math.inf, "sampling": "full", "n": 6, "draws": 50}
    default = fitted(logistic(), method, **settings)
    assert "noise_sd" not in default.children
    declined = fitted(logistic(), method, noise_aware=False, **settings)
    np.testing.assert_array_equal(default["posterior"]["b"], declined["posterior"]["b"])
    assert default["privacy"].attrs["releases"] == 6


@pytest.mark.parametrize("method", AWARE)
@pytest.mark.parametrize("value", [1, 0, None, "yes", np.True_])
def test_noise_aware_is_true_or_false(method, value):
    with pytest.raises(TypeError, match="noise_aware=.* must be True or False"):
        prepare(logistic(), method, None, noise_aware=value, **BUDGET)


@pytest.mark.parametrize("method", ["sep", "dp_sgld", "dp_ops"])
def test_methods_that_do_not_know_their_noise_do_not_take_it(method):
    terms = {} if method == "sep" else BUDGET
    with pytest.raises(TypeError, match="unknown keyword"):
        prepare(linear(), method, None, noise_aware=True, **terms)


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"epsilon": 0.2},
        {"epsilon": 8.0},
        {"sampling": "full"},
        {"clip_norm": lambda t: 2.0 if t < 50 else 1.5},
        {"neighbours": "replace_one", "num_records": ROWS, "sampling": "fixed_size"},
        {"neighbours": "zero_out", "num_records": ROWS},
        {"accountant": "rdp"},
    ],
    ids=lambda terms: " ".join(terms) or "defaults",
)
def test_the_last_steps_share_the_plan(terms):
    if "fixed_size" in terms.values():
        terms = terms | {"accountant": "rdp"}
    plan = prepare(logistic(), "dp_advi", None, **{**BUDGET, **terms}).plan
    asked = (BUDGET | terms)["epsilon"]
    assert 0.98 * asked < plan.epsilon() <= asked
    assert [r.name for r in plan.releases][-2:] == [LENGTHS, NEWTON]
    assert plan.total == 200
    [counted, newton] = plan.releases[-2:]
    assert (counted.sampling, counted.sample_rate, counted.clip_norm) == ("full", 1.0, 1.0)
    assert (newton.sampling, newton.sample_rate, newton.count) == ("full", 1.0, RELEASES)


def test_a_fit_makes_the_planned_releases_and_no_more():
    idata = fitted(linear(), "dp_advi", n=20)
    attrs = idata["privacy"].attrs
    assert attrs["releases"] == attrs["releases_made"] == 20
    assert attrs["epsilon"] <= 1


def test_units_of_several_records_end_with_the_same_steps():
    with pm.Model() as model:
        pm.Data("person", np.arange(ROWS) // 4)
        b = pm.Normal("b", 0, PRIOR_SD, shape=3)
        pm.Normal("y", pm.Data("X", design()) @ b, 1.0, observed=linear_outcomes())
    idata = fitted(model, "dp_advi", n=10, unit="person", clip_norm=4.0, epsilon=4.0)
    mean, _ = exact_linear()
    assert (idata["noise_sd"]["b"] > 0).all()
    np.testing.assert_allclose(idata["fit"]["mean_vector"], mean, atol=0.3)


def test_a_flat_prior_leaves_the_last_steps_their_curvature():
    with pm.Model() as model:
        b = pm.Flat("b", shape=3)
        pm.Normal("y", pm.Data("X", design()) @ b, 1.0, observed=linear_outcomes())
    idata = fitted(model, "dp_advi", n=10, epsilon=4.0)
    np.testing.assert_allclose(idata["fit"]["mean_vector"], exact_linear()[0], atol=0.3)


# --- what is claimed about the noise, against many fits of the same data -------------------------


def repeated(prepared, compiled, number=1, plan=None):
    """Fit the same data again, with the same public draws and fresh noise."""
    method, plan = prepared.method, plan or prepared.plan
    wall = PrivacyWall(prepared.columns, compiled.contributions, plan)
    rng = np.random.default_rng(number)
    ask = partial(method.query, rng=rng)
    return run(wall, method.init(rng), ask, compiled.update, range(plan.total))[-1]


def check_noise(means, claimed):
    """The whitened deviations of many means have unit variance, by a chi-square test."""
    means = np.array(means)
    deviations = means - means.mean(axis=0)
    size = np.einsum("ni,ij,nj->", deviations, np.linalg.inv(claimed), deviations)
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], deviations.shape[1] * (len(means) - 1))
    assert low <= size <= high, "claimed and found variance differ"


def means_and_noise(build, method, repeats=200, **terms):
    prepared, compiled = ready(build, method, **terms)
    states = [repeated(prepared, compiled, k) for k in range(repeats)]
    noise = np.mean([state.average.noise for state in states], axis=0)
    return [state.average.mean for state in states], noise


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("build", "method"),
    [
        (linear, "vips"),
        (logistic, "vips"),
        (linear, "dp_sep"),
        pytest.param(logistic, "dp_sep", marks=SLOW),
        pytest.param(linear, "dp_advi", marks=SLOW),
        pytest.param(logistic, "dp_advi", marks=SLOW),
    ],
)
def test_the_noise_on_the_mean_is_what_is_claimed(build, method):
    means, noise = means_and_noise(build, method)
    check_noise(means, noise)
    for fault in (noise / 2, 2 * noise):
        with pytest.raises(AssertionError):
            check_noise(means, fault)


def with_unknown_precision():
    with pm.Model() as model:
        b = pm.Normal("b", 0, PRIOR_SD, shape=3)
        mean = pm.Data("X", design()) @ b
        pm.Normal("y", mean, tau=pm.Gamma("tau", 2, 1), observed=linear_outcomes())
    return model


@pytest.mark.parametrize("method", ["vips", "dp_sep"])
def test_the_noise_on_a_noise_precision_is_what_draws_contain(method):
    prepared, compiled = ready(with_unknown_precision, method)
    states = [repeated(prepared, compiled, k) for k in range(200)]
    means = [(a + 1) / b for a, b in (state.gammas["tau"] for state in states)]
    aware, plain = prepared.method.noise_aware, prepared.method.posterior
    variances = [
        np.mean([np.var(draw(state, 500, np.random.default_rng(1))["tau"]) for state in states])
        for draw in (aware, plain)
    ]
    claimed = np.array([[variances[0] - variances[1]]])
    check_noise(np.reshape(means, (-1, 1)), claimed)
    for fault in (claimed / 2, 2 * claimed):
        with pytest.raises(AssertionError):
            check_noise(np.reshape(means, (-1, 1)), fault)


def test_the_noise_on_a_coin_is_what_is_claimed():
    prepared, compiled = ready(coin, "vips")
    rng, found = np.random.default_rng(0), []
    for k in range(300):
        state = repeated(prepared, compiled, k)
        found.append(state.asked.posterior["p"])
    a, b = np.array([[float(x) + 1 for x in eta] for eta in found]).T
    variance = float(state.variances["p"][0])
    p, n = np.mean(a / (a + b)), np.mean(a + b)
    claimed = np.array([[variance * ((1 - p) ** 2 + p**2) / n**2]])
    check_noise((a / (a + b))[:, None], claimed)
    drawn = prepared.method.noise_aware(state, 4000, rng)["p"]
    plain = p * (1 - p) / n
    assert np.var(drawn) == pytest.approx(plain + claimed[0, 0], rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["linear", "logistic"])
@pytest.mark.parametrize("method", ["vips", "dp_advi"])
def test_intervals_hold_the_truth_as_often_as_they_say(problem, method):
    found = fits(Cell(problem, method, True, 1.0, 2000), 200)
    assert 0.85 <= found.coverage <= 0.95
    plain = fits(Cell(problem, method, False, 1.0, 2000), 200)
    assert abs(plain.coverage - 0.9) > abs(found.coverage - 0.9)
