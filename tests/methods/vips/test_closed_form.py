"""Closed-form updates without noise are exact Bayes, or variational Bayes written out in NumPy.

Private fits release sums where all records' statistics have one norm; rounds fit all others.
"""

import functools
import math

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import digamma, expit

import pymc_dp
from pymc_dp.driver.fit import set_up
from pymc_dp.testing import deterministic_noise
from tests.zoo import build as model_of

N = 120
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 2))
GROUP = RNG.integers(0, 3, N)
OFFSET = RNG.normal(size=N)
ONES = np.ones((N, 1))
IN_GROUP = np.eye(3)[GROUP]
PSI = 0.3 + X @ [1.0, -0.5]
Y = PSI + RNG.normal(size=N)
YES = (RNG.random(N) < expit(PSI)).astype(int)
TRIALS = RNG.integers(1, 9, N)
SUCCESSES = RNG.binomial(TRIALS, expit(PSI))
COUNTS = RNG.poisson(3.0, N)
EXPOSURE = RNG.uniform(0.5, 2.0, N)
WAITS = RNG.exponential(0.5, N)
CATEGORY = RNG.integers(0, 4, N)
VOTES = RNG.multinomial(5, [0.2, 0.3, 0.5], N)
TWO_BUMPS = np.where(RNG.random(N) < 0.3, -3.0, 2.0) + RNG.normal(size=N)
A = ["a", "b[0]", "b[1]"]
WITH_ONES = np.column_stack([ONES, X])
NOISELESS = {
    "method": "vips",
    "epsilon": math.inf,
    "clip_norm": math.inf,
    "sampling": "full",
    "random_seed": 1,
    "progressbar": False,
    "backend": "python",
    "draws": 5,
}


@functools.cache
def fitted(build, **settings):
    """Fit without noise and clipping; every release replaces what is known from those before."""
    model = model_of(build)
    settings = {"kappa": 0.0, **settings}
    return pymc_dp.fit(model=model, **{**NOISELESS, **settings})


def parameters(idata, name):
    """Read the usual parameters of a block: a result shows the coefficients of log densities."""
    fit = idata["fit"]
    shape = fit[f"{name}.log_coefficient"].values + 1
    if f"{name}.rate" in fit:
        return shape, fit[f"{name}.rate"].values
    if f"{name}.log_complement_coefficient" in fit:
        return shape, fit[f"{name}.log_complement_coefficient"].values + 1
    return (shape,)


def coefficients(sd=2.0):
    return pm.Normal("a", 0, sd), pm.Normal("b", 0, sd, shape=2)


def gaussian(idata, names):
    """Return where the fit ended, and its covariance, in the order of ``names``."""
    last = idata["fit_stats"]["mean_path"].isel(release=-1).sel(gaussian=names)
    covariance = idata["fit"]["covariance_matrix"].sel(gaussian=names, gaussian_=names)
    return last.values, covariance.values


def same_to(tolerance, got, expected):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 10)


def linear():
    a, b = coefficients()
    pm.Normal("y", a + X @ b, 0.8, observed=Y)


def exact(design, y, sigma, prior_precision, prior_mean=0.0):
    precision = design.T @ design / sigma**2 + prior_precision
    prior_mean = np.broadcast_to(prior_mean, len(precision))
    covariance = np.linalg.inv(precision)
    return covariance @ (design.T @ y / sigma**2 + prior_precision @ prior_mean), covariance


LINEAR = exact(WITH_ONES, Y, 0.8, np.eye(3) / 4)


def hierarchical():
    mu = pm.Normal("mu", 1.0, 2.0)
    theta = pm.Normal("theta", mu, 0.5, shape=3)
    pm.Normal("y", theta[GROUP], 0.8, observed=Y)


THETA = ["mu", "theta[0]", "theta[1]", "theta[2]"]
# rows: theta_g - mu with precision 4, and mu - 1 with precision 1/4
APART = np.column_stack([-np.ones(3), np.eye(3)])
HIERARCHY = 4 * APART.T @ APART + np.diag([0.25, 0, 0, 0])
HIERARCHICAL = exact(np.column_stack([0 * ONES, IN_GROUP]), Y, 0.8, HIERARCHY, 1.0)
CORRELATED = np.array([[1.0, 0.6], [0.6, 2.0]])


