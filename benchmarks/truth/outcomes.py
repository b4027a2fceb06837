"""Group d, first part: one linear predictor and outcomes of many kinds."""

from functools import partial

import numpy as np
import pymc as pm
from scipy.special import expit

from benchmarks.truth.designs import answers, logistic
from benchmarks.truth.problem import ALL, ANY, CONJUGATE, Arrays, Problem, Truth

RECORDS, MANY = 5000, 10_000
SLOPE_SD = 0.5
# durations are observed up to here
END = 2.0
# answers on a scale of five steps: where the steps are expected
STEPS = np.array([-2.0, -0.7, 0.7, 2.0])
# log odds of 6% of the people
RARE = -3.1


def predictors(size: int, rng: np.random.Generator) -> np.ndarray:
    """Normal predictors, and a column of ones."""
    return np.column_stack([np.ones(RECORDS), rng.normal(size=(RECORDS, size - 1))])


def slopes(size: int, rng: np.random.Generator) -> Truth:
    """Draw coefficients that change an outcome moderately."""
    return {"b": rng.normal(0, SLOPE_SD, size)}


def _eta(data: Arrays):
    """Build the linear predictor of a model with coefficients ``b``."""
    b = pm.Normal("b", 0, SLOPE_SD, shape=data["X"].shape[1])
    return pm.Data("X", data["X"]) @ b


def _counts(truth: Truth, rng: np.random.Generator) -> Arrays:
    X = predictors(6, rng)
    return {"X": X, "y": rng.poisson(np.exp(X @ truth["b"]))}


def _poisson(data: Arrays) -> None:
    pm.Poisson("y", pm.math.exp(_eta(data)), observed=data["y"])


def _dispersed(rng: np.random.Generator) -> Truth:
    return slopes(4, rng) | {"alpha": rng.gamma(3.0)}


def _dispersed_counts(truth: Truth, rng: np.random.Generator) -> Arrays:
    X, exposure = predictors(4, rng), rng.uniform(0.5, 5, RECORDS)
    mean = exposure * np.exp(X @ truth["b"])
    y = rng.poisson(rng.gamma(truth["alpha"], mean / truth["alpha"]))
    return {"X": X, "exposure": exposure, "y": y}


def _negative_binomial(data: Arrays) -> None:
    alpha = pm.Gamma("alpha", 3, 1)
    mean = pm.math.exp(_eta(data) + pm.math.log(pm.Data("exposure", data["exposure"])))
    pm.NegativeBinomial("y", mu=mean, alpha=alpha, observed=data["y"])


def _heavy(rng: np.random.Generator) -> Truth:
    return slopes(4, rng) | {"s": abs(rng.normal()), "nu": rng.gamma(4.0, 2.0)}


def _heavy_outcomes(truth: Truth, rng: np.random.Generator) -> Arrays:
    X = predictors(4, rng)
    return {"X": X, "y": X @ truth["b"] + truth["s"] * rng.standard_t(truth["nu"], RECORDS)}


def _student_t(data: Arrays) -> None:
    s, nu = pm.HalfNormal("s"), pm.Gamma("nu", 4, 0.5)
    pm.StudentT("y", nu=nu, mu=_eta(data), sigma=s, observed=data["y"])


def _lifetimes(rng: np.random.Generator) -> Truth:
    return slopes(4, rng) | {"shape": rng.gamma(10.0, 1 / 5.0)}


def _durations(truth: Truth, rng: np.random.Generator) -> Arrays:
    X = predictors(4, rng)
    full = np.exp(X @ truth["b"]) * rng.weibull(truth["shape"], RECORDS)
    return {"X": X, "y": np.minimum(full, END)}


def _weibull(data: Arrays) -> None:
    shape = pm.Gamma("shape", 10, 5)
    duration = pm.Weibull.dist(shape, pm.math.exp(_eta(data)))
    pm.Censored("y", duration, lower=None, upper=END, observed=data["y"])


def _durations_and_ends(truth: Truth, rng: np.random.Generator) -> Arrays:
    found = _durations(truth, rng)
    return {"X": found["X"], "time": found["y"], "ended": (found["y"] < END).astype(float)}


def _weibull_potential(data: Arrays) -> None:
    """Write the likelihood of censored durations by hand, as many models do."""
    shape, eta = pm.Gamma("shape", 10, 5), _eta(data)
    log_time = pm.math.log(pm.Data("time", data["time"]))
    log_ratio = log_time - eta
    log_hazard = pm.math.log(shape) + shape * log_ratio - log_time
    ended = pm.Data("ended", data["ended"])
    pm.Potential("survival", ended * log_hazard - pm.math.exp(shape * log_ratio))


def _ratings(rng: np.random.Generator) -> Truth:
    return slopes(3, rng) | {"cut": np.sort(rng.normal(STEPS, 0.3))}


def _rated(truth: Truth, rng: np.random.Generator) -> Arrays:
    X = rng.normal(size=(RECORDS, 3))
    above = X @ truth["b"] + rng.logistic(size=RECORDS)
    return {"X": X, "y": (above[:, None] > truth["cut"]).sum(axis=1)}


def _ordinal(data: Arrays) -> None:
    ordered = pm.distributions.transforms.ordered
    cut = pm.Normal("cut", STEPS, 0.3, shape=4, transform=ordered, initval=STEPS)
    pm.OrderedLogistic("y", _eta(data), cut, compute_p=False, observed=data["y"])


def _rate(percent: int, rng: np.random.Generator) -> Truth:
    return {"p": percent / 100}


def _events(truth: Truth, rng: np.random.Generator) -> Arrays:
    return {"y": rng.binomial(1, truth["p"], MANY)}


def _bernoulli(data: Arrays) -> None:
    p = pm.Beta("p", 1, 1)
    pm.Bernoulli("y", p, observed=data["y"])


def _rare_outcome(rng: np.random.Generator) -> Truth:
    return {"b": np.append(RARE, rng.normal(0, SLOPE_SD, 3))}


def _cases(truth: Truth, rng: np.random.Generator) -> Arrays:
    return answers(predictors(4, rng), truth["b"], rng)


def _binomial(rng: np.random.Generator) -> Truth:
    return slopes(4, rng)


def _successes(truth: Truth, rng: np.random.Generator) -> Arrays:
    X = predictors(4, rng)
    return {"X": X, "y": rng.binomial(10, expit(X @ truth["b"]))}


def _of_ten(data: Arrays) -> None:
    pm.Binomial("y", n=10, logit_p=_eta(data), observed=data["y"])


COUNTS = ("dp_advi", "dp_sep")
PROBLEMS = (
    Problem("poisson", "d", partial(slopes, 6), _counts, _poisson, COUNTS),
    Problem("negative-binomial", "d", _dispersed, _dispersed_counts, _negative_binomial, ANY),
    Problem("binomial", "d", _binomial, _successes, _of_ten, ALL),
    Problem("student-t", "d", _heavy, _heavy_outcomes, _student_t, ANY),
    Problem("weibull", "d", _lifetimes, _durations, _weibull, ANY),
    Problem("weibull-potential", "d", _lifetimes, _durations_and_ends, _weibull_potential, ANY),
    Problem("ordinal", "d", _ratings, _rated, _ordinal, ANY),
    *(
        Problem(f"rate-{k}", "d", partial(_rate, k), _events, _bernoulli, CONJUGATE)
        for k in (1, 3, 10)
    ),
    Problem("prevalence-6", "d", _rare_outcome, _cases, partial(logistic, 2.0), ALL),
)
