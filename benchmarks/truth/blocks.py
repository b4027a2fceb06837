"""Group d, last part: conjugate blocks whose statistics have no largest norm."""

import numpy as np
import pymc as pm

from benchmarks.truth.problem import CONJUGATE, Arrays, Problem, Truth

RECORDS, GROUPS, TRIALS = 5000, 8, 20
# where the mean of measurements is known to be
MEAN = 1.5


def _mean_count(rng: np.random.Generator) -> Truth:
    return {"rate": rng.gamma(2.0, 50.0)}


def _counts(truth: Truth, rng: np.random.Generator) -> Arrays:
    return {"y": rng.poisson(truth["rate"], RECORDS)}


def _poisson(data: Arrays) -> None:
    rate = pm.Gamma("rate", 2, 1 / 50.0)
    pm.Poisson("y", rate, observed=data["y"])


def _group_rates(rng: np.random.Generator) -> Truth:
    return {"rate": rng.gamma(2.0, size=GROUPS)}


def _events(truth: Truth, rng: np.random.Generator) -> Arrays:
    group, exposure = rng.integers(GROUPS, size=RECORDS), rng.uniform(0.2, 5, RECORDS)
    y = rng.poisson(exposure * truth["rate"][group])
    return {"group": group, "exposure": exposure, "y": y}


def _rates_of_groups(data: Arrays) -> None:
    rate = pm.Gamma("rate", 2, 1, shape=GROUPS)
    mean = rate[pm.Data("group", data["group"])] * pm.Data("exposure", data["exposure"])
    pm.Poisson("y", mean, observed=data["y"])


def _precision(rng: np.random.Generator) -> Truth:
    return {"tau": rng.gamma(2.0)}


def _variance(rng: np.random.Generator) -> Truth:
    return {"v": 2 / rng.gamma(3.0)}


def _measurements(truth: Truth, rng: np.random.Generator) -> Arrays:
    sd = np.sqrt(truth["v"] if "v" in truth else 1 / truth["tau"])
    return {"y": rng.normal(MEAN, sd, RECORDS)}


def _known_mean_and_precision(data: Arrays) -> None:
    pm.Normal("y", MEAN, tau=pm.Gamma("tau", 2, 1), observed=data["y"])


def _known_mean_and_variance(data: Arrays) -> None:
    v = pm.InverseGamma("v", 3, 2)
    pm.Normal("y", MEAN, pm.math.sqrt(v), observed=data["y"])


def _share(rng: np.random.Generator) -> Truth:
    return {"p": rng.beta(2, 5)}


def _successes(truth: Truth, rng: np.random.Generator) -> Arrays:
    return {"y": rng.binomial(TRIALS, truth["p"], RECORDS)}


def _binomial(data: Arrays) -> None:
    pm.Binomial("y", TRIALS, pm.Beta("p", 2, 5), observed=data["y"])


PROBLEMS = (
    Problem("counts", "d", _mean_count, _counts, _poisson, CONJUGATE),
    Problem("counts-8", "d", _group_rates, _events, _rates_of_groups, CONJUGATE),
    Problem("precision", "d", _precision, _measurements, _known_mean_and_precision, CONJUGATE),
    Problem("variance", "d", _variance, _measurements, _known_mean_and_variance, CONJUGATE),
    Problem("successes-20", "d", _share, _successes, _binomial, CONJUGATE),
)