EXACT = [
    (linear, A, LINEAR),
    (hierarchical, THETA, HIERARCHICAL),
]


@pytest.mark.parametrize(("build", "names", "expected"), EXACT)
def test_a_gaussian_posterior_is_exact(build, names, expected):
    same_to(1e-8, gaussian(fitted(build, n=5), names), expected)


def correlated_prior_and_faint_data():
    b = pm.MvNormal("b", np.array([1.0, -1.0]), CORRELATED)
    pm.Normal("y", X @ b, 30.0, observed=Y)


def test_draws_are_from_the_joint_gaussian():
    draws = fitted(correlated_prior_and_faint_data, draws=4000)["posterior"]["b"].values[0]
    mean, covariance = exact(X, Y, 30.0, np.linalg.inv(CORRELATED), [1.0, -1.0])
    assert covariance[0, 1] > 0.3 * np.sqrt(covariance[0, 0] * covariance[1, 1])
    standard = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    np.testing.assert_allclose(standard.mean(axis=1), 0, atol=6 / 4000**0.5)
    np.testing.assert_allclose(np.cov(standard), np.eye(2), atol=9 / 4000**0.5)


def hierarchical_with_precisions():
    mu = pm.Normal("mu", 1.0, 2.0)
    between, within = pm.Gamma("between", 2.0, 1.0), pm.Gamma("within", 3.0, 2.0)
    theta = pm.Normal("theta", mu, tau=between, shape=3)
    pm.Normal("y", theta[GROUP], tau=within, observed=Y)


def vb_hierarchical():
    design = np.column_stack([0 * ONES, IN_GROUP])
    between = within = 1.0
    for _ in range(2000):
        prior = between * APART.T @ APART + np.diag([0.25, 0, 0, 0])
        covariance = np.linalg.inv(within * design.T @ design + prior)
        mean = covariance @ (within * design.T @ Y + prior @ np.ones(4))
        spread = ((APART @ mean) ** 2).sum() + np.trace(APART @ covariance @ APART.T)
        squares = ((Y - design @ mean) ** 2).sum() + np.trace(design @ covariance @ design.T)
        of_between = 2 + 3 / 2, 1 + spread / 2
        of_within = 3 + N / 2, 2 + squares / 2
        between, within = of_between[0] / of_between[1], of_within[0] / of_within[1]
    return mean, covariance, *of_between, *of_within


def test_a_hierarchy_with_unknown_precisions_is_that_of_variational_bayes():
    idata = fitted(hierarchical_with_precisions)
    got = *gaussian(idata, THETA), *parameters(idata, "between"), *parameters(idata, "within")
    same_to(1e-8, got, vb_hierarchical())


def logistic():
    a, b = coefficients()
    pm.Bernoulli("y", logit_p=a + X @ b, observed=YES)


def logistic_with_offset():
    a, b = coefficients()
    pm.Bernoulli("y", logit_p=pm.Data("offset", OFFSET) + a + X @ b, observed=YES)


def binomial_logit():
    a, b = coefficients()
    pm.Binomial("y", pm.Data("trials", TRIALS), logit_p=a + X @ b, observed=SUCCESSES)


def negative_binomial():
    a, b = coefficients()
    pm.NegativeBinomial("y", n=4, p=pm.math.sigmoid(-(a + X @ b)), observed=COUNTS)


def polya_gamma(design, kappa, trials, offset=0.0, prior_precision=0.25, start=None):
    """Variational Bayes with Pólya-Gamma variables of shape ``trials``; Polson et al. 2013."""
    d = design.shape[1]
    mean, covariance = np.zeros(d), np.zeros((d, d)) if start is None else start
    prior = prior_precision * np.eye(d) if np.ndim(prior_precision) < 2 else prior_precision
    for _ in range(500):
        psi = offset + design @ mean
        c = np.sqrt(psi**2 + ((design @ covariance) * design).sum(axis=1))
        omega = trials * np.tanh(c / 2) / (2 * c) if c.any() else trials / 4
        before, covariance = covariance, np.linalg.inv((design.T * omega) @ design + prior)
        mean = covariance @ (design.T @ (kappa - omega * offset))
        if np.abs(covariance - before).max() < 1e-15:
            break
    return mean, covariance


