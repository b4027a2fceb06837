"""Precisions of Normal noise: right where records are clipped, kept by the prior under noise."""

import functools

import numpy as np
import pymc as pm
import pytest
from scipy import integrate, stats

from pymc_dp.driver.compile_method import compile_method
from pymc_dp.driver.run import run_releases
from pymc_dp.driver.setup import set_up
from pymc_dp.methods.linear.noise_precision import Energies, NoisePrecision
from pymc_dp.methods.linear.residual_energy import Bounded
from pymc_dp.methods.normal import covariance_with_noise
from pymc_dp.model import Column, PrivateData
from pymc_dp.testing import deterministic_noise

pytestmark = [
    pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning"),
]
PRIOR = (np.array(1.0), np.array(1.0))  # Gamma(2, 1), in natural parameters
METHODS = {"vips": "residual", "dp_sep": "damped"}  # with the form of their own updates


# --- bounded energies ----------------------------------------------------------------------------


def expected(function, shape, ratio):
    """Expectation of a function of tau_0 e, where e has a Gamma(shape, tau) distribution."""
    law = stats.gamma(shape, scale=ratio)
    ends = law.ppf([1e-14, 1 - 1e-14])
    cut = float(Bounded.of(np.array(shape)).largest)
    inner = [cut] if ends[0] < cut < ends[1] else []
    # in the logarithm: at a shape of 1/2 the density has a pole at 0
    return integrate.quad(
        lambda x: function(np.exp(x)) * law.pdf(np.exp(x)) * np.exp(x),
        *np.log(ends),
        points=np.log(inner),
        limit=400,
    )[0]


@pytest.mark.parametrize("shape", [0.5, 1.0, 4.0])
def test_a_bounded_energy_is_0_on_average_and_has_the_slope_of_an_unbounded_one(shape):
    bounded = Bounded.of(np.array(shape))
    assert abs(expected(bounded, shape, 1.0)) < 1e-6
    step = 1e-3
    ends = [expected(bounded, shape, np.exp(x)) for x in (step, -step)]
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(shape, rel=1e-3)
    variance = expected(lambda g: bounded(g) ** 2, shape, 1.0)
    assert variance == pytest.approx(shape * (1 + float(bounded.loss)), rel=1e-5)


@pytest.mark.parametrize("shape", [0.5, 1.0, 4.0])
def test_it_is_no_longer_than_it_says(shape):
    bounded = Bounded.of(np.array(shape))
    values = bounded(np.array([-1e300, 0.0, 1e-9, 1.0, 30.0, 1e300, np.inf]))
    assert np.abs(values).max() == pytest.approx(float(bounded.longest), rel=1e-12)


# --- what a noisy sum says about the precision ---------------------------------------------------


def moments(found, draws=40_000):
    values = found.draw(draws, np.random.default_rng(0))
    return values.mean(), values.std()


def test_without_noise_it_is_the_conjugate_posterior():
    found = NoisePrecision.of(PRIOR, Energies(100.0, 40.0, 0.0))
    assert found.of_records == (100.0, pytest.approx(40.0))
    law = stats.gamma(102, scale=1 / 41)
    np.testing.assert_allclose(moments(found), (law.mean(), law.std()), rtol=0.02)


def test_with_noise_alone_it_is_the_prior():
    for value in (-1e6, 0.0, 1e6):
        found = NoisePrecision.of(PRIOR, Energies(100.0, value, 1e16))
        law = stats.gamma(2, scale=1.0)
        np.testing.assert_allclose(moments(found), (law.mean(), law.std()), rtol=0.03)


@pytest.mark.parametrize("sd", [0.01, 1.0, 10.0, 60.0])
@pytest.mark.parametrize("shape", [2.0, 100.0])
def test_in_between_it_is_what_bayes_rule_says(shape, sd):
    """By a grid over the precision and the true sum."""
    value = shape / 2.5 + 0.5 * sd
    found = NoisePrecision.of(PRIOR, Energies(shape, value, sd**2))
    tau = np.exp(np.linspace(-9, 4, 1301))[:, None]
    around = value + np.linspace(-8, 8, 801) * sd
    total = np.unique(np.append(np.geomspace(1e-6, 100 * (value + sd), 801), around[around > 1e-6]))
    logs = stats.gamma(2, scale=1.0).logpdf(tau) + (1 + shape) * np.log(tau)
    logs = logs + (shape - 1) * np.log(total) - tau * total - (total - value) ** 2 / (2 * sd**2)
    logs = logs + np.log(np.gradient(total))
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    mean = float((mass * tau).sum())
    wanted = mean, float(((mass * tau**2).sum() - mean**2) ** 0.5)
    np.testing.assert_allclose(moments(found), wanted, rtol=0.04)
    shape_of_records, rate = found.of_records
    assert (2 + shape_of_records) / (1 + rate) == pytest.approx(mean, rel=0.01)


