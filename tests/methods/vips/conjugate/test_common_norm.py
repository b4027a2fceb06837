"""Sums are released where all records' statistics have one norm; rounds fit all others."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp
from pymc_dp.driver.fit import set_up
from pymc_dp.testing import deterministic_noise
from tests.methods.vips.vips_fits import (
    CATEGORY,
    COUNTS,
    GROUP,
    SUCCESSES,
    TRIALS,
    VOTES,
    WAITS,
    YES,
    N,
    Y,
)
from tests.zoo import build as model_of

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
    (lambda: pm.Bernoulli("y", probability(shape=3)[GROUP], observed=YES), 1),
    (lambda: pm.Bernoulli("y", probability(shape=4), observed=np.resize(YES, (N, 4))), 2),
    (lambda: pm.Categorical("y", shares(), observed=CATEGORY), 1),
    (lambda: pm.Categorical("y", shares(3)[GROUP], observed=CATEGORY), 1),
]


@pytest.mark.parametrize(("build", "norm"), OF_ONE_NORM)
def test_successes_and_categories_are_counted_once_at_their_own_norm(build, norm):
    [release] = releases(build)
    assert release.clip_norm == pytest.approx(norm)
    assert (release.name, release.count) == ("statistics", 1)


OF_MANY_NORMS = {
    "trials": lambda: pm.Binomial("y", 8, probability(), observed=SUCCESSES),
    "trials of records": lambda: pm.Binomial(
        "y", pm.Data("trials", TRIALS), probability(), observed=SUCCESSES
    ),
    "votes": lambda: pm.Multinomial("y", 5, pm.Dirichlet("p", np.ones(3)), observed=VOTES),
    "attempts": lambda: pm.Geometric("y", probability(), observed=COUNTS + 1),
    "failures": lambda: pm.NegativeBinomial("y", n=1, p=probability(), observed=COUNTS),
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


def counts(y):
    numbers = stats.poisson(3).ppf(stats.expon(0, 1 / 3).cdf(y)).astype(int)
    pm.Poisson("y", pm.Gamma("x", 2, 0.5), observed=numbers)
    return stats.gamma(2 + numbers.sum(), scale=1 / (0.5 + ROWS))


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


@pytest.mark.parametrize("build", [waiting_times, counts, variance])
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
