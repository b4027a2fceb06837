"""Records that a likelihood rules out, long features and singular designs do a fit no harm."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.testing import deterministic_noise

N = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
POSITIVE = RNG.uniform(0.1, 3.0, N)
YES = RNG.integers(0, 2, N)
COUNTS = RNG.integers(0, 5, N)


def fitted(build, values, **settings):
    with pm.Model() as model:
        build(values)
    settings = {"noise_multiplier": 2.0, "delta": 1e-5, "sampling": "full", **settings}
    # own updates: rounds draw outcomes for every record, so that one more changes them all
    settings = {"method": "vips", "noise_aware": False, "n": 6, **settings}
    with deterministic_noise(1):
        return pymc_dp.fit(
            model=model, draws=3, random_seed=1, progressbar=False, backend="python", **settings
        )


def numbers(idata):
    """All that a fit says, by name; every number is finite."""
    groups = ("posterior", "fit", "fit_stats")
    found = {(group, key): v.values for group in groups for key, v in idata[group].items()}
    assert [name for name, values in found.items() if not np.isfinite(values).all()] == []
    return found


def same_fit(first, second):
    first, second = numbers(first), numbers(second)
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_allclose(values, second[name], rtol=1e-9, atol=1e-9)


def logistic(x):
    pm.Bernoulli("y", logit_p=pm.Data("X", x) @ pm.Normal("b", 0, 2, shape=2), observed=YES)


def log_link_at(x):
    eta = pm.Data("X", x) @ pm.Normal("b", 0, 2, shape=2)
    pm.Poisson("y", pm.math.exp(eta), observed=COUNTS)


def slopes_of(rows):
    return pm.Data("X", np.resize(X, (rows, 2))) @ pm.Normal("b", 0, 2, shape=2)


def logistic_outcomes(y):
    pm.Bernoulli("y", logit_p=slopes_of(len(y)), observed=y)


def one_share(y):
    pm.Bernoulli("y", pm.Beta("p", 2, 2), observed=y)


def exposed(exposure):
    y = np.resize(COUNTS, len(exposure))
    pm.Poisson("y", pm.Gamma("r", 2, 1) * pm.Data("exposure", exposure), observed=y)


def log_link(y):
    pm.Poisson("y", pm.math.exp(slopes_of(len(y))), observed=y)


def bumps(y):
    w, mu = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", 0, 3, shape=2)
    pm.NormalMixture("y", w, mu, sigma=1.0, observed=y)


IMPOSSIBLE = {
    "vips": [
        (logistic_outcomes, YES, [2, -1]),
        (one_share, YES, [2, -1]),
        (exposed, POSITIVE, [-1.0, math.inf]),
    ],
    "dp_sep": [
        (logistic_outcomes, YES, [2, -1]),
        (log_link, COUNTS, [-1, -(2**30)]),
        (bumps, POSITIVE, [math.inf, 1e300]),
    ],
}


@pytest.mark.parametrize(
    ("method", "build", "values", "impossible"),
    [(method, *case) for method, cases in IMPOSSIBLE.items() for case in cases],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_impossible_record_is_as_one_that_is_not_there(method, build, values, impossible):
    # features repeat with the period of the data, so the first rows are the same
    spoiled = np.append(values, np.array(impossible, values.dtype))
    same_fit(*(fitted(build, y, method=method) for y in (spoiled, values)))


def constant_column(rows):
    return np.column_stack([rows[:, 0], np.zeros(len(rows))])


def column_twice(rows):
    return np.column_stack([rows[:, 0], rows[:, 0]])


def nothing_at_all(rows):
    return np.zeros_like(rows)


def one_extreme(rows):
    return np.where(np.arange(len(rows))[:, None] == 3, 1e150, rows)


def all_too_large(rows):
    return 1e200 * rows


SINGULAR = (constant_column, column_twice, nothing_at_all)
EXTREME = (one_extreme, all_too_large)
LITERAL = {"form": "algorithm3", "num_records": N, "sample_rate": 1.0, "n": 5}


@pytest.mark.parametrize(
    ("method", "build", "spoil", "settings"),
    [
        *(("vips", logistic, x, {"form": "paper"}) for x in SINGULAR),
        ("vips", logistic, nothing_at_all, {"form": "absolute"}),
        *(("dp_sep", log_link_at, x, {}) for x in (*SINGULAR, *EXTREME)),
        ("dp_sep", log_link_at, one_extreme, LITERAL),
    ],
)
@pytest.mark.filterwarnings("ignore:form='algorithm3' is for reproduction")
def test_a_singular_or_extreme_design_gives_a_proper_posterior(method, build, spoil, settings):
    idata = fitted(build, spoil(X), method=method, **settings)
    numbers(idata)
    eigenvalues = np.linalg.eigvalsh(idata["fit"]["covariance_matrix"])
    # the prior's variance is the most that remains
    assert 0 < eigenvalues.min() <= eigenvalues.max() <= 4 * (1 + 1e-9)


@pytest.mark.parametrize("y", [np.zeros(N), np.full(N, 1e150), np.full(N, math.inf)])
def test_a_mixture_of_odd_outcomes_gives_a_proper_posterior(y):
    idata = fitted(bumps, y, method="dp_sep")
    numbers(idata)
    assert (np.abs(idata["fit"]["mean_vector"]) < 1e5).all()
