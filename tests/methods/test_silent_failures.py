"""Fits are right or say that they may not be: statements about whole fits of difficult models."""

import numpy as np
import pymc as pm
import pytest
from pymc.distributions.transforms import ordered
from scipy.special import expit
from scipy.stats import skewnorm

import pymc_dp
from pymc_dp.methods.method import doubts_in
from tests.zoo import build as model_of

FAR = 4.0  # sds: a fit whose truth is further away is wrong
SKEW = {"a": 1.0, "b": 0.5, "s": 1.0, "skew": 4.0}
SLOPE, CUTS = 12.0, (-6.0, 6.0)


def skewed_outcomes(rng, rows):
    x = rng.normal(size=rows)
    y = skewnorm.rvs(SKEW["skew"], 1 + 0.5 * x, 1.0, random_state=rng)

    def describe():
        mean = pm.Normal("a", 0, 2) + pm.Normal("b", 0, 2) * pm.Data("x", x)
        s, skew = pm.HalfNormal("s", 2), pm.Normal("skew", 0, 3)
        pm.SkewNormal("y", mu=mean, sigma=s, alpha=skew, observed=y)

    return model_of(describe)


def nearly_separate_clouds(rng):
    x = np.concatenate([rng.normal(centre, 0.15, 300) for centre in (-1, 0, 1)])
    above = expit(SLOPE * x[:, None] - np.array(CUTS))
    y = (rng.uniform(size=(len(x), 1)) < above).sum(axis=1)

    def describe():
        eta = pm.Normal("b", 0, 10) * pm.Data("x", x)
        cuts = pm.Normal("c", 0, 10, shape=2, transform=ordered, initval=[-1, 1])
        pm.OrderedLogistic("y", eta=eta, cutpoints=cuts, observed=y)

    return model_of(describe)


def fitted(model, epsilon):
    return pymc_dp.fit(
        model=model, epsilon=epsilon, delta=1e-5, progressbar=False, backend="python"
    )


def is_silently_wrong(idata, truth):
    """Whether a value is far from the truth, and the result has no doubt about anything."""
    posterior = idata["posterior"].to_dataset()
    mean, sd = (getattr(posterior, how)(("chain", "draw")) for how in ("mean", "std"))
    off = [np.abs(mean[name] - value) > FAR * sd[name] for name, value in truth.items()]
    return not doubts_in(idata["privacy"].attrs["doubts"]) and any(each.any() for each in off)


@pytest.mark.slow
def test_fits_of_skewed_outcomes_are_right_or_say_so():
    model = skewed_outcomes(np.random.default_rng(0), 6000)
    wrong = [is_silently_wrong(fitted(model, 1.0), SKEW) for _ in range(20)]
    assert sum(wrong) <= 1


@pytest.mark.slow
def test_fits_of_nearly_separate_clouds_are_right_or_say_so():
    truth = {"b": SLOPE, "c": np.array(CUTS)}
    rng = np.random.default_rng(0)
    wrong = [is_silently_wrong(fitted(nearly_separate_clouds(rng), 1.0), truth) for _ in range(20)]
    assert sum(wrong) <= 1
