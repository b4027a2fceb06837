"""Without noise nothing is clipped unless a clip norm is given: such fits are references.

The data are far from unit scale, so that a default clip norm would cut nearly every record.
"""

import functools
import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.driver.fit import set_up
from pymc_dp.methods.mixture.sketch import SKETCH
from pymc_dp.methods.registry import METHODS
from tests.conformance.model_classes import CLASSES, draw_data, model_of
from tests.conformance.test_methods import REFUSED

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")

N = 300
RNG = np.random.default_rng(8)
X = RNG.normal(size=(N, 2)) * [1.0, 30.0]
REAL = X @ [4.0, -0.5] + 9.0 * RNG.normal(size=N)
PRIVATE = [name for name, spec in METHODS.items() if spec.private]
# rounds in whitened coordinates ask for clip norms of their own, release by release
STEPS = {method: {"noise_aware": False} for method in ("dp_advi", "dp_fullrank_advi")}
# gradients are released in one way, whatever the class of a model. vips makes rounds of yes-no
# outcomes: their clip norms follow from the releases before
BY_ROUNDS = {("vips", "logistic")}
CASES = [
    (method, name)
    for method in PRIVATE
    for name in (CLASSES if method in ("vips", "dp_sep") else ["logistic"])
    if name not in REFUSED.get(method, set())
]
CASES = [case for case in CASES if case not in BY_ROUNDS]


def fitted(model, method, **settings):
    settings = {"progressbar": False, "backend": "python", "random_seed": 1, **settings}
    return pymc_dp.fit(model=model, method=method, epsilon=math.inf, sampling="full", **settings)


def clip_norms(method, name, **settings):
    model = model_of(name, draw_data(29, seed=0))
    releases = set_up(model, method, None, epsilon=math.inf, **settings).plan.releases
    # a sketch's vectors are no longer than 1: there is nothing to clip
    return {release.clip_norm for release in releases if release.name != SKETCH}


@pytest.mark.parametrize(("method", "name"), CASES)
def test_nothing_is_clipped_unless_a_clip_norm_is_given(method, name):
    assert clip_norms(method, name, **STEPS.get(method, {})) == {math.inf}


# of each method, and of each kind of its releases
OF_EACH_KIND = [(method, "logistic") for method in PRIVATE]
OF_EACH_KIND += [("vips", name) for name in ("conjugate", "mixture", "topics", "belief_net")]
OF_EACH_KIND += [("dp_sep", name) for name in ("mixture", "network")]


@pytest.mark.parametrize(("method", "name"), OF_EACH_KIND)
def test_a_clip_norm_that_is_given_holds_without_noise(method, name):
    steps = STEPS.get(method, {})
    given = "loglik_bound" if method == "dp_ops" else "clip_norm"
    assert clip_norms(method, name, **steps, **{given: 0.7}) == {0.7}


def test_to_ask_for_an_adaptive_clip_norm_is_to_ask_for_clipping():
    [clip_norm] = clip_norms("dp_advi", "logistic", adaptive_clip=0.8)
    assert clip_norm < math.inf


@functools.cache
def regression():
    with pm.Model() as model:
        w = pm.Normal("w", 0, 10, shape=2)
        tau = pm.Gamma("tau", 2, 10)
        pm.Normal("y", pm.Data("x", X) @ w, tau=tau, observed=REAL)
    return model


def coordinate_ascent():
    """Mean and sd of the weights, and of the precision: the factorised optimum, by hand."""
    precision, rate = 0.1, 10.0
    for _ in range(200):
        covariance = np.linalg.inv(precision * X.T @ X + np.eye(2) / 100)
        mean = covariance @ (precision * X.T @ REAL)
        spread = np.sum((REAL - X @ mean) ** 2) + np.trace(X.T @ X @ covariance)
        rate = 10 + spread / 2
        precision = (2 + N / 2) / rate
    of_precision = np.array([precision, (2 + N / 2) ** 0.5 / rate])
    return mean, np.sqrt(np.diag(covariance)), of_precision


def check_regression(method):
    mean, sd, of_precision = coordinate_ascent()
    idata = fitted(regression(), method, draws=20_000)
    weights = idata["fit_stats"]["mean_path"].isel(release=-1).to_numpy()
    np.testing.assert_allclose(weights, mean, atol=1e-3 * sd.min())
    draws = idata["posterior"].to_dataset()
    np.testing.assert_allclose(draws["w"].std(("chain", "draw")), sd, rtol=0.03)
    got = [float(draws["tau"].mean()), float(draws["tau"].std())]
    np.testing.assert_allclose(got, of_precision, rtol=0.03)


@pytest.mark.parametrize("method", ["vips", "dp_sep"])
def test_a_regression_with_unknown_noise_is_coordinate_ascents(method):
    check_regression(method)
