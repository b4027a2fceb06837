"""VIPS and DP-SEP refuse what they cannot fit with a sentence, before any budget is spent."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp import NotSeparableError
from tests.zoo import build as model_of

pytestmark = pytest.mark.usefixtures("no_release")
N = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
SECRET = 123456.78125
REAL = np.where(np.arange(N) == 7, SECRET, RNG.normal(size=N))
YES = RNG.integers(0, 2, N)
COUNTS = RNG.integers(0, 5, N)
SETTINGS = {
    "noise_multiplier": 2.0,
    "delta": 1e-5,
    "sampling": "full",
    "draws": 3,
    "random_seed": 1,
    "progressbar": False,
    "backend": "python",
}


def refused(build, method="vips", **settings):
    """Fit, where the first release would be a failure of the test."""
    pymc_dp.fit(model=model_of(build), method=method, **{**SETTINGS, **settings})


def slopes():
    return X @ pm.Normal("b", 0, 2, shape=2)


# --- models --------------------------------------------------------------------------------------


def laplace_weights():
    pm.Normal("y", X @ pm.Laplace("b", 0, 1, shape=2), 1.0, observed=REAL)


def half_normal_scale():
    pm.Normal("y", slopes(), pm.HalfNormal("sd"), observed=REAL)


def gamma_sd():
    pm.Normal("y", slopes(), pm.Gamma("sd", 1, 1), observed=REAL)


def precision_for_each_column():
    W = pm.Normal("W", 0, 1, shape=(2, 2))
    pm.Normal("y", X @ W, tau=pm.Gamma("tau", 1, 1, shape=2), observed=X)


def beta_through_a_square():
    pm.Bernoulli("y", pm.Beta("p", 1, 1) ** 2, observed=YES)


def probit():
    pm.Bernoulli("y", pm.math.invprobit(slopes()), observed=YES)


def product_of_latents():
    pm.Normal("y", slopes() * pm.Normal("scale"), 1.0, observed=REAL)


def log_normal_hierarchy():
    b = pm.Normal("b", 0, pm.math.exp(pm.Normal("log_sd")), shape=2)
    pm.Normal("y", X @ b, 1.0, observed=REAL)


def softmax():
    W = pm.Normal("W", 0, 1, shape=(2, 3))
    pm.Categorical("y", logit_p=X @ W, observed=COUNTS % 3)


def a_latent_for_each_record():
    pm.Normal("y", slopes() + pm.Normal("z", shape=N), 1.0, observed=REAL)


def discrete_latent():
    pm.Normal("y", slopes() + pm.Bernoulli("k", 0.5), 1.0, observed=REAL)


NO_PREDICTOR = "no predictor that is linear in the Gaussian latents"
OF_BOTH = [
    (precision_for_each_column, "noise precision that is not one number (`tau`)"),
    (log_normal_hierarchy, "the joint prior of `log_sd`, `b` is not Gaussian"),
]
REFUSED = {
    "vips": [
        *OF_BOTH,
        (laplace_weights, "`b` has a prior (Laplace) of no conjugate family"),
        (gamma_sd, "the likelihood of `y` is not conjugate to `sd`"),
        (beta_through_a_square, "the likelihood of `y` is not conjugate to `p`"),
        (probit, "the likelihood of `y` is neither Gaussian nor logistic"),
        (product_of_latents, NO_PREDICTOR),
    ],
    "dp_sep": [
        *OF_BOTH,
        (softmax, "the likelihood of `y` has several predictors, and is not Gaussian"),
        (half_normal_scale, "the likelihood of `y` is Gaussian, but `sd` is no Gamma precision"),
        (a_latent_for_each_record, "`z` belongs to single records"),
    ],
}


@pytest.mark.parametrize(
    ("method", "build", "reason"),
    [(method, *case) for method, cases in REFUSED.items() for case in cases],
)
def test_a_model_without_closed_form_updates_is_refused_with_another_method(method, build, reason):
    with pytest.raises(NotSeparableError) as caught:
        refused(build, method)
    assert reason in str(caught.value)
    assert "method='dp_advi'" in str(caught.value)
    assert "123456" not in str(caught.value)


def test_a_discrete_latent_is_refused_by_name():
    with pytest.raises(NotSeparableError, match="`k` is a discrete latent"):
        refused(discrete_latent, "dp_sep")


# --- settings ------------------------------------------------------------------------------------


def logistic():
    pm.Bernoulli("y", logit_p=slopes(), observed=YES)


def one_share():
    pm.Bernoulli("y", pm.Beta("p", 2, 2), observed=YES)


def bumps():
    w, mu = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", 0, 3, shape=2)
    pm.NormalMixture("y", w, mu, sigma=1.0, observed=REAL)


BAD = {
    "n": [0, 2.5],
    "clip_norm": [0, -1.0, math.nan, math.inf, "large"],
    "sample_rate": [0, lambda t: 0.5],
    "form": ["foo", 3, ["absolute"], "shrunk", "residual"],
}
BAD_FOR = {
    "vips": {
        "kappa": [-0.1, 1.1, math.nan, "fast"],
        "tau0": [0.5, math.inf, None],
        "iterations": [0, 1.5],
    },
    "dp_sep": {"step": [0, -0.1, 1.1, math.nan, "fast"], "num_records": [0]},
}
TOGETHER = [
    ("vips", "sample_rate", {"sample_rate": 1.5, "sampling": "poisson"}),
    ("dp_sep", "sample_rate", {"sample_rate": 1.5, "sampling": "poisson"}),
    ("dp_sep", "step", {"step": 41, "form": "algorithm3", "num_records": N}),
    ("dp_sep", "num_records", {"num_records": None, "form": "algorithm3"}),
]


@pytest.mark.parametrize(
    ("method", "name", "settings"),
    [
        (method, name, {name: value})
        for method, own in BAD_FOR.items()
        for name, values in {**BAD, **own}.items()
        for value in values
    ]
    + TOGETHER,
)
def test_a_setting_out_of_its_range_is_refused_by_name(method, name, settings):
    with pytest.raises((ValueError, TypeError), match=name) as caught:
        refused(logistic, method, **settings)
    assert str(caught.value).endswith((".", "]"))
    assert "None" not in str(caught.value).replace("=None", "")


@pytest.mark.parametrize(
    ("method", "build", "form", "reason"),
    [
        *(("vips", one_share, form, "form=") for form in ("paper", "foo")),
        ("dp_sep", bumps, "algorithm3", "form='algorithm3' is not for mixtures of Gaussians"),
        ("dp_sep", bumps, "foo", "form='foo' is not for mixtures of Gaussians"),
    ],
)
def test_a_form_of_another_class_of_models_is_refused(method, build, form, reason):
    with pytest.raises(ValueError, match=reason):
        refused(build, method, form=form, num_records=N)


def test_an_option_that_has_no_meaning_for_a_model_is_refused():
    with pytest.raises(ValueError, match="iterations= has no meaning for"):
        refused(logistic, iterations=3)


@pytest.mark.parametrize("term", ["epsilon", "noise_multiplier", "delta"])
def test_a_method_without_privacy_takes_no_budget(term):
    nothing = dict.fromkeys(("epsilon", "noise_multiplier", "delta"))
    with pytest.raises(ValueError, match=f"'sep' is not private and takes no {term}="):
        refused(logistic, "sep", **nothing | {term: 0.5})


def test_counts_that_are_not_whole_are_refused():
    with pytest.raises(ValueError, match="`y` holds float64 values") as caught:
        refused(one_share, data={"y": YES + SECRET})
    assert "123456" not in str(caught.value)
