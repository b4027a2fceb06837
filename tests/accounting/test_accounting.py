"""Epsilon and calibration: the numbers that the package claims."""

import time
from functools import partial

import numpy as np
import pytest

from pymc_dp.accounting.accountants import PLD
from pymc_dp.accounting.plan import Full, Poisson, ReleaseSpec, _cached
from pymc_dp.calibration.budget import calibrate_plan
from pymc_dp.driver.explain import calibrate, epsilon
from pymc_dp.errors import PrivacyWarning
from tests.plans import plan_from

ACCOUNTANTS = ("pld", "rdp", "rdp_dp_accounting")
TERMS = plan_from((), "add_remove", 1e-5, "pld")
# sample rate, noise multiplier, releases, delta -> rdp, rdp_dp_accounting, pld, and what an
# independent accountant (PRV) says.
POISSON = [
    (0.01, 4, 10_000, 1e-5, 1.0355, 1.0355, 0.9470, 0.9469),
    (256 / 6e4, 1.1, 14_040, 1e-5, 2.5948, 2.5944, 2.3796, 2.3796),
    (0.001, 1, 1000, 1e-5, 0.6778, 0.6778, 0.1490, 0.1489),
    (0.02, 2, 1000, 1e-3, 1.0039, 1.0024, 0.8628, 0.8627),
    (0.02, 1, 1000, 1e-4, 3.7488, 3.7320, 3.3070, 3.3070),
    (0.1, 3, 300, 1e-5, 2.7240, 2.7223, 2.4948, 2.4948),
    (0.05, 1.24, 20, 1e-4, 1.2145, 1.2133, 0.9320, 0.9320),
    (0.01, 1.5131, 1000, 1e-5, 1.0000, 1.0000, 0.9062, 0.9062),
]


@pytest.mark.parametrize(("q", "sigma", "n", "delta", "rdp", "rdp_2", "pld", "prv"), POISSON)
def test_poisson_spend_is_the_reference(q, sigma, n, delta, rdp, rdp_2, pld, prv):
    setting = {"noise_multiplier": sigma, "sample_rate": q, "n": n, "delta": delta}
    expected = {"rdp": rdp, "rdp_dp_accounting": rdp_2, "pld": pld}
    for accountant, value in expected.items():
        assert epsilon(**setting, accountant=accountant) == pytest.approx(value, abs=6e-5)
    assert epsilon(**setting) == pytest.approx(prv, abs=2e-4)


def full_batch(noise_multiplier, *, n=1, **others):
    return epsilon(
        noise_multiplier=noise_multiplier, sample_rate=1, n=n, delta=1e-5, sampling="full", **others
    )


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize(
    ("argument", "rising"),
    [
        ("sample_rate", [0.01, 0.02, 0.2, 1.0]),
        ("n", [1, 20, 300]),
        ("noise_multiplier", [9.0, 3.0, 1.0]),
        ("delta", [1e-3, 1e-5, 1e-9]),
    ],
)
def test_spend_rises_with_rate_and_releases_and_falls_with_noise_and_delta(
    accountant, argument, rising
):
    setting = {"sample_rate": 0.05, "n": 100, "noise_multiplier": 2.0, "delta": 1e-5}
    spends = [epsilon(**(setting | {argument: value}), accountant=accountant) for value in rising]
    assert np.all(np.diff(spends) > 0)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize(("sampling", "q"), [("poisson", 0.02), ("full", 1.0)])
def test_zero_out_costs_what_add_remove_does(accountant, sampling, q):
    setting = {"noise_multiplier": 2.0, "sample_rate": q, "n": 100, "delta": 1e-5}
    setting |= {"sampling": sampling, "accountant": accountant}
    assert epsilon(**setting, neighbours="zero_out") == epsilon(**setting)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_replacing_a_record_needs_twice_the_noise(accountant):
    replaced = full_batch(4.0, neighbours="replace_one", accountant=accountant)
    assert replaced == full_batch(2.0, accountant=accountant)


def test_an_accountant_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="accountant='moments' is unknown"):
        epsilon(noise_multiplier=4.0, sample_rate=0.1, n=10, delta=1e-5, accountant="moments")


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize(("sampling", "q"), [("poisson", 0.1), ("full", 1.0)])
def test_no_noise_is_no_privacy(accountant, sampling, q):
    setting = {"sample_rate": q, "n": 1, "delta": 1e-5, "sampling": sampling}
    assert epsilon(noise_multiplier=0.0, **setting, accountant=accountant) == np.inf
    assert calibrate(epsilon=np.inf, **setting, accountant=accountant) == 0.0


