"""The histograms that mixtures of numbers start from: what they release, and what they find."""

import functools

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.contributions.checks import HISTOGRAM_NORM, outcome_histogram
from pymc_dp.driver.fit import set_up
from pymc_dp.methods.mixture.histogram import (
    DEFAULTS,
    HISTOGRAM,
    ScalarMixture,
    first_state,
    update,
)
from pymc_dp.model import separate
from pymc_dp.privacy.contribution import Noisy
from pymc_dp.testing import deterministic_noise
from tests.zoo import build

ROWS, SHARES = 3000, np.array([0.5, 0.3, 0.2])
RNG = np.random.default_rng(5)
WHICH = RNG.choice(3, ROWS, p=SHARES)
RATES, CENTRES, SDS = np.array([2.0, 9.0, 25.0]), np.array([-3.0, 0.0, 4.0]), np.ones(3)
COUNTS = RNG.poisson(RATES[WHICH])
NUMBERS = RNG.normal(CENTRES[WHICH], SDS[WHICH])
# the noise on a histogram where epsilon = 1, delta = 1e-5
NOISE = 3.73 / (DEFAULTS.histogram_share / 2) ** 0.5


def of_counts():
    rates = pm.Gamma("x", 1.5, 0.1, shape=3)
    pm.Mixture("y", pm.Dirichlet("w", np.full(3, 2.0)), pm.Poisson.dist(rates), observed=COUNTS)


def of_unknown_widths():
    x, tau = pm.Normal("x", 0, 4, shape=3), pm.Gamma("tau", 3, 3, shape=3)
    pm.NormalMixture("y", pm.Dirichlet("w", np.full(3, 2.0)), x, tau=tau, observed=NUMBERS)


model_of = functools.cache(build)


@functools.cache
def mixture_of(build):
    return ScalarMixture.of(separate(model_of(build))[0])


def found(build, outcomes, seed):
    """Make both histograms with noise, and return where they place the components."""
    mixture, rng = mixture_of(build), np.random.default_rng(seed)
    added = outcome_histogram(mixture.leaf, DEFAULTS.bins)
    state = first_state(mixture)
    for _ in range(2):
        total = added.rows({mixture.leaf: outcomes}, state.edges).sum(axis=0)
        noisy = Noisy(total + NOISE * rng.normal(size=DEFAULTS.bins), NOISE, 1.0)
        state = update(mixture, state, None, noisy)
    return state.start


def counts_from(start):
    rates = pm.Gamma("x", 1.5, 0.1, shape=3, initval=start)
    pm.Mixture("y", pm.Dirichlet("w", np.full(3, 2.0)), pm.Poisson.dist(rates), observed=COUNTS)


def test_components_keep_the_order_of_their_initial_values():
    order = [2, 0, 1]
    build = functools.partial(counts_from, np.array([1.0, 10.0, 30.0])[order])
    values = found(build, COUNTS, seed=0)
    assert (np.argsort(values["x_log__"]) == np.argsort(RATES[order])).all()


def test_a_record_counts_once_wherever_its_outcome_lies():
    outcomes = np.array([-1e300, -1.0, 0.0, 0.5, 1.0, 2.0, 1e300])
    rows = outcome_histogram("y", 4).rows({"y": outcomes}, np.array([0.0, 1.0, 1.0]))
    assert (np.linalg.norm(rows, axis=1) == HISTOGRAM_NORM).all()
    assert rows.argmax(axis=1).tolist() == [0, 0, 0, 1, 1, 3, 3]


@pytest.mark.parametrize("outcome", [np.nan, np.inf, -np.inf])
def test_an_outcome_that_is_no_number_counts_nowhere(outcome):
    rows = outcome_histogram("y", 4).rows({"y": np.array([outcome])}, np.array([0.0, 1.0, 2.0]))
    assert np.isnan(rows).all()


FITS = [("dp_advi", of_counts, RATES), ("vips", of_unknown_widths, CENTRES)]


@pytest.mark.parametrize(("method", "build", "truth"), FITS)
def test_fits_cover_components_that_start_alike(method, build, truth):
    settings = {"epsilon": 1, "delta": 1e-5, "progressbar": False, "backend": "python"}
    with deterministic_noise(3):
        idata = pymc_dp.fit(model=model_of(build), method=method, random_seed=1, **settings)
    draws = np.sort(idata["posterior"]["x"].to_numpy()[0], axis=1)
    assert (abs(draws.mean(axis=0) - truth) < 4 * draws.std(axis=0)).all()
    assert (draws.std(axis=0) < 0.1 * np.ptp(truth)).all()


@pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")
def test_a_fit_that_is_stopped_before_the_rounds_has_a_result():
    def stop(state, loss, i):
        raise StopIteration

    settings = {"progressbar": False, "backend": "python", "draws": 20, "callbacks": [stop]}
    idata = pymc_dp.fit(model=model_of(of_counts), epsilon=1, delta=1e-5, **settings)
    assert idata["privacy"].attrs["releases_made"] == 1
    assert np.isfinite(idata["posterior"]["x"]).all()


def releases(build, method="dp_advi"):
    plan = set_up(model_of(build), method, None, noise_multiplier=5.0, delta=1e-5).plan
    return {release.name for release in plan.releases}


def with_a_predictor():
    x, shift = pm.Normal("x", 0, 4, shape=3), pm.Data("shift", NUMBERS[::-1])[:, None]
    parts = pm.Normal.dist(x + shift, 1.0)
    pm.Mixture("y", pm.Dirichlet("w", np.full(3, 2.0)), parts, observed=NUMBERS)


def of_no_mixture():
    pm.Poisson("y", pm.Gamma("x", 1.5, 0.1), observed=COUNTS)


def test_histograms_are_for_mixtures_of_numbers_alone():
    assert HISTOGRAM in releases(of_counts)
    assert HISTOGRAM not in releases(with_a_predictor)
    assert HISTOGRAM not in releases(of_no_mixture)
