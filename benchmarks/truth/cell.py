"""One cell of the benchmark: private fits of many data sets by one compiled model."""

import time
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.truth import reference
from benchmarks.truth.problem import DataSet, Problem, Truth, data_set, flat, reported
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.result import transform_draws
from pymc_dp.driver.run import Setup, compile_method, run_releases
from pymc_dp.errors import PrivacyWarning
from pymc_dp.methods.method import Compiled
from pymc_dp.model import Column, PrivateData
from pymc_dp.model.compilation import without_c
from pymc_dp.privacy.private_data import units_of

DELTA = 1e-5
INTERVAL = (0.05, 0.95)
# the method whose posterior the private ones are compared with
REFERENCE = "non-private"


class Cell(NamedTuple):
    """What is fitted: a problem, by a method, with a budget."""

    problem: str
    method: str
    epsilon: float


class Fit(NamedTuple):
    """What one fit says about every reported coefficient, beside the truth; lists of numbers."""

    set: int
    digest: str  # of the data set
    seconds: float
    truth: list[float]
    mean: list[float]
    sd: list[float]
    low: list[float]  # ends of the 90% interval
    high: list[float]
    # of the reference alone: the posterior's covariance, rows one after the other
    covariance: list[float] | None = None
    # why there is no posterior
    error: str | None = None
    # how many doubts a private fit stated
    doubts: int | None = None


def reference_fits(problem: Problem, sets: list[int]) -> Iterator[Fit]:
    """Approximate the posterior without privacy of each data set."""
    if sets:
        compiled = reference.posterior(problem, data_set(problem, sets[0]))
        for number in sets:
            here, rng = data_set(problem, number), np.random.default_rng(number)
            start = time.perf_counter()
            draws = reference.draws_of(problem, compiled, here, rng)
            found = _compare(problem, number, here, draws, time.perf_counter() - start)
            if found.error is None:
                x = flat(draws, reported(problem, here.truth), len(next(iter(draws.values()))))
                found = found._replace(covariance=_rounded(np.cov(x, rowvar=False)))
            yield found


def private_fits(problem: Problem, method: str, epsilon: float, sets: list[int]) -> Iterator[Fit]:
    """Fit each data set with defaults."""
    if sets:
        prepared, compiled = prepare(problem, data_set(problem, sets[0]), method, epsilon)
        for number in sets:
            yield _fit(problem, prepared, compiled, number)


def prepare(
    problem: Problem, example: DataSet, method: str, epsilon: float
) -> tuple[Setup, Compiled]:
    """Prepare fits of a problem's data sets, and compile what they need."""
    model, options = problem.model(example.data), {"unit": problem.unit} if problem.unit else {}
    with warnings.catch_warnings(), without_c():
        warnings.simplefilter("ignore", PrivacyWarning)
        prepared = set_up(model, method, None, epsilon=epsilon, delta=DELTA, **options)
        return prepared, compile_method(prepared, "python")


def _fit(problem: Problem, prepared: Setup, compiled: Compiled, number: int) -> Fit:
    here, rng = data_set(problem, number), np.random.default_rng(number)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            draws, doubts = _draw(prepared, compiled, here, problem.draws, rng)
    except Exception as error:  # a fit that fails is a result of the benchmark, not its end
        return _failed(number, here, f"{type(error).__name__}: {error}")
    found = _compare(problem, number, here, draws, time.perf_counter() - start)
    return found._replace(doubts=doubts)


def _draw(
    prepared: Setup, compiled: Compiled, here: DataSet, draws: int, rng: np.random.Generator
) -> tuple[Truth, int]:
    """Make all releases about a data set in place of the one that the model was built on."""
    columns = {
        name: Column(np.asarray(here.data[name]), spec.axis, spec.dtype)
        for name, spec in prepared.data.spec.items()
    }
    unit = prepared.data.unit
    units = unit and units_of(here.data[unit], unit)
    held = prepared._replace(data=PrivateData(columns, units))
    states, _ = run_releases(held, compiled, rng, range(prepared.plan.total))
    latents = prepared.method.draw(states[-1], draws, rng)
    doubts = prepared.method.doubts(states[-1])
    return transform_draws(prepared.records, latents), len(doubts)


def _compare(problem: Problem, number: int, here: DataSet, draws: Truth, seconds: float) -> Fit:
    names = reported(problem, here.truth)
    x = flat(draws, names, len(next(iter(draws.values()))))
    if not np.isfinite(x).all():
        return _failed(number, here, "draws are not finite")
    ends = np.quantile(x, INTERVAL, axis=0)
    values = (flat(names, names)[0], x.mean(axis=0), x.std(axis=0), *ends)
    return Fit(number, here.digest, round(seconds, 4), *map(_rounded, values))


def _failed(number: int, here: DataSet, why: str) -> Fit:
    return Fit(number, here.digest, 0.0, [], [], [], [], [], error=why)


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{x:.8g}") for x in np.ravel(values)]
