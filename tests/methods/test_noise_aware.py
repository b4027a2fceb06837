"""A private posterior is as wide as the records and the privacy noise together make it."""

import functools
import json
import math
from functools import partial

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit
from scipy.stats import binom, chi2

import pymc_dp
import pymc_dp.testing
from benchmarks.truth.cell import private_fits
from benchmarks.truth.problems import PROBLEMS
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.result import released_groups
from pymc_dp.driver.run import compile_method, run, run_releases
from pymc_dp.engine import posterior
from pymc_dp.methods.conjugate import BETA, DIRICHLET, GAMMA, NORMAL, NoisyBlock, draw
from pymc_dp.methods.method import Staged
from pymc_dp.privacy.wall import PrivacyWall
from tests import zoo

ALPHA = 1e-6
ROWS = 2000
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
QUIETLY = {"progressbar": False, "backend": "python", "random_seed": 1}
OWN_UPDATES = {"vips": "absolute", "dp_sep": "damped"}  # ``form=``, where rounds are the default
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
    return zoo.line(design(rows), linear_outcomes(rows), prior_sd=PRIOR_SD)


@functools.cache
def logistic(rows=ROWS):
    return zoo.odds(design(rows), logistic_outcomes(rows), prior_sd=PRIOR_SD)


@functools.cache
def ready(build, method="dp_advi", **terms):
    """Settle a fit and compile it, for many runs."""
    prepared = set_up(build(), method, None, **{**BUDGET, **terms})
    return prepared, compile_method(prepared, "python")


# --- draws of conjugate blocks -------------------------------------------------------------------

ENTRIES, DRAWS = 200, 1000
LARGE = 1e5


def natural(*values):
    return tuple(np.full(ENTRIES, float(value)) for value in values)


def beta_case(sd=300.0):
    a, b = 0.3 * LARGE, 0.7 * LARGE
    plain = 0.3 * 0.7 / LARGE
    noise = sd**2 * (0.7**2 + 0.3**2) / LARGE**2
    return BETA, NoisyBlock(natural(0, 0), natural(a, b), natural(sd**2, sd**2)), plain, noise


def gamma_case(sd=300.0):
    a, b = 2.0 * LARGE, LARGE
    plain = 2.0 / LARGE
    noise = (sd**2 + 2.0**2 * sd**2) / LARGE**2
    return GAMMA, NoisyBlock(natural(0, 0), natural(a, b), natural(sd**2, sd**2)), plain, noise


def normal_case(sd=300.0):
    """At a known precision, in closed form: 1 / P + s^2 / P^2."""
    told = NoisyBlock(natural(0.0, 1.0), natural(1.5 * LARGE, LARGE), natural(sd**2, 0.0))
    return NORMAL, told, 1 / (LARGE + 1), sd**2 / (LARGE + 1) ** 2


def dirichlet_case(sd=300.0):
    p = np.array([0.5, 0.3, 0.2])
    rows = np.broadcast_to(p, (ENTRIES, 3))
    plain = p * (1 - p) / LARGE
    noise = sd**2 * ((1 - p) ** 2 + 2 * p**2) / LARGE**2
    told = NoisyBlock((0.0 * rows,), (LARGE * rows,), (np.full(rows.shape, sd**2),))
    return DIRICHLET, told, plain, noise


CASES = [beta_case, gamma_case, normal_case, dirichlet_case]


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
def test_five_percent_too_little_noise_is_caught(case):
    family, told, plain, noise = case()
    short = told._replace(variances=tuple(0.95 * v for v in told.variances))
    values = draw(family, short, DRAWS, np.random.default_rng(5))
    with pytest.raises(AssertionError):
        check_variance(values, plain + noise)


def test_counts_that_the_noise_has_swallowed_are_drawn_inside_the_support():
    rng = np.random.default_rng(0)
    for family, width in ((BETA, 2), (GAMMA, 2), (NORMAL, 2), (DIRICHLET, 1)):
        says = tuple(np.full((4, 3), -50.0) for _ in range(width))
        variances = tuple(np.full((4, 3), 100.0) for _ in range(width))
        prior = tuple(np.full((4, 3), 1.0) for _ in range(width))
        values = draw(family, NoisyBlock(prior, says, variances), 200, rng)
        assert np.isfinite(values).all()
        if family in (BETA, DIRICHLET):
            assert (values >= 0).all()
            assert (values <= 1).all()


