"""VIPS without noise is textbook Bayes where that is exact, and variational Bayes where it is not.

The references are written out in NumPy, one update a line, and share nothing with the library.
"""

import functools
import math

import numpy as np
import pymc as pm
import pytest
from scipy.special import digamma, expit
from scipy.stats import rankdata

import pymc_dp
from pymc_dp.testing import deterministic_noise

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
    with pm.Model() as model:
        build()
    settings = {"kappa": 0.0, **settings}
    return pymc_dp.fit(model=model, **{**NOISELESS, **settings})


# --- one release is the textbook's posterior -----------------------------------------------------


def p(**kwargs):
    return pm.Beta("p", 2, 3, **kwargs)


def r(**kwargs):
    return pm.Gamma("r", 2.5, 1.5, **kwargs)


def bernoulli():
    pm.Bernoulli("y", p(), observed=YES)


def bernoulli_by_group():
    pm.Bernoulli("y", p(shape=3)[GROUP], observed=YES)


def binomial():
    pm.Binomial("y", 8, p(), observed=SUCCESSES)


def binomial_with_trials_by_record():
    pm.Binomial("y", pm.Data("trials", TRIALS), p(shape=3)[GROUP], observed=SUCCESSES)


def categorical():
    pm.Categorical("y", pm.Dirichlet("p", [1.0, 2.0, 3.0, 4.0]), observed=CATEGORY)


def categorical_by_group():
    pm.Categorical("y", pm.Dirichlet("p", np.full((3, 4), 2.0))[GROUP], observed=CATEGORY)


def multinomial():
    pm.Multinomial("y", 5, pm.Dirichlet("p", [1.0, 2.0, 3.0]), observed=VOTES)


def multinomial_by_group():
    pm.Multinomial("y", 5, pm.Dirichlet("p", np.full((3, 3), 2.0))[GROUP], observed=VOTES)


def poisson():
    pm.Poisson("y", r(), observed=COUNTS)


def poisson_with_exposure_by_group():
    pm.Poisson("y", r(shape=3)[GROUP] * pm.Data("exposure", EXPOSURE), observed=COUNTS)


def poisson_with_exponential_prior():
    pm.Poisson("y", pm.Exponential("r", 1.5), observed=COUNTS)


def exponential():
    pm.Exponential("y", r(), observed=WAITS)


def exponential_by_group():
    pm.Exponential("y", r(shape=3)[GROUP], observed=WAITS)


def gamma_of_known_shape():
    pm.Gamma("y", 2.0, r(), observed=WAITS)


def normal_of_known_mean():
    pm.Normal("y", 0.5, tau=r(), observed=Y)


def by_group(values):
    return IN_GROUP.T @ values


# prior parameters plus sums over records
TEXTBOOK = [
    (bernoulli, "p", (2 + YES.sum(), 3 + (1 - YES).sum())),
    (bernoulli_by_group, "p", (2 + by_group(YES), 3 + by_group(1 - YES))),
    (binomial, "p", (2 + SUCCESSES.sum(), 3 + (8 - SUCCESSES).sum())),
    (
        binomial_with_trials_by_record,
        "p",
        (2 + by_group(SUCCESSES), 3 + by_group(TRIALS - SUCCESSES)),
    ),
    (categorical, "p", (np.arange(1, 5) + np.bincount(CATEGORY),)),
    (categorical_by_group, "p", (2 + by_group(np.eye(4)[CATEGORY]),)),
    (multinomial, "p", (np.arange(1, 4) + VOTES.sum(axis=0),)),
    (multinomial_by_group, "p", (2 + by_group(VOTES),)),
    (poisson, "r", (2.5 + COUNTS.sum(), 1.5 + N)),
    (poisson_with_exposure_by_group, "r", (2.5 + by_group(COUNTS), 1.5 + by_group(EXPOSURE))),
    (poisson_with_exponential_prior, "r", (1 + COUNTS.sum(), 1.5 + N)),
    (exponential, "r", (2.5 + N, 1.5 + WAITS.sum())),
    (exponential_by_group, "r", (2.5 + by_group(np.ones(N)), 1.5 + by_group(WAITS))),
    (gamma_of_known_shape, "r", (2.5 + 2 * N, 1.5 + WAITS.sum())),
    (normal_of_known_mean, "r", (2.5 + N / 2, 1.5 + ((Y - 0.5) ** 2).sum() / 2)),
]