LOGISTIC = functools.partial(polya_gamma, WITH_ONES, YES - 0.5, np.ones(N))
NEGATIVE = functools.partial(polya_gamma, WITH_ONES, (COUNTS - 4) / 2, COUNTS + 4)
AUGMENTED = [
    (logistic, A, LOGISTIC),
    (logistic_with_offset, A, functools.partial(LOGISTIC, OFFSET)),
    (binomial_logit, A, functools.partial(polya_gamma, WITH_ONES, SUCCESSES - TRIALS / 2, TRIALS)),
    (negative_binomial, A, NEGATIVE),
]


@pytest.mark.parametrize(("build", "names", "reference"), AUGMENTED)
def test_a_logistic_likelihood_is_that_of_variational_bayes(build, names, reference):
    same_to(1e-6, gaussian(fitted(build), names), reference())


def test_small_batches_come_close():
    with deterministic_noise(1):
        settings = {"sampling": "poisson", "sample_rate": 0.2, "kappa": 0.7, "n": 400}
        idata = fitted(logistic, **settings)
    mean, covariance = LOGISTIC()
    got = idata["fit"]["mean_vector"].sel(gaussian=A).values
    np.testing.assert_array_less(np.abs(got - mean), 0.5 * np.sqrt(np.diag(covariance)))


def p(**kwargs):
    return pm.Beta("p", 2, 3, **kwargs)


def r(**kwargs):
    return pm.Gamma("r", 2.5, 1.5, **kwargs)


def bernoulli():
    pm.Bernoulli("y", p(), observed=YES)


def binomial_with_trials_by_record():
    pm.Binomial("y", pm.Data("trials", TRIALS), p(shape=3)[GROUP], observed=SUCCESSES)


def categorical_by_group():
    pm.Categorical("y", pm.Dirichlet("p", np.full((3, 4), 2.0))[GROUP], observed=CATEGORY)


def poisson():
    pm.Poisson("y", r(), observed=COUNTS)


def poisson_with_exposure_by_group():
    pm.Poisson("y", r(shape=3)[GROUP] * pm.Data("exposure", EXPOSURE), observed=COUNTS)


def exponential():
    pm.Exponential("y", r(), observed=WAITS)


def normal_of_known_mean():
    pm.Normal("y", 0.5, tau=r(), observed=Y)


def by_group(values):
    return IN_GROUP.T @ values


# prior parameters plus sums over records
TEXTBOOK = [
    (bernoulli, "p", (2 + YES.sum(), 3 + (1 - YES).sum())),
    (
        binomial_with_trials_by_record,
        "p",
        (2 + by_group(SUCCESSES), 3 + by_group(TRIALS - SUCCESSES)),
    ),
    (categorical_by_group, "p", (2 + by_group(np.eye(4)[CATEGORY]),)),
    (poisson, "r", (2.5 + COUNTS.sum(), 1.5 + N)),
    (poisson_with_exposure_by_group, "r", (2.5 + by_group(COUNTS), 1.5 + by_group(EXPOSURE))),
    (exponential, "r", (2.5 + N, 1.5 + WAITS.sum())),
    (normal_of_known_mean, "r", (2.5 + N / 2, 1.5 + ((Y - 0.5) ** 2).sum() / 2)),
]


@pytest.mark.parametrize(("build", "name", "expected"), TEXTBOOK)
def test_one_release_gives_the_textbooks_posterior(build, name, expected):
    idata = fitted(build)
    assert idata["privacy"].attrs["releases"] == 1
    for got, wanted in zip(parameters(idata, name), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-8)