# --- whole fits ----------------------------------------------------------------------------------


def fitted(model, method, **terms):
    return pymc_dp.fit(model=model, method=method, **{**BUDGET, **QUIETLY, **terms})


def test_the_noise_of_a_mean_is_how_far_means_are_from_each_other():
    means, noise = [], []
    prepared, compiled = ready(linear)
    for seed in range(20):
        with pymc_dp.testing.deterministic_noise(seed):
            states, _ = run_releases(prepared, compiled, np.random.default_rng(0), range(14))
        made = prepared.records, prepared.method, states, 500, np.random.default_rng(1)
        group = released_groups(*made)
        means.append(group["posterior"]["b"].mean(("chain", "draw")))
        noise.append(group["noise_sd"]["b"])
    squares = ((np.array(means) - np.mean(means, axis=0)) / np.mean(noise, axis=0)) ** 2
    # the noise counts what is not known of curvatures, too
    assert chi2.ppf(ALPHA, 3 * 19) / 2 < squares.sum() < chi2.isf(ALPHA, 3 * 19)


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
    idata = fitted(linear(), method, draws=40_000)
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


def share_of_records(model, name, **terms):
    """Return the posterior's variance without that of the noise, in median over few fits."""
    found = []
    for seed in range(3):
        with pymc_dp.testing.deterministic_noise(seed):
            idata = fitted(model, "dp_advi", draws=2000, **terms)
        found.append(idata["posterior"][name].var() - idata["noise_sd"][name] ** 2)
    return float(np.median(found))


def waiting_times():
    times = np.random.default_rng(15).exponential(0.5, ROWS)
    with pm.Model() as model:
        pm.Exponential("y", pm.Gamma("rate", 2, 1), observed=times)
    rate = (2 + ROWS) / (1 + times.sum())
    return model, "rate", rate**2 / (2 + ROWS)


def defects(rows=ROWS, seed=16):
    counts = np.random.default_rng(seed).poisson(0.4, rows)
    with pm.Model() as model:
        pm.Poisson("y", pm.Gamma("rate", 2, 1), observed=counts)
    return model, "rate", (2 + counts.sum()) / (1 + rows) ** 2


# at epsilon 1 noise adds too little to the variance of defects for the fault to show
@pytest.mark.parametrize(("records", "epsilon"), [(waiting_times, 1.0), (defects, 0.5)])
def test_what_the_noise_does_not_add_is_the_variance_without_privacy(records, epsilon, monkeypatch):
    model, name, exact = records()
    assert share_of_records(model, name, epsilon=epsilon) == pytest.approx(exact, rel=0.15)
    # as if there were no noise
    monkeypatch.setattr(posterior, "draws_without_noise", lambda points, _: points)
    assert share_of_records(model, name, epsilon=epsilon) != pytest.approx(exact, rel=0.15)


@pytest.mark.parametrize("method", ["vips", "dp_sep"])
def test_without_noise_there_is_nothing_to_be_aware_of(method):
    settings = {"epsilon": math.inf, "sampling": "full", "n": 6, "draws": 50}
    default = fitted(logistic(), method, **settings)
    assert "noise_sd" not in default.children
    declined = fitted(logistic(), method, noise_aware=False, **settings)
    np.testing.assert_array_equal(default["posterior"]["b"], declined["posterior"]["b"])
    assert default["privacy"].attrs["releases"] == 6


# --- what is claimed about the noise, against many fits of the same data -------------------------


def repeated(prepared, compiled, number=1, plan=None):
    """Fit the same data again, with the same public draws and fresh noise."""
    method, plan = prepared.method, plan or prepared.plan
    wall = PrivacyWall(prepared.data, compiled.contributions, plan)
    rng = np.random.default_rng(number)
    ask = partial(method.query, rng=rng)
    last = run(wall.release, [method.init(rng)], ask, compiled.update, range(plan.total))[-1]
    return last.state if isinstance(last, Staged) else last