SETTINGS = [
    {"sample_rate": 0.1, "n": 200},
    {"sample_rate": 0.1, "n": 10_000},
    {"sample_rate": 1.0, "n": 50, "sampling": "full"},
    {"sample_rate": 0.1, "n": 200, "neighbours": "replace_one"},
    {"sample_rate": 0.1, "n": 200, "accountant": "rdp"},
    {"sample_rate": 0.1, "n": 200, "accountant": "rdp_dp_accounting"},
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_calibrated_noise_spends_the_budget_and_no_more(setting):
    sigma = calibrate(epsilon=1.0, delta=1e-5, **setting)
    assert 0.98 < epsilon(noise_multiplier=sigma, delta=1e-5, **setting) <= 1.0


def test_calibration_keeps_the_shares_of_a_mixed_plan():
    score = ReleaseSpec("score", Poisson(0.1), 1.0, count=90)
    late = ReleaseSpec("score", Poisson(0.2), 0.5, count=10)
    moments = ReleaseSpec("moments", Full(), 3.0, count=1, share=0.25)
    plan = calibrate_plan(TERMS, [score, late, moments], 2.0)
    assert 1.96 < plan.epsilon() <= 2.0
    noise = [release.noise_multiplier for release in plan.releases]
    spent = 90 * 0.1**2 + 10 * 0.2**2  # which are three quarters
    assert np.array(noise) / noise[0] == pytest.approx([1, 1, (spent / 3) ** -0.5])


def test_releases_of_small_batches_with_a_large_share_of_the_budget_are_calibrated():
    many = ReleaseSpec("many", Poisson(0.1), 1.0, count=1000)
    one = ReleaseSpec("one", Poisson(0.01), 1.0, count=1, share=0.5)
    plan = calibrate_plan(TERMS, [many, one], 100.0)
    assert plan.releases[1].noise_multiplier == pytest.approx(0.3, rel=1e-3)  # the least
    assert plan.epsilon() <= 100


def test_a_generous_budget_is_not_spent_on_less_noise_than_accountants_are_reliable_at():
    with pytest.warns(PrivacyWarning, match="below 0.5"):
        noise = calibrate(epsilon=1000.0, delta=1e-5, sample_rate=0.5, n=1, sampling="poisson")
    assert noise == pytest.approx(0.3)


@pytest.mark.filterwarnings("ignore:Release .* has noise_multiplier")
def test_a_generous_budget_of_batches_of_all_records_is_spent():
    noise = calibrate(epsilon=1e6, delta=1e-5, sample_rate=1, n=1, sampling="full")
    assert 0.98e6 < full_batch(noise) <= 1e6


def test_calibration_refuses_what_it_cannot_reach():
    with pytest.raises(ValueError, match="must be above 0"):
        calibrate(epsilon=float("nan"), sample_rate=0.1, n=10, delta=1e-5)
    out_of_reach = {"epsilon": 1e-3, "delta": 1e-9, "accountant": "rdp_dp_accounting"}
    with pytest.raises(ValueError, match="cannot certify"):
        calibrate(**out_of_reach, sample_rate=1, n=1, sampling="full")


def test_autodp_is_never_asked_for_its_characteristic_functions(monkeypatch):
    from autodp import autodp_core, converter, phi_bank, transformer_zoo

    def refuse(*args, **kwargs):
        raise AssertionError("a phi path of autodp was called")

    for module in (converter, phi_bank):
        for name in [name for name in dir(module) if "phi" in name or "cdf" in name]:
            monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(transformer_zoo.ComposeAFA, "__init__", refuse)
    monkeypatch.setattr(transformer_zoo.AmplificationBySampling_pld, "__init__", refuse)
    propagate, seen = autodp_core.Mechanism.propagate_updates, set()

    def watched(self, func, type_of_update, *args, **kwargs):
        seen.add(type_of_update)
        return propagate(self, func, type_of_update, *args, **kwargs)

    monkeypatch.setattr(autodp_core.Mechanism, "propagate_updates", watched)
    _cached.cache_clear()  # or nothing at all would be called
    for terms in ({"sample_rate": 0.1}, {"sample_rate": 1, "sampling": "full"}):
        setting = {"noise_multiplier": 4.0, "sample_rate": 0.1, "n": 10, "delta": 1e-5}
        assert epsilon(**(setting | terms), accountant="rdp") > 0
    assert seen == {"RDP", "approxDP_func"}


def test_a_schedule_of_many_rates_is_calibrated_in_seconds_and_on_the_safe_side():
    rates = np.linspace(0.05, 0.15, 17)
    specs = [ReleaseSpec("score", Poisson(float(q)), 1.0, count=1) for q in rates]
    start = time.process_time()
    calibrated = calibrate_plan(TERMS, specs, 1.0)
    assert time.process_time() - start < 18  # a few seconds, on a busy machine too
    finer = PLD._replace(of_sums=partial(PLD.of_sums, grid=5e-4))
    [fine] = finer.estimates(calibrated, (1e-5,))
    assert 0.98 < fine <= calibrated.epsilon() <= 1