def mixture():
    w = pm.Dirichlet("w", [2.0, 3.0])
    mu = pm.Normal("mu", 0.5, 3.0, shape=2, initval=[-1.0, 1.0])
    pm.NormalMixture("y", w, mu, tau=pm.Gamma("tau", 3.0, 2.0, shape=2), observed=TWO_BUMPS)


@functools.cache
def vb_mixture():
    y = TWO_BUMPS[:, None]
    alpha, shape, rate = np.array([2.0, 3.0]), np.full(2, 3.0), np.full(2, 2.0)
    mean, precision = np.array([-1.0, 1.0]), np.full(2, 10 / 9)
    for _ in range(1000):
        tau, log_tau = shape / rate, digamma(shape) - np.log(rate)
        log_w = digamma(alpha) - digamma(alpha.sum())
        logits = log_w + log_tau / 2 - tau / 2 * ((y - mean) ** 2 + 1 / precision)
        resp = np.exp(logits - logits.max(axis=1, keepdims=True))
        resp /= resp.sum(axis=1, keepdims=True)
        alpha = np.array([2.0, 3.0]) + resp.sum(axis=0)
        precision = 1 / 9 + tau * resp.sum(axis=0)
        mean = (0.5 / 9 + tau * (resp * y).sum(axis=0)) / precision
        shape = 3 + resp.sum(axis=0) / 2
        rate = 2 + (resp * ((y - mean) ** 2 + 1 / precision)).sum(axis=0) / 2
    return mean, precision**-0.5, alpha, shape, rate


def test_a_mixture_is_that_of_variational_bayes():
    idata = fitted(mixture, n=150)
    precision = idata["fit"]["mu.precision"].values
    mean = idata["fit"]["mu.precision_mean"].values / precision
    got = mean, precision**-0.5, *parameters(idata, "w"), *parameters(idata, "tau")
    same_to(1e-6, got, vb_mixture())


RATES, SHARES = np.array([2.0, 15.0]), np.array([[0.9, 0.8, 0.2], [0.1, 0.3, 0.7]])
COMPONENT = np.arange(600) % 3 == 0
CALLS = np.random.default_rng(3).poisson(RATES[COMPONENT.astype(int)])
ANSWERS = np.random.default_rng(4).random((600, 3)) < SHARES[COMPONENT.astype(int)]


def calls(**start):
    rates = pm.Gamma("x", 2, 0.2, shape=2, **start)
    pm.Mixture("y", pm.Dirichlet("w", np.ones(2)), pm.Poisson.dist(rates), observed=CALLS)


def latent_classes():
    of_classes = pm.math.log(pm.Dirichlet("w", np.ones(2)))
    p = pm.Beta("x", 1, 1, shape=(2, 3))
    answers = pm.Data("answers", ANSWERS.astype(float))[:, None]
    each = answers * pm.math.log(p) + (1 - answers) * pm.math.log1p(-p)
    pm.Potential("y", pm.math.logsumexp(of_classes + each.sum(axis=-1), axis=-1))


@pytest.mark.parametrize(
    ("build", "names", "truth"),
    [
        (calls, ["x"], RATES),
        (latent_classes, ["x"], SHARES[::-1]),
    ],
)
def test_components_without_gaussian_latents_start_apart(build, names, truth):
    posterior = fitted(build, n=30)["posterior"]
    means = np.concatenate([np.atleast_1d(posterior[x].mean(("chain", "draw"))) for x in names])
    in_order = means[np.argsort(means.reshape(2, -1)[:, 0])]
    np.testing.assert_allclose(in_order, truth, atol=0.1 * truth.max())


def test_their_initial_values_decide_which_is_which():
    for start in (RATES, RATES[::-1]):
        means = fitted(lambda start=start: calls(initval=start), n=30)["posterior"]["x"].mean(
            ("chain", "draw")
        )
        assert (np.argsort(means.values) == np.argsort(start)).all()


ROWS = 5000


def releases(build, **settings):
    return set_up(model_of(build), "vips", None, epsilon=1.0, delta=1e-5, **settings).plan.releases


def probability(**shape):
    return pm.Beta("p", 2, 3, **shape)


def shares(*rows):
    return pm.Dirichlet("p", np.full((*rows, 4), 2.0))


