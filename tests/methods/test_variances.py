"""Variances with inverse gamma priors, as a conjugate family and behind linear predictors."""

import functools
import math

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp
from tests.zoo import build

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")

N = 400
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, 2))
REAL = X @ [1.5, -0.5] + 0.7 * RNG.normal(size=N)
GROUP = np.arange(N) % 8
EFFECTS = RNG.normal(0, 0.8, 8)[GROUP] + 0.5 * RNG.normal(size=N)


def fitted(model, method, **settings):
    settings = {"progressbar": False, "backend": "python", "random_seed": 1, **settings}
    return pymc_dp.fit(model=model, method=method, epsilon=math.inf, sampling="full", **settings)


# --- fits without noise --------------------------------------------------------------------------


def test_a_variance_about_a_known_mean_has_its_conjugate_posterior():
    with pm.Model() as model:
        v = pm.InverseGamma("v", 3, 2)
        pm.Normal("y", 1.0, pm.math.sqrt(v), observed=REAL)
    fit = fitted(model, "vips")["fit"]
    assert float(fit["v.log_inverse_coefficient"]) - 1 == pytest.approx(3 + N / 2)
    assert float(fit["v.inverse_coefficient"]) == pytest.approx(2 + np.sum((REAL - 1) ** 2) / 2)


def groups():
    v, s = pm.InverseGamma("v", 3, 2), pm.InverseGamma("s", 2, 1)
    effect = pm.Normal("effect", 0, pm.math.sqrt(s), shape=8)
    mean = effect[pm.Data("group", GROUP)]
    pm.Normal("y", mean, pm.math.sqrt(v), observed=EFFECTS)


built = functools.cache(build)


def coordinate_ascent_of_groups():
    """Means and variances of the effects, and (shape, rate) of s and v, by hand."""
    count, total = np.bincount(GROUP), np.bincount(GROUP, EFFECTS)
    of_s, of_v = (2 + 8 / 2, 1.0), (3 + N / 2, 2.0)
    for _ in range(500):
        precision = of_s[0] / of_s[1] + count * of_v[0] / of_v[1]
        mean = of_v[0] / of_v[1] * total / precision
        of_s = (of_s[0], 1 + np.sum(mean**2 + 1 / precision) / 2)
        squares = np.sum((EFFECTS - mean[GROUP]) ** 2) + np.sum(count / precision)
        of_v = (of_v[0], 2 + squares / 2)
    return mean, 1 / precision, of_s, of_v


@pytest.mark.parametrize("method", ["vips", "dp_sep"])
def test_groups_with_unknown_variances_are_coordinate_ascents(method):
    mean, variance, of_s, of_v = coordinate_ascent_of_groups()
    fit = fitted(built(groups), method, draws=4000)
    path = fit["fit_stats"]["mean_path"].isel(release=-1).to_numpy()
    np.testing.assert_allclose(path, mean, atol=1e-3)
    found = np.diag(fit["fit"]["covariance_matrix"])
    np.testing.assert_allclose(found, variance, rtol=1e-3)
    for name, (shape, rate) in {"s": of_s, "v": of_v}.items():
        got = [fit["fit"][f"{name}.{x}inverse_coefficient"].item() for x in ("log_", "")]
        np.testing.assert_allclose(got, (shape + 1, rate), rtol=1e-3)
        law = stats.invgamma(shape, scale=rate)
        assert stats.kstest(fit["posterior"][name].to_numpy().ravel(), law.cdf).pvalue > 1e-6