# --- never wider than the prior ------------------------------------------------------------------


def matrices(seed, d=5):
    """Covariance and noise on any scale, and a prior's precision."""
    rng = np.random.default_rng(seed)
    of_prior, of_records, of_noise = (
        (lambda A: A @ A.T)(rng.normal(size=(d, d)) * 10.0 ** rng.uniform(-1.5, 1.5, size=d))
        for _ in range(3)
    )
    precision = of_prior + 1e-6 * np.eye(d)
    covariance = np.linalg.inv(precision + of_records)
    return covariance, covariance @ of_noise @ covariance * 10.0 ** rng.uniform(-3, 3), precision


def widest(covariance, precision):
    """The largest variance over that of the prior, over all directions."""
    root = np.linalg.cholesky(precision)
    return np.linalg.eigvalsh(root.T @ covariance @ root).max()


@pytest.mark.parametrize("seed", range(20))
def test_no_noise_makes_a_posterior_wider_than_its_prior(seed):
    covariance, noise, precision = matrices(seed)
    found = covariance_with_noise(covariance, noise, precision)
    assert widest(found, precision) < 1 + 1e-4
    unit = np.sqrt(np.diag(covariance))
    assert np.linalg.eigvalsh((found - covariance) / np.outer(unit, unit)).min() > -1e-6


# --- whole fits ----------------------------------------------------------------------------------


def outcomes(rows, d, seed):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(rows), rng.normal(size=(rows, d - 1))])
    return X, X @ rng.normal(size=d) + 0.7 * rng.normal(size=rows)


@functools.cache
def fitter(method, rows, d, epsilon):
    """Compile once; return draws of the precision and the weights for data and noise of a seed."""
    X, y = outcomes(rows, d, 0)
    with pm.Model() as model:
        psi = pm.Data("X", X) @ pm.Normal("w", 0, 1, shape=d)
        pm.Normal("y", psi, tau=pm.Gamma("tau", 2, 1), observed=y)
    terms = {"epsilon": epsilon, "delta": 1e-5, "sampling": "full", "form": METHODS[method]}
    ready = set_up(model, method, None, **terms)
    compiled = compile_method(ready, "python")

    def fit(seed):
        data = outcomes(rows, d, seed)
        columns = {
            name: Column(data[len(spec.shape) == 1], spec.axis, spec.dtype)
            for name, spec in ready.data.spec.items()
        }
        held = ready._replace(data=PrivateData(columns))
        with deterministic_noise(seed):
            states, _ = run_releases(
                held, compiled, np.random.default_rng(seed), range(ready.plan.total)
            )
        drawn = ready.method.draw(states[-1], 400, np.random.default_rng(seed))
        return drawn["tau"], drawn["w"]

    return fit


def extremes(method):
    """Over many noises: the smallest and largest median of the precision, the largest sd."""
    fit = fitter(method, 500, 3, 0.1)
    fits = [fit(seed) for seed in range(10)]
    medians = [np.median(tau) for tau, _ in fits]
    return min(medians), max(medians), max(w.std(axis=0).max() for _, w in fits)


@pytest.mark.parametrize("method", METHODS)
def test_no_noise_carries_the_precision_away(method):
    least, most, widest_sd = extremes(method)
    assert least > 0.3  # the prior's 5% quantile
    assert most < 5.0  # and 96%
    assert widest_sd < 1.15  # of 400 draws, where the prior has 1


def errors_of_log_precision(method):
    """Over data sets: errors of log tau, and its standard deviation."""
    fit = fitter(method, 4000, 4, 2.0)
    logs = [np.log(fit(seed)[0]) for seed in range(8)]
    return np.array([(x.mean() + 2 * np.log(0.7), x.std()) for x in logs]).T


@pytest.mark.parametrize("method", METHODS)
def test_the_precision_is_right_although_records_are_clipped(method):
    error, sd = errors_of_log_precision(method)
    assert np.all(np.abs(error) < 5 * sd)
    assert abs(np.mean(error / sd)) < 5 / 8**0.5
    assert np.mean(sd) < 0.06  # 8000 ** -0.5 = .022 is what the records allow without noise