def parameters(idata, name):
    """Read the usual parameters of a block: a result shows the coefficients of log densities."""
    fit = idata["fit"]
    shape = fit[f"{name}.log_coefficient"].values + 1
    if f"{name}.rate" in fit:
        return shape, fit[f"{name}.rate"].values
    if f"{name}.log_complement_coefficient" in fit:
        return shape, fit[f"{name}.log_complement_coefficient"].values + 1
    return (shape,)


@pytest.mark.parametrize(("build", "name", "expected"), TEXTBOOK)
def test_one_release_gives_the_textbooks_posterior(build, name, expected):
    idata = fitted(build)
    assert idata["privacy"].attrs["releases"] == 1
    for got, wanted in zip(parameters(idata, name), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-8)


def test_draws_have_the_posteriors_moments():
    idata = fitted(poisson, draws=4000)
    shape, rate = parameters(idata, "r")
    draws = idata["posterior"]["r"].values.ravel()
    assert abs(draws.mean() - shape / rate) < 6 * shape**0.5 / rate / 4000**0.5
    np.testing.assert_allclose(idata["fit"]["mean_vector"], shape / rate)
    np.testing.assert_allclose(idata["fit"]["standard_deviation"], shape**0.5 / rate)


# --- Gaussian latents: exact where precisions are known ------------------------------------------


def coefficients(sd=2.0):
    return pm.Normal("a", 0, sd), pm.Normal("b", 0, sd, shape=2)


def linear():
    a, b = coefficients()
    pm.Normal("y", a + X @ b, 0.8, observed=Y)


def linear_from_data():
    a, b = coefficients()
    pm.Normal("y", a + pm.math.dot(pm.Data("X", X), b), 0.8, observed=pm.Data("Y", Y))


def linear_in_one_block():
    b = pm.Normal("b", 0, 2, shape=3)
    pm.Normal("y", np.column_stack([ONES, X]) @ b, tau=1 / 0.8**2, observed=Y)


def linear_term_by_term():
    a, b, c = (pm.Normal(name, 0, 2) for name in ("a", "b", "c"))
    eta = a + b * pm.Data("X", X)[:, 0] + c * X[:, 1]
    pm.Normal("y", pm.Deterministic("eta", eta), 0.8, observed=Y)


def exact(design, y, sigma, prior_precision, prior_mean=0.0):
    precision = design.T @ design / sigma**2 + prior_precision
    prior_mean = np.broadcast_to(prior_mean, len(precision))
    covariance = np.linalg.inv(precision)
    return covariance @ (design.T @ y / sigma**2 + prior_precision @ prior_mean), covariance


WITH_ONES = np.column_stack([ONES, X])
LINEAR = exact(WITH_ONES, Y, 0.8, np.eye(3) / 4)


def hierarchical():
    mu = pm.Normal("mu", 1.0, 2.0)
    theta = pm.Normal("theta", mu, 0.5, shape=3)
    pm.Normal("y", theta[GROUP], 0.8, observed=Y)


def hierarchical_not_centred():
    mu, z = pm.Normal("mu", 1.0, 2.0), pm.Normal("z", 0, 1, shape=3)
    pm.Normal("y", (mu + 0.5 * z)[pm.Data("group", GROUP)], 0.8, observed=Y)


THETA = ["mu", "theta[0]", "theta[1]", "theta[2]"]
Z = ["mu", "z[0]", "z[1]", "z[2]"]
# rows: theta_g - mu with precision 4, and mu - 1 with precision 1/4
APART = np.column_stack([-np.ones(3), np.eye(3)])
HIERARCHY = 4 * APART.T @ APART + np.diag([0.25, 0, 0, 0])
HIERARCHICAL = exact(np.column_stack([0 * ONES, IN_GROUP]), Y, 0.8, HIERARCHY, 1.0)
NOT_CENTRED = exact(
    np.column_stack([ONES, 0.5 * IN_GROUP]), Y, 0.8, np.diag([0.25, 1, 1, 1]), [1.0, 0, 0, 0]
)
CORRELATED = np.array([[1.0, 0.6], [0.6, 2.0]])


def correlated_prior():
    b = pm.MvNormal("b", np.array([1.0, -1.0]), CORRELATED)
    pm.Normal("y", X @ b, 0.8, observed=Y)


def two_columns():
    W = pm.Normal("W", 0, 2, shape=(2, 2))
    pm.Normal("y", pm.Data("X", X) @ W, 0.8, observed=np.column_stack([Y, OFFSET]))


W = ["W[0, 0]", "W[1, 0]", "W[0, 1]", "W[1, 1]"]
COLUMNS = [exact(X, y, 0.8, np.eye(2) / 4) for y in (Y, OFFSET)]
TWO_COLUMNS = (
    np.concatenate([mean for mean, _ in COLUMNS]),
    np.kron(np.eye(2), COLUMNS[0][1]),
)