# model, and the norm of every record's statistics
OF_ONE_NORM = [
    (lambda: pm.Bernoulli("y", probability(), observed=YES), 1),
    (lambda: pm.Bernoulli("y", probability(shape=4), observed=np.resize(YES, (N, 4))), 2),
    (lambda: pm.Categorical("y", shares(3)[GROUP], observed=CATEGORY), 1),
]


@pytest.mark.parametrize(("build", "norm"), OF_ONE_NORM)
def test_successes_and_categories_are_counted_once_at_their_own_norm(build, norm):
    [release] = releases(build)
    assert release.clip_norm == pytest.approx(norm)
    assert (release.name, release.count) == ("statistics", 1)


OF_MANY_NORMS = {
    "trials": lambda: pm.Binomial("y", 8, probability(), observed=SUCCESSES),
    "votes": lambda: pm.Multinomial("y", 5, pm.Dirichlet("p", np.ones(3)), observed=VOTES),
    "counts": lambda: pm.Poisson("y", pm.Gamma("r", 2, 1), observed=COUNTS),
    "waiting times": lambda: pm.Exponential("y", pm.Gamma("r", 2, 1), observed=WAITS),
    "precision": lambda: pm.Normal("y", 0.5, tau=pm.Gamma("r", 2, 1), observed=Y),
}


@pytest.mark.parametrize("build", OF_MANY_NORMS.values(), ids=OF_MANY_NORMS)
def test_other_statistics_are_left_to_rounds(build):
    assert [r.name for r in releases(build)][:2] == ["score scales", "whitened scores"]
    [release] = releases(build, noise_aware=False)
    assert release.name == "statistics"


@pytest.mark.parametrize("option", [{"clip_norm": 2.0}, {"kappa": 0.5}, {"sample_rate": 1.0}])
def test_an_option_of_closed_form_updates_asks_for_them(option):
    [release] = releases(OF_MANY_NORMS["waiting times"], **option)
    assert release.name == "statistics"


# --- what the default reaches --------------------------------------------------------------------


def waiting_times(y):
    pm.Exponential("y", pm.Gamma("x", 8, 2), observed=y)
    return stats.gamma(8 + ROWS, scale=1 / (2 + y.sum()))


def precision(y):
    pm.Normal("y", 0, tau=pm.Gamma("x", 2, 1), observed=y)
    return stats.gamma(2 + ROWS / 2, scale=1 / (1 + np.sum(y**2) / 2))


def variance(y):
    pm.Normal("y", 0, pm.math.sqrt(pm.InverseGamma("x", 3, 2)), observed=y)
    return stats.invgamma(3 + ROWS / 2, scale=2 + np.sum(y**2) / 2)


def off_and_width(build, **settings):
    """How far the mean is from the posterior's without privacy, and the sd, in sds of that."""
    drawn = stats.norm(0, 2) if build in (precision, variance) else stats.expon(0, 1 / 3)
    with pm.Model() as model:
        exact = build(drawn.rvs(ROWS, random_state=np.random.default_rng(7)))
    settings = {"delta": 1e-5, "progressbar": False, "backend": "python", **settings}
    with deterministic_noise(2):
        idata = pymc_dp.fit(model=model, method="vips", random_seed=1, **settings)
    values = idata["posterior"]["x"].to_numpy()
    return abs(values.mean() - exact.mean()) / exact.std(), values.std() / exact.std()


@pytest.mark.parametrize("build", [waiting_times, variance])
def test_a_private_posterior_is_near_the_textbooks(build):
    off, width = off_and_width(build, epsilon=1)
    assert off < 2
    assert 0.85 < width < 1.35


@pytest.mark.parametrize("build", [waiting_times, precision])
def test_noise_widens_it_and_does_not_let_it_run_away(build):
    off, width = off_and_width(build, epsilon=0.1)
    assert off < 3 * width
    assert 1 < width < 4.5


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
def test_sums_that_clipping_biases_are_seen():
    off, width = off_and_width(waiting_times, epsilon=1, clip_norm=1.5)
    assert off > 4 * width
