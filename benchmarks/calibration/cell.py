"""One cell of the benchmark: many data sets, one compiled model, one private fit of each."""

import warnings
from typing import NamedTuple

import numpy as np
from scipy.stats import chisquare

from benchmarks.calibration.problems import PROBLEMS, Arrays, Truth
from pymc_dp.compile import without_c
from pymc_dp.errors import PrivacyWarning
from pymc_dp.fit import carry_out
from pymc_dp.methods.method import Compiled
from pymc_dp.prepare import Prepared, compile_prepared, prepare
from pymc_dp.results import transform_draws

DELTA = 1e-5
# posterior draws of a fit, of which ranks use few enough to fall into even bins
DRAWS, BINS = 399, 20
INTERVAL = (0.05, 0.95)


class Cell(NamedTuple):
    """What is fitted: a model of `PROBLEMS`, by a method, with a budget."""

    problem: str
    method: str
    noise_aware: bool
    epsilon: float
    records: int


class Fits(NamedTuple):
    """What fits of one cell gave, for every scalar latent; shape (data sets, latents).

    Attributes
    ----------
    covered : whether the 90% interval holds the truth
    error : posterior mean less truth
    sd : the posterior's
    rank : of the truth among the draws, in 0, ..., DRAWS
    """

    covered: np.ndarray
    error: np.ndarray
    sd: np.ndarray
    rank: np.ndarray

    @property
    def coverage(self) -> float:
        """Share of the intervals that hold the truth."""
        return float(self.covered.mean())

    @property
    def standard_error(self) -> float:
        """Of the coverage, from the data sets: latents of one data set are dependent."""
        return float(self.covered.mean(axis=1).std() / len(self.covered) ** 0.5)

    @property
    def rmse(self) -> float:
        """Root mean square error of the posterior means."""
        return float(np.sqrt(np.mean(self.error**2)))

    @property
    def p_value(self) -> float:
        """Of even ranks: the least over latents, times their number."""
        counts = [np.bincount(r * BINS // (DRAWS + 1), minlength=BINS) for r in self.rank.T]
        return float(min(1.0, min(chisquare(c).pvalue for c in counts) * len(counts)))


def fits(cell: Cell, sets: int) -> Fits:
    """Fit ``sets`` data sets, each from a truth of its own."""
    problem = PROBLEMS[cell.problem]
    prepared, compiled = _compiled(cell)
    rows = []
    for seed in range(sets):
        rng = np.random.default_rng((seed, cell.records))
        truth = problem.truth(rng)
        draws = _draw(prepared, compiled, problem.data(truth, cell.records, rng), rng)
        rows.append(_compare(draws, truth))
    return Fits(*map(np.array, zip(*rows, strict=True)))


def _compiled(cell: Cell) -> tuple[Prepared, Compiled]:
    problem, rng = PROBLEMS[cell.problem], np.random.default_rng(0)
    example = problem.data(problem.truth(rng), cell.records, rng)
    with warnings.catch_warnings(), without_c():
        warnings.simplefilter("ignore", PrivacyWarning)
        prepared = prepare(
            problem.model(example),
            cell.method,
            None,
            epsilon=cell.epsilon,
            delta=DELTA,
            noise_aware=cell.noise_aware,
        )
        return prepared, compile_prepared(prepared, "python")


def _draw(
    prepared: Prepared, compiled: Compiled, data: Arrays, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    columns = {
        name: column._replace(values=np.asarray(data[name]))
        for name, column in prepared.columns.items()
    }
    held = prepared._replace(columns=columns)
    states, _ = carry_out(held, compiled, rng, range(prepared.plan.total))
    return transform_draws(prepared.records, prepared.method.draw(states[-1], DRAWS, rng))


def _compare(draws: dict[str, np.ndarray], truth: Truth) -> tuple[np.ndarray, ...]:
    x = np.column_stack([draws[name].reshape(DRAWS, -1) for name in truth])
    true = np.concatenate([np.ravel(value) for value in truth.values()])
    low, high = np.quantile(x, INTERVAL, axis=0)
    covered = (low <= true) & (true <= high)
    return covered, x.mean(axis=0) - true, x.std(axis=0), (x < true).sum(axis=0)
