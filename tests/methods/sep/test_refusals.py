"""What DP-SEP cannot fit is refused with a sentence; odd records do a fit no harm.

A dry run refuses what a fit refuses, and holds no wall that could release anything.
"""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp import NotSeparableError
from tests.methods.vips.test_odd_records import (
    COUNTS,
    POSITIVE,
    YES,
    N,
    X,
    column_twice,
    constant_column,
    fitted,
    logistic_outcomes,
    nothing_at_all,
    numbers,
    same_fit,
    slopes_of,
)
from tests.methods.vips.test_refusals import (
    REAL,
    SECRET,
    SETTINGS,
    gamma_sd,
    half_normal_scale,
    laplace_weights,
    log_normal_hierarchy,
    logistic,
    model_of,
    precision_for_each_column,
    slopes,
    unknown_number_of_failures,
)


def refused(build, **settings):
    return pymc_dp.plan(model_of(build), **{**SETTINGS, "method": "dp_sep", **settings})


# --- models --------------------------------------------------------------------------------------


def softmax():
    W = pm.Normal("W", 0, 1, shape=(2, 3))
    pm.Categorical("y", logit_p=X @ W, observed=COUNTS % 3)


def exponential_of_a_latent():
    mu = slopes() + X[:, 0] * pm.math.exp(pm.Normal("a"))
    pm.Poisson("y", pm.math.exp(mu), observed=COUNTS)


def unknown_gamma_shape():
    shape = pm.Gamma("shape", 2, 1)
    pm.Gamma("y", alpha=shape, beta=pm.math.exp(-slopes()), observed=POSITIVE)


def unknown_dispersion():
    alpha = pm.Gamma("alpha", 2, 1)
    pm.NegativeBinomial("y", mu=pm.math.exp(slopes()), alpha=alpha, observed=COUNTS)


def a_latent_for_each_record():
    pm.Normal("y", slopes() + pm.Normal("z", shape=N), 1.0, observed=REAL)


def discrete_latent():
    pm.Normal("y", slopes() + pm.Bernoulli("k", 0.5), 1.0, observed=REAL)


def two_mixtures():
    mu, w = pm.Normal("mu", 0, 3, shape=2), pm.Dirichlet("w", np.ones(2))
    for name in ("y", "z"):
        pm.NormalMixture(name, w, mu, sigma=1.0, observed=REAL)


def bumps(y=REAL):
    w, mu = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", 0, 3, shape=2)
    pm.NormalMixture("y", w, mu, sigma=1.0, observed=y)


REFUSED = [
    (softmax, "the likelihood of `y` has several predictors, and is not Gaussian"),
    (exponential_of_a_latent, "has no predictor that is linear in the Gaussian latents"),
    (unknown_gamma_shape, "the likelihood of `y` is not Gaussian, and depends on `shape`"),
    (unknown_dispersion, "the likelihood of `y` is not Gaussian, and depends on `alpha`"),
    (unknown_number_of_failures, "the likelihood of `y` is not Gaussian, and depends on `n`"),
    (half_normal_scale, "the likelihood of `y` is Gaussian, but `sd` is no Gamma precision"),
    (gamma_sd, "the likelihood of `y` is Gaussian, but `sd` is no Gamma precision of it"),
    (precision_for_each_column, "noise precision that is not one number (`tau`)"),
    (log_normal_hierarchy, "the joint prior of `log_sd`, `b` is not Gaussian"),
    (laplace_weights, "no latent has a Gaussian prior"),
    (a_latent_for_each_record, "`z` belongs to single records"),
    (two_mixtures, "the likelihood is not one finite mixture"),
]


@pytest.mark.parametrize(("build", "reason"), REFUSED)
def test_a_model_without_known_moments_is_refused_with_the_way_out(build, reason):
    with pytest.raises(NotSeparableError) as caught:
        refused(build)
    assert reason in str(caught.value)
    assert "method='dp_advi'" in str(caught.value)
    assert "123456" not in str(caught.value)


def test_a_discrete_latent_is_refused_by_name():
    with pytest.raises(NotSeparableError, match="`k` is a discrete latent"):
        refused(discrete_latent)


# --- settings ------------------------------------------------------------------------------------

