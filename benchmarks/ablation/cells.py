"""Fits that between them read the constants of the engine of rounds."""

import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from scipy.special import expit

from benchmarks.truth.cell import DELTA, Fit, reference_fits
from benchmarks.truth.persons import mixed, mixed_regular, visits
from benchmarks.truth.problem import ANY, Arrays, Problem, Truth, data_set, flat, reported
from benchmarks.truth.problems import PROBLEMS
from benchmarks.truth.run import OUTPUT, append, file_of, read, reference_of
from pymc_dp import SurveyWeights
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.result import transform_draws
from pymc_dp.driver.run import run_releases
from pymc_dp.model.compilation import without_c
from pymc_dp.testing import deterministic_noise

SET = 300_000  # the number of the data set, and of the privacy noise
RECORDS, PERSONS = 2000, 300
FAR = 10.0  # the mean of outcomes, in sds of its prior
WEIGHT = 3.0


class Cell(NamedTuple):
    """A problem, and how it is fitted."""

    problem: Problem
    method: str
    epsilon: float
    weights: SurveyWeights | None = None

    @property
    def name(self) -> str:
        """What no other cell is called."""
        return f"{self.problem.name}, {self.method}, {self.epsilon:g}"


class Ended(NamedTuple):
    """What a fit says of each coefficient, (k,), and how many doubts it states."""

    mean: np.ndarray
    sd: np.ndarray
    doubts: int


def ended(cell: Cell) -> Ended:
    """Fit the cell, with the same privacy noise each time."""
    problem, here = cell.problem, data_set(cell.problem, SET)
    options: dict[str, Any] = {} if cell.weights is None else {"weights": cell.weights}
    if problem.unit:
        options["unit"] = problem.unit
    with deterministic_noise(SET), warnings.catch_warnings(), without_c():
        warnings.simplefilter("ignore")
        terms = {"epsilon": cell.epsilon, "delta": DELTA}
        prepared = set_up(problem.model(here.data), cell.method, None, **terms, **options)
        rng, method = np.random.default_rng(SET), prepared.method
        compiled, steps = method.compile("python"), range(prepared.plan.total)
        states, _ = run_releases(prepared, compiled, rng, steps)
        latents = method.draw(states[-1], problem.draws, rng)
    draws = transform_draws(prepared.records, latents)
    x = flat(draws, reported(problem, here.truth), problem.draws)
    return Ended(x.mean(axis=0), x.std(axis=0), len(method.doubts(states[-1])))


def reference(problem: Problem) -> Fit:
    """Return the posterior without privacy, from where `benchmarks.truth` stores it."""
    file = file_of(OUTPUT, "", reference_of(problem.name))
    if SET not in read(file):
        append(file, reference_fits(problem, [SET]))
    return read(file)[SET]


# --- problems that the benchmark of truth does not have, or has too large -------------------------


def _far(rng: np.random.Generator) -> Truth:
    return {"mu": FAR + rng.normal(), "slope": rng.normal(size=2), "s": 1.0}


def _far_outcomes(truth: Truth, rng: np.random.Generator) -> Arrays:
    X = rng.normal(size=(RECORDS, 2))
    return {"X": X, "y": rng.normal(truth["mu"] + X @ truth["slope"], truth["s"])}


def _far_prior(data: Arrays) -> None:
    mu, slope, s = pm.Normal("mu"), pm.Normal("slope", shape=2), pm.HalfNormal("s")
    mean = mu + pm.Data("X", data["X"]) @ slope
    pm.Normal("y", mean, s, observed=data["y"])


def _intercepts(rng: np.random.Generator) -> Truth:
    return {"slope": rng.normal(0, 0.5, 2), "mean": 0.3, "log_sd": -0.5}


def _three(rng: np.random.Generator) -> Truth:
    return {"b": rng.normal(size=3)}


def _weighted_answers(truth: Truth, rng: np.random.Generator) -> Arrays:
    X = np.column_stack([np.ones(RECORDS), rng.normal(size=(RECORDS, 2))])
    y = rng.binomial(1, expit(X @ truth["b"]))
    return {"X": X, "weight": np.where(y > 0, 1.0, WEIGHT), "y": y}


def _weighted(data: Arrays) -> None:
    pm.Data("weight", data["weight"])
    b = pm.Normal("b", 0, 2, shape=3)
    pm.Bernoulli("y", logit_p=pm.Data("X", data["X"]) @ b, observed=data["y"])


def _weighted_regular(data: Arrays) -> None:
    weight, y = pm.Data("weight", data["weight"]), pm.Data("y", data["y"])
    b = pm.Normal("b", 0, 2, shape=3)
    outcome = pm.Bernoulli.dist(logit_p=pm.Data("X", data["X"]) @ b)
    pm.Potential("weighted", weight * pm.logp(outcome, y))


FAR_PRIOR = Problem("far-prior", "x", _far, _far_outcomes, _far_prior, ANY)
UNITS = Problem(
    "visits",
    "x",
    _intercepts,
    partial(visits, False, PERSONS),
    partial(mixed, False),
    ANY,
    unit="person",
    backend="python",
    regular=partial(mixed_regular, False),
)
WEIGHTED = Problem(
    "weighted", "x", _three, _weighted_answers, _weighted, ANY, regular=_weighted_regular
)
BY_DESIGN = SurveyWeights("weight", upper=WEIGHT)

# the quick ones first: constants that change nothing there are tried in all the others
CELLS = (
    Cell(PROBLEMS["real-survey"], "dp_advi", 0.3),
    Cell(PROBLEMS["real-wages-raw-1000"], "dp_advi", 0.3),
    Cell(PROBLEMS["real-wages-5000"], "dp_advi", 1.0),
    Cell(FAR_PRIOR, "dp_advi", 1.0),
    Cell(WEIGHTED, "dp_advi", 1.0, BY_DESIGN),
    Cell(PROBLEMS["iid-logistic"], "vips", 1.0),
    Cell(PROBLEMS["logistic-3"], "dp_sep", 0.3),
    Cell(PROBLEMS["condition-1000"], "dp_advi", 1.0),
    Cell(PROBLEMS["real-abalone"], "dp_advi", 1.0),
    Cell(PROBLEMS["spline"], "dp_advi", 1.0),
    Cell(PROBLEMS["weibull"], "dp_advi", 1.0),
    Cell(PROBLEMS["groups-8"], "dp_advi", 1.0),
    Cell(PROBLEMS["strong-20"], "dp_advi", 1.0),
    Cell(PROBLEMS["real-power"], "dp_advi", 1.0),
    Cell(PROBLEMS["rate-3"], "dp_advi", 1.0),
    Cell(UNITS, "dp_advi", 1.0),
    Cell(PROBLEMS["ordinal"], "dp_advi", 0.3),
    Cell(PROBLEMS["mixture-3"], "dp_advi", 1.0),
    Cell(PROBLEMS["groups-40"], "dp_advi", 1.0),
    Cell(PROBLEMS["strong-40"], "dp_advi", 1.0),
)