def normal_mean():
    pm.Normal("y", pm.Normal("mu", 1.0, 2.0), 0.8, observed=Y)


EXACT = [
    (linear, A, LINEAR),
    (linear_from_data, A, LINEAR),
    (linear_in_one_block, ["b[0]", "b[1]", "b[2]"], LINEAR),
    (linear_term_by_term, ["a", "b", "c"], LINEAR),
    (hierarchical, THETA, HIERARCHICAL),
    (hierarchical_not_centred, Z, NOT_CENTRED),
    (correlated_prior, A[1:], exact(X, Y, 0.8, np.linalg.inv(CORRELATED), [1.0, -1.0])),
    (two_columns, W, TWO_COLUMNS),
    (normal_mean, ["mu"], exact(ONES, Y, 0.8, np.eye(1) / 4, 1.0)),
]


def gaussian(idata, names):
    """Return where the fit ended, and its covariance, in the order of ``names``."""
    last = idata["fit_stats"]["mean_path"].isel(release=-1).sel(gaussian=names)
    covariance = idata["fit"]["covariance_matrix"].sel(gaussian=names, gaussian_=names)
    return last.values, covariance.values


@pytest.mark.parametrize("form", ["residual", "absolute"])
@pytest.mark.parametrize(("build", "names", "expected"), EXACT)
def test_a_gaussian_posterior_is_exact(build, names, expected, form):
    for got, wanted in zip(gaussian(fitted(build, form=form), names), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-9)


# --- variational Bayes where it is not -----------------------------------------------------------


def same_to(tolerance, got, expected):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 10)


def linear_with_noise_precision():
    a, b = coefficients()
    pm.Normal("y", a + X @ b, tau=pm.Gamma("tau", 2.0, 1.0), observed=Y)


def linear_with_sd_of_a_precision():
    a, b = coefficients()
    sigma = 1 / pm.math.sqrt(pm.Gamma("tau", 2.0, 1.0))
    pm.Normal("y", a + X @ b, sigma, observed=Y)


def vb_linear():
    tau = 1.0
    for _ in range(300):
        covariance = np.linalg.inv(tau * WITH_ONES.T @ WITH_ONES + np.eye(3) / 4)
        mean = covariance @ (tau * WITH_ONES.T @ Y)
        shape = 2 + N / 2
        squares = ((Y - WITH_ONES @ mean) ** 2).sum()
        rate = 1 + (squares + np.trace(WITH_ONES @ covariance @ WITH_ONES.T)) / 2
        tau = shape / rate
    return mean, covariance, shape, rate


def linear_with_scaled_weights():
    tau = pm.Gamma("tau", 2.0, 1.0)
    b = pm.Normal("b", 0, tau=tau, shape=2)
    pm.Normal("y", X @ b, tau=tau, observed=Y)


def vb_scaled():
    tau = 1.0
    for _ in range(300):
        covariance = np.linalg.inv(tau * (X.T @ X + np.eye(2)))
        mean = tau * covariance @ X.T @ Y
        shape = 2 + N / 2 + 2 / 2
        squares = ((Y - X @ mean) ** 2).sum() + np.trace(X @ covariance @ X.T)
        rate = 1 + (squares + mean @ mean + np.trace(covariance)) / 2
        tau = shape / rate
    return mean, covariance, shape, rate


@pytest.mark.parametrize("form", ["residual", "absolute"])
@pytest.mark.parametrize(
    ("build", "names", "reference"),
    [
        (linear_with_noise_precision, A, vb_linear),
        (linear_with_sd_of_a_precision, A, vb_linear),
        (linear_with_scaled_weights, A[1:], vb_scaled),
    ],
)
def test_a_noise_precision_is_that_of_variational_bayes(build, names, reference, form):
    idata = fitted(build, form=form)
    same_to(1e-8, (*gaussian(idata, names), *parameters(idata, "tau")), reference())


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


def logistic_by_probability():
    a, b = coefficients()
    p = pm.math.sigmoid(a + pm.math.dot(pm.Data("X", X), b))
    pm.Bernoulli("y", p=pm.Deterministic("p", p), observed=YES)


def logistic_in_one_block():
    b = pm.Normal("b", 0, 2, shape=3)
    pm.Bernoulli("y", p=pm.math.invlogit(pm.Data("X", WITH_ONES) @ b), observed=YES)


def logistic_with_offset():
    a, b = coefficients()
    pm.Bernoulli("y", logit_p=pm.Data("offset", OFFSET) + a + X @ b, observed=YES)