BAD_SETTINGS = [
    {"n": 0},
    {"n": 2.5},
    {"clip_norm": 0},
    {"clip_norm": -1.0},
    {"clip_norm": math.nan},
    {"clip_norm": math.inf},
    {"clip_norm": "large"},
    {"sample_rate": 0},
    {"sample_rate": 1.5, "sampling": "poisson"},
    {"sample_rate": lambda t: 0.5},
    {"form": "foo"},
    {"form": ["damped"]},
    {"step": 0},
    {"step": -0.1},
    {"step": 1.1},
    {"step": math.nan},
    {"step": "fast"},
    {"step": 41, "form": "algorithm3", "num_records": N},
    {"feature_bound": -1},
    {"feature_bound": 0},
    {"feature_bound": math.nan},
    {"feature_bound": None},
    {"num_records": 0},
    {"num_records": None, "form": "algorithm3"},
]


@pytest.mark.parametrize("bad", BAD_SETTINGS, ids=lambda bad: next(iter(bad)))
def test_a_setting_out_of_its_range_is_refused_by_name(bad):
    with pytest.raises((ValueError, TypeError), match=next(iter(bad))) as caught:
        refused(logistic, **bad)
    assert str(caught.value).endswith((".", "]"))
    assert "None" not in str(caught.value).replace("=None", "")


@pytest.mark.parametrize("form", ["algorithm3", "foo"])
def test_mixtures_have_one_form(form):
    with pytest.raises(ValueError, match=f"form='{form}' is not for mixtures of Gaussians"):
        refused(bumps, form=form, num_records=N)


def test_mixtures_take_the_name_of_their_form_and_no_bound_of_features():
    refused(bumps, form="damped")
    with pytest.raises(ValueError, match="feature_bound= has no meaning for mixtures of Gaussians"):
        refused(bumps, feature_bound=1.0)


@pytest.mark.parametrize("term", ["epsilon", "noise_multiplier", "delta"])
def test_a_method_without_privacy_takes_no_budget(term):
    nothing = dict.fromkeys(("epsilon", "noise_multiplier", "delta"))
    with pytest.raises(ValueError, match=f"'sep' is not private and takes no {term}="):
        refused(logistic, method="sep", **nothing | {term: 0.5})


# --- odd records ---------------------------------------------------------------------------------


def log_link(y, x=None):
    eta = slopes_of(len(y)) if x is None else pm.Data("X", x) @ pm.Normal("b", 0, 2, shape=2)
    pm.Poisson("y", pm.math.exp(eta), observed=y)


def log_link_at(x):
    log_link(COUNTS, x)


def student(y):
    pm.StudentT("y", nu=4, mu=slopes_of(len(y)), sigma=1.0, observed=y)


def linear(y):
    pm.Normal("y", slopes_of(len(y)), tau=pm.Gamma("tau", 2, 1), observed=y)


IMPOSSIBLE = [
    (logistic_outcomes, YES, [2, -1]),
    (log_link, COUNTS, [-1, -(2**30)]),
    (student, POSITIVE, [math.inf]),
    (linear, POSITIVE, [-math.inf]),
    (bumps, POSITIVE, [math.inf, 1e300]),
]


@pytest.mark.parametrize(("build", "values", "impossible"), IMPOSSIBLE)
def test_an_impossible_record_is_as_one_that_is_not_there(build, values, impossible):
    spoiled = np.append(values, np.array(impossible, values.dtype))
    same_fit(*(fitted(build, y, method="dp_sep") for y in (spoiled, values)))


def one_extreme(x):
    return np.where(np.arange(len(x))[:, None] == 3, 1e150, x)


def all_too_large(x):
    return 1e200 * x


@pytest.mark.parametrize(
    ("spoil", "form"),
    [
        *((spoil, None) for spoil in (constant_column, column_twice, nothing_at_all)),
        *((spoil, form) for spoil in (one_extreme, all_too_large) for form in (None, "algorithm3")),
    ],
)
@pytest.mark.filterwarnings("ignore:form='algorithm3' is for reproduction")
def test_a_singular_or_extreme_design_gives_a_proper_posterior(spoil, form):
    literal = {"num_records": N, "sample_rate": 1.0, "n": 5}
    settings = {"method": "dp_sep", "form": form, **(literal if form else {})}
    idata = fitted(log_link_at, spoil(X), **settings)
    numbers(idata)
    eigenvalues = np.linalg.eigvalsh(idata["fit"]["covariance_matrix"])
    # the prior's variance is the most that remains
    assert 0 < eigenvalues.min() <= eigenvalues.max() <= 4 * (1 + 1e-9)


@pytest.mark.parametrize("y", [np.zeros(N), np.full(N, 1e150), np.full(N, math.inf)])
def test_a_mixture_of_odd_outcomes_gives_a_proper_posterior(y):
    idata = fitted(bumps, y, method="dp_sep")
    numbers(idata)
    assert (np.abs(idata["fit"]["mean_vector"]) < SECRET).all()
