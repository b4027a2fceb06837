"""The first release shows how large scores are, or lets rounds begin without it."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.contributions.score_scales import BINS, LEAST
from pymc_dp.driver.fit import set_up
from pymc_dp.methods.gaussian.latent_scales import sums_of_squares
from pymc_dp.testing import deterministic_noise

TRUTH = np.array([1.0, -1.0, 0.5, 0.0])


def regression(rows):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 4))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=4)
        s = pm.HalfNormal("s", 1)
        pm.Normal("y", pm.Data("X", X) @ b, s, observed=rng.normal(X @ TRUTH, 1))
    return model


def check_effects_are_found(model, key, **terms):
    with deterministic_noise(key):
        idata = pymc_dp.fit(model=model, delta=1e-5, progressbar=False, backend="python", **terms)
    b = idata["posterior"]["b"]
    mean, sd = (getattr(b, name)(("chain", "draw")).to_numpy() for name in ("mean", "std"))
    assert sd.max() < 0.5
    assert (abs(mean - TRUTH) < 4 * sd).all()


@pytest.mark.parametrize("key", [0, 1])
@pytest.mark.parametrize(
    ("rows", "terms"), [(400, {"epsilon": 1}), (3000, {"epsilon": 0.1, "num_records": 3000})]
)
def test_effects_are_found_where_noise_hides_the_scales_of_single_latents(rows, terms, key):
    check_effects_are_found(regression(rows), key, **terms)


def histograms(scores):
    """Counts of scores, (d, rows), by bins, (d, BINS)."""
    bins = np.floor(np.log2(abs(scores))).astype(int) - LEAST
    return np.array([np.bincount(each, minlength=BINS) for each in bins])


def scales_of_alike_latents(number, sd, seed):
    """Mean squares of ten latents' scores that have one distribution, from noisy histograms."""
    rng = np.random.default_rng(seed)
    counts = histograms(np.prod(rng.normal(size=(2, 10, number)), axis=0))
    return sums_of_squares(counts + rng.normal(0, sd, counts.shape), sd) / number


@pytest.mark.parametrize("number", [3000, 4000, 5000])
def test_alike_latents_have_alike_scales_at_the_edge_of_the_noise(number):
    # a bin has a fifth of the records at most, and is visible from 1250 on
    found = np.array([scales_of_alike_latents(number, 250.0, seed) for seed in range(20)])
    assert np.median(found.max(axis=1) / found.min(axis=1)) < 10
    assert 0.3 < np.median(found) < 2


def test_noise_on_counts_of_long_scores_makes_no_scale_longer():
    found = np.array([scales_of_alike_latents(10_000, 250.0, seed) for seed in range(20)])
    assert (found.max(axis=1) / found.min(axis=1)).max() < 6


def test_a_latent_whose_scores_have_long_tails_has_its_own_scale_where_noise_does_not_hide_it():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(20_000, 3)), rng.lognormal(0, 2, 20_000)])
    scores = (X * rng.normal(size=(20_000, 1))).T
    found = sums_of_squares(histograms(scores), sd=0.0) / (scores**2).sum(axis=1)
    # a bin holds squares that differ by a factor of 4
    np.testing.assert_allclose(found, 1, atol=0.5)


def test_without_noise_a_latent_without_scores_has_no_scale():
    counts = np.zeros((2, BINS))
    counts[0, -LEAST], counts[1, 0] = 100.0, 100.0
    assert sums_of_squares(counts, sd=0.0)[1] < 1e-100


def share_of_scales(**terms):
    plan = set_up(regression(30), "dp_advi", None, delta=1e-5, **terms).plan
    costs = [release.count / release.noise_multiplier**2 for release in plan.releases]
    return costs[0] / sum(costs)


def test_small_budgets_and_few_declared_records_buy_scales_a_larger_share():
    assert share_of_scales(epsilon=1) == pytest.approx(0.04, rel=0.01)
    assert share_of_scales(epsilon=0.1) > 0.1
    assert share_of_scales(epsilon=1, num_records=500) > 0.1
    assert share_of_scales(epsilon=0.001) == pytest.approx(0.2, rel=0.01)
    assert share_of_scales(noise_multiplier=1000) == pytest.approx(0.2, rel=0.01)


def test_a_budget_that_no_single_sum_keeps_to_is_not_refused_for_it():
    plan = set_up(regression(30), "dp_ops", None, epsilon=1e-5, delta=1e-5).plan
    assert plan.epsilon() <= 1e-5
    assert share_of_scales(epsilon=0.001, accountant="rdp") == pytest.approx(0.2, rel=0.01)