def logistic_by_group():
    a, b = pm.Normal("a", 0, 2, shape=3), pm.Normal("b", 0, 2, shape=2)
    pm.Bernoulli("y", logit_p=a[pm.Data("group", GROUP)] + X @ b, observed=YES)


def binomial_logit():
    a, b = coefficients()
    pm.Binomial("y", pm.Data("trials", TRIALS), logit_p=a + X @ b, observed=SUCCESSES)


def negative_binomial():
    a, b = coefficients()
    pm.NegativeBinomial("y", n=4, p=pm.math.sigmoid(-(a + X @ b)), observed=COUNTS)


def negative_binomial_by_mean():
    a, b = coefficients()
    pm.NegativeBinomial("y", mu=4 * pm.math.exp(a + X @ b), alpha=4, observed=COUNTS)


def polya_gamma(design, kappa, trials, offset=0.0, prior_precision=0.25, start=None):
    """Variational Bayes with Pólya-Gamma variables of shape ``trials``; Polson et al. 2013."""
    d = design.shape[1]
    mean, covariance = np.zeros(d), np.zeros((d, d)) if start is None else start
    prior = prior_precision * np.eye(d) if np.ndim(prior_precision) < 2 else prior_precision
    for _ in range(500):
        psi = offset + design @ mean
        c = np.sqrt(psi**2 + ((design @ covariance) * design).sum(axis=1))
        omega = trials * np.tanh(c / 2) / (2 * c) if c.any() else trials / 4
        covariance = np.linalg.inv((design.T * omega) @ design + prior)
        mean = covariance @ (design.T @ (kappa - omega * offset))
    return mean, covariance


GROUPED = np.column_stack([IN_GROUP, X])
LOGISTIC = functools.partial(polya_gamma, WITH_ONES, YES - 0.5, np.ones(N))
NEGATIVE = functools.partial(polya_gamma, WITH_ONES, (COUNTS - 4) / 2, COUNTS + 4)
AUGMENTED = [
    (logistic, A, LOGISTIC),
    (logistic_by_probability, A, LOGISTIC),
    (logistic_in_one_block, ["b[0]", "b[1]", "b[2]"], LOGISTIC),
    (logistic_with_offset, A, functools.partial(LOGISTIC, OFFSET)),
    (
        logistic_by_group,
        ["a[0]", "a[1]", "a[2]", "b[0]", "b[1]"],
        functools.partial(polya_gamma, GROUPED, YES - 0.5, np.ones(N)),
    ),
    (
        binomial_logit,
        A,
        functools.partial(polya_gamma, WITH_ONES, SUCCESSES - TRIALS / 2, TRIALS),
    ),
    (negative_binomial, A, NEGATIVE),
    (negative_binomial_by_mean, A, NEGATIVE),
]


@pytest.mark.parametrize("form", ["residual", "absolute"])
@pytest.mark.parametrize(("build", "names", "reference"), AUGMENTED)
def test_a_logistic_likelihood_is_that_of_variational_bayes(build, names, reference, form):
    same_to(1e-6, gaussian(fitted(build, form=form), names), reference())


def logistic_with_precision_of_weights():
    tau = pm.Gamma("tau", 2.0, 1.0)
    a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, tau=tau, shape=2)
    pm.Bernoulli("y", logit_p=a + X @ b, observed=YES)


def vb_logistic_with_precision():
    tau = 1.0
    for _ in range(200):
        mean, covariance = LOGISTIC(prior_precision=np.diag([0.25, tau, tau]))
        shape, rate = 2 + 2 / 2, 1 + ((mean**2 + np.diag(covariance))[1:]).sum() / 2
        tau = shape / rate
    return mean, covariance, shape, rate


@pytest.mark.parametrize("form", ["residual", "absolute"])
def test_a_precision_of_logistic_weights_is_that_of_variational_bayes(form):
    idata = fitted(logistic_with_precision_of_weights, form=form)
    got = *gaussian(idata, A), *parameters(idata, "tau")
    same_to(1e-6, got, vb_logistic_with_precision())


def two_outcomes():
    a, b = coefficients()
    eta = a + pm.Data("X", X) @ b
    pm.Normal("y", eta, 0.8, observed=Y)
    pm.Bernoulli("z", logit_p=eta, observed=YES)


def vb_two_outcomes():
    mean, covariance = np.zeros(3), np.zeros((3, 3))
    for _ in range(500):
        c = np.sqrt((WITH_ONES @ mean) ** 2 + ((WITH_ONES @ covariance) * WITH_ONES).sum(axis=1))
        omega = np.tanh(c / 2) / (2 * c) if c.any() else np.full(N, 0.25)
        omega = omega + 1 / 0.8**2
        covariance = np.linalg.inv((WITH_ONES.T * omega) @ WITH_ONES + np.eye(3) / 4)
        mean = covariance @ WITH_ONES.T @ (Y / 0.8**2 + YES - 0.5)
    return mean, covariance