def check_noise(means, claimed):
    """The whitened deviations of many means have unit variance, by a chi-square test."""
    means = np.array(means)
    deviations = means - means.mean(axis=0)
    size = np.einsum("ni,ij,nj->", deviations, np.linalg.inv(claimed), deviations)
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], deviations.shape[1] * (len(means) - 1))
    assert low <= size <= high, "claimed and found variance differ"


def means_and_noise(build, method, repeats=100, **terms):
    prepared, compiled = ready(build, method, form=OWN_UPDATES[method], **terms)
    states = [repeated(prepared, compiled, k) for k in range(repeats)]
    found = [prepared.method.describe(state) for state in states]
    noise = np.mean([fit["noise_covariance"] for fit in found], axis=0)
    return [fit["mean_vector"].to_numpy() for fit in found], noise


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("build", "method"),
    [
        (linear, "vips"),
        (linear, "dp_sep"),
        pytest.param(logistic, "dp_sep", marks=SLOW),
    ],
)
def test_the_noise_on_the_mean_is_what_is_claimed(build, method):
    means, noise = means_and_noise(build, method)
    check_noise(means, noise)
    for fault in (noise / 2, 2 * noise):
        with pytest.raises(AssertionError):
            check_noise(means, fault)


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["iid-linear", "iid-logistic"])
@pytest.mark.parametrize("method", ["vips", "dp_advi"])
def test_intervals_hold_the_truth_as_often_as_they_say(problem, method):
    def coverage(**options):
        fits = private_fits(PROBLEMS[problem], method, 1.0, list(range(200)), **options)
        low, truth, high = np.moveaxis([(f.low, f.truth, f.high) for f in fits], 1, 0)
        return np.mean((low <= truth) & (truth <= high))

    found = coverage()
    assert 0.85 <= found <= 0.95
    assert abs(coverage(noise_aware=False) - 0.9) > abs(found - 0.9)


def schools():
    """Effects of twelve schools about a common mean, of which no record tells by itself."""
    rng = np.random.default_rng(21)
    school = rng.integers(0, 12, 3000)
    effects = rng.normal(0.5, 0.6, 12)
    with pm.Model() as model:
        mean, spread = pm.Normal("mean", 0, 2), pm.HalfNormal("spread", 1)
        effect = pm.Normal("effect", mean, spread, shape=12)
        pm.Normal("y", effect[pm.Data("school", school)], 1.0, observed=rng.normal(effects[school]))
    return model


def test_no_latent_of_groups_is_said_to_have_no_noise():
    with pymc_dp.testing.deterministic_noise(0):
        noise = fitted(schools(), "dp_advi", draws=300)["noise_sd"]
    for name in ("mean", "effect"):
        assert (noise[name] > 0).all()


@pytest.mark.slow
def test_few_records_are_not_taken_for_many():
    """Eighty values, whose number the noise on its count hides."""
    y = np.random.default_rng(22).normal(3, 1, 80)
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0, 10), pm.HalfNormal("s", 5)
        pm.Normal("y", mu, s, observed=y)
    prepared, compiled = ready(lambda: model)
    off = 0
    for seed in range(20):
        with pymc_dp.testing.deterministic_noise(seed):
            states, _ = run_releases(prepared, compiled, np.random.default_rng(0), range(14))
        made = prepared.records, prepared.method, states, 500, np.random.default_rng(1)
        group = released_groups(*made)
        off += any(is_off(group["posterior"][name], truth) for name, truth in (("mu", 3), ("s", 1)))
    assert off <= binom.isf(ALPHA, 20, 0.05)


def is_off(draws, truth):
    """Whether a 90% interval and two standard deviations exclude the truth."""
    inside = draws.quantile(0.05) <= truth <= draws.quantile(0.95)
    return not inside and abs(draws.mean() - truth) > 2 * draws.std()
