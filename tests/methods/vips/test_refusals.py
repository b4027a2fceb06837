"""VIPS refuses what it cannot fit with a sentence, before any budget is spent."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp import NotSeparableError
from pymc_dp.privacy.wall import PrivacyWall

N = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
SECRET = 123456.78125
REAL = np.where(np.arange(N) == 7, SECRET, RNG.normal(size=N))
YES = RNG.integers(0, 2, N)
COUNTS = RNG.integers(0, 5, N)
SETTINGS = {
    "method": "vips",
    "noise_multiplier": 2.0,
    "delta": 1e-5,
    "sampling": "full",
    "draws": 3,
    "random_seed": 1,
    "progressbar": False,
    "backend": "python",
}


def model_of(build):
    with pm.Model() as model:
        build()
    return model


def refused(build, **settings):
    """Fit, where the first release would be a failure of the test."""
    pymc_dp.fit(model=model_of(build), **{**SETTINGS, **settings})


@pytest.fixture(autouse=True)
def no_release(monkeypatch):
    def spent(self, *args, **kwargs):
        pytest.fail("budget was spent")

    monkeypatch.setattr(PrivacyWall, "release", spent)


def slopes():
    return X @ pm.Normal("b", 0, 2, shape=2)


# --- models that are not conjugate ---------------------------------------------------------------


def laplace_weights():
    pm.Normal("y", X @ pm.Laplace("b", 0, 1, shape=2), 1.0, observed=REAL)


def half_normal_scale():
    pm.Normal("y", slopes(), pm.HalfNormal("sd"), observed=REAL)


def gamma_sd():
    pm.Normal("y", slopes(), pm.Gamma("sd", 1, 1), observed=REAL)


def precision_for_each_column():
    W = pm.Normal("W", 0, 1, shape=(2, 2))
    pm.Normal("y", X @ W, tau=pm.Gamma("tau", 1, 1, shape=2), observed=X)


def beta_mean():
    pm.Normal("y", pm.Beta("p", 1, 1), 1.0, observed=REAL)


def beta_through_a_square():
    pm.Bernoulli("y", pm.Beta("p", 1, 1) ** 2, observed=YES)


def correlated_components():
    mu = pm.MvNormal("mu", np.zeros(2), np.eye(2))
    pm.NormalMixture("y", [0.5, 0.5], mu, 1.0, observed=REAL)


def probit():
    pm.Bernoulli("y", pm.math.invprobit(slopes()), observed=YES)


def poisson_with_log_link():
    pm.Poisson("y", pm.math.exp(slopes()), observed=COUNTS)


def unknown_number_of_failures():
    p = pm.math.sigmoid(slopes())
    pm.NegativeBinomial("y", n=pm.Gamma("n", 1, 1), p=p, observed=COUNTS)


def student():
    pm.StudentT("y", nu=4, mu=slopes(), sigma=1.0, observed=REAL)


def product_of_latents():
    pm.Normal("y", slopes() * pm.Normal("scale"), 1.0, observed=REAL)


def squared_latent():
    pm.Normal("y", slopes() ** 2, 1.0, observed=REAL)


def log_normal_hierarchy():
    b = pm.Normal("b", 0, pm.math.exp(pm.Normal("log_sd")), shape=2)
    pm.Normal("y", X @ b, 1.0, observed=REAL)


REFUSED = [
    (laplace_weights, "`b` has a prior (Laplace) of no conjugate family"),
    (half_normal_scale, "`sd` has a prior (HalfNormal) of no conjugate family"),
    (gamma_sd, "the likelihood of `y` is not conjugate to `sd`"),
    (precision_for_each_column, "noise precision that is not one number (`tau`)"),
    (beta_mean, "the likelihood of `y` is not conjugate to `p`"),
    (beta_through_a_square, "the likelihood of `y` is not conjugate to `p`"),
    (correlated_components, "`mu` has a prior (MvNormal) of no conjugate family"),
    (probit, "the likelihood of `y` is neither Gaussian nor logistic"),
    (poisson_with_log_link, "the likelihood of `y` is neither Gaussian nor logistic"),
    (unknown_number_of_failures, "the likelihood of `y` is not Gaussian, and depends on `n`"),
    (student, "the likelihood of `y` is neither Gaussian nor logistic"),
    (product_of_latents, "no predictor that is linear in the Gaussian latents"),
    (squared_latent, "the likelihood of `y` is neither Gaussian nor logistic"),
    (log_normal_hierarchy, "the joint prior of `log_sd`, `b` is not Gaussian"),
]


@pytest.mark.parametrize(("build", "reason"), REFUSED)
def test_a_model_without_closed_form_updates_is_refused_with_the_way_out(build, reason):
    with pytest.raises(NotSeparableError) as caught:
        refused(build)
    assert reason in str(caught.value)
    assert "method='dp_advi'" in str(caught.value)
    assert "123456" not in str(caught.value)


# --- settings ------------------------------------------------------------------------------------


def logistic():
    pm.Bernoulli("y", logit_p=slopes(), observed=YES)


def one_share():
    pm.Bernoulli("y", pm.Beta("p", 2, 2), observed=YES)


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
    {"form": 3},
    {"form": ["residual"]},
    {"form": "shrunk"},
    {"kappa": -0.1},
    {"kappa": 1.1},
    {"kappa": math.nan},
    {"kappa": "fast"},
    {"tau0": 0.5},
    {"tau0": math.inf},
    {"tau0": None},
    {"feature_bound": -1},
    {"feature_bound": 0},
    {"feature_bound": math.nan},
    {"feature_bound": None},
    {"iterations": 0},
    {"iterations": 1.5},
]


@pytest.mark.parametrize("bad", BAD_SETTINGS, ids=lambda bad: next(iter(bad)))
def test_a_setting_out_of_its_range_is_refused_by_name(bad):
    with pytest.raises((ValueError, TypeError), match=next(iter(bad))) as caught:
        refused(logistic, **bad)
    assert str(caught.value).endswith((".", "]"))


@pytest.mark.parametrize("form", ["residual", "paper", "foo"])
def test_conjugate_blocks_have_one_form(form):
    with pytest.raises(ValueError, match="form="):
        refused(one_share, form=form)


@pytest.mark.parametrize(
    ("build", "option", "value"),
    [
        (logistic, "iterations", 3),
        (one_share, "iterations", 3),
        (one_share, "feature_bound", 1.0),
    ],
)
def test_an_option_that_says_nothing_to_a_model_is_not_swallowed(build, option, value):
    with pytest.raises(ValueError, match=f"{option}= has no meaning for"):
        refused(build, **{option: value})


def test_counts_that_are_not_whole_are_refused():
    with pytest.raises(ValueError, match="`y` holds float64 values") as caught:
        refused(one_share, data={"y": YES + SECRET})
    assert "123456" not in str(caught.value)