@pytest.mark.parametrize("form", ["residual", "absolute"])
def test_two_outcomes_share_their_predictor(form):
    same_to(1e-6, gaussian(fitted(two_outcomes, form=form), A), vb_two_outcomes())


def mixture():
    w = pm.Dirichlet("w", [2.0, 3.0])
    mu = pm.Normal("mu", 0.5, 3.0, shape=2, initval=[-1.0, 1.0])
    pm.NormalMixture("y", w, mu, tau=pm.Gamma("tau", 3.0, 2.0, shape=2), observed=TWO_BUMPS)


def mixture_of_components():
    w = pm.Dirichlet("w", [2.0, 3.0])
    mu = pm.Normal("mu", 0.5, 3.0, shape=2, initval=[-1.0, 1.0])
    parts = pm.Normal.dist(mu, 1 / pm.math.sqrt(pm.Gamma("tau", 3.0, 2.0, shape=2)))
    pm.Mixture("y", w, parts, observed=TWO_BUMPS)


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


@pytest.mark.parametrize("build", [mixture, mixture_of_components])
def test_a_mixture_is_that_of_variational_bayes(build):
    idata = fitted(build, n=150)
    precision = idata["fit"]["mu.precision"].values
    mean = idata["fit"]["mu.precision_mean"].values / precision
    got = mean, precision**-0.5, *parameters(idata, "w"), *parameters(idata, "tau")
    same_to(1e-6, got, vb_mixture())


# --- what is less than exact ---------------------------------------------------------------------


@pytest.mark.parametrize("form", ["residual", "absolute"])
def test_small_batches_come_close(form):
    with deterministic_noise(1):
        settings = {"sampling": "poisson", "sample_rate": 0.2, "kappa": 0.7, "n": 400}
        idata = fitted(logistic, form=form, **settings)
    mean, covariance = LOGISTIC()
    got = idata["fit"]["mean_vector"].sel(gaussian=A).values
    np.testing.assert_array_less(np.abs(got - mean), 0.5 * np.sqrt(np.diag(covariance)))


def test_small_batches_of_a_mixture_come_close():
    with deterministic_noise(1):
        settings = {"sampling": "poisson", "sample_rate": 0.2, "kappa": 0.7, "n": 300}
        idata = fitted(mixture, **settings)
    mean, sd, *_ = vb_mixture()
    fit = idata["fit"]
    got = fit["mu.precision_mean"].values / fit["mu.precision"].values
    np.testing.assert_array_less(np.abs(got - mean), sd)


ROWS, FEATURES = 3341, 9


@functools.cache
def sparse_survey():
    """Two numbers and seven rare indicators, as surveys have; train and test."""
    rng = np.random.default_rng(7)
    size = 2 * ROWS
    rare = rng.random((size, FEATURES - 2)) < np.linspace(0.05, 0.4, FEATURES - 2)
    design = np.column_stack([rng.normal(size=(size, 2)), rare])
    weights = np.concatenate([[1.0, -0.6], np.linspace(-1.5, 1.5, FEATURES - 2)])
    y = (rng.random(size) < expit(design @ weights - 0.5)).astype(int)
    return design[:ROWS], y[:ROWS], design[ROWS:], y[ROWS:]


def auc(score, y):
    positives = y.sum()
    ranks = rankdata(score)[y == 1].sum()
    return (ranks - positives * (positives + 1) / 2) / positives / (len(y) - positives)


def test_a_private_fit_ranks_almost_as_well_as_one_that_is_not():
    design, y, new, outcome = sparse_survey()
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 3), pm.Normal("b", 0, 3, shape=FEATURES)
        pm.Bernoulli("y", logit_p=a + pm.Data("X", design) @ b, observed=y)

    def score(**settings):
        idata = pymc_dp.fit(model=model, method="vips", progressbar=False, draws=2, **settings)
        mean = idata["fit"]["mean_vector"].sel(gaussian=[f"b[{k}]" for k in range(FEATURES)])
        return auc(new @ mean.values, outcome)

    private = []
    for seed in range(5):
        with deterministic_noise(seed):
            private.append(score(epsilon=1.0, delta=1e-5))
    best = score(epsilon=math.inf, clip_norm=math.inf, sampling="full", kappa=0.0)
    assert best > 0.75
    assert np.median(private) > best - 0.01
