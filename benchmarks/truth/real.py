"""Group r: real tables with their real outcomes, and a made-up one that no model here has made.

Nobody knows the truth of a table. The posterior without privacy of the same rows takes its place:
a private posterior should be that one, and honest about its noise. The number of a data set picks
the rows of a problem that has a part of a table; problems of a whole table have the same rows in
all data sets, and other privacy noise. ``truth`` is where the search for the mode starts.
"""

import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm

from benchmarks import affairs
from benchmarks.data import VARIABLE, load
from benchmarks.truth.problem import ANY, Arrays, Problem, Truth

MADE_UP_ROWS = 30_000
DRAWS = 20_000  # what privacy adds is a difference of variances
NEWTON_STEPS = 30
FREEDOM = 4.0  # of Student-t outcomes
WAGES = ("educ_years", "experience", "experience_sq", "female")


class Table(NamedTuple):
    """Predictors in their own units, the intercept's column first, and the real outcome."""

    X: np.ndarray
    y: np.ndarray


def _read(file: str) -> dict[str, np.ndarray]:
    return load(Path(os.environ.get(VARIABLE, "data")), file)


def _table(y: np.ndarray, *columns: np.ndarray) -> Table:
    return Table(np.column_stack([np.ones(len(y)), *columns]).astype(float), y)


@cache
def wages() -> Table:
    """Logarithms of wages on years of education, of experience, their square, and sex."""
    table = _read("cps_asec_2024_wages.csv.gz")
    return _table(table["log_wage"], *[table[name] for name in WAGES])


@cache
def scaled_wages() -> Table:
    """Bring the same predictors to about unit size by public numbers."""
    X, y = wages()
    education, experience, female = X[:, 1], X[:, 2], X[:, 4]
    years = (experience - 20) / 20
    return _table(y - 10, (education - 12) / 4, years, years**2, female)


@cache
def _abalone(counts: bool) -> Table:
    table = _read("uci_abalone.npz")
    sex = np.eye(len(table["sex_names"]))[table["sex"].astype(int)][:, :-1]
    rings = table["rings"].astype(int)
    return _table(rings if counts else (rings > 9).astype(int), table["X"], sex)


@cache
def _uci(file: str) -> Table:
    table = _read(file)
    varied = table["X"][:, np.ptp(table["X"], axis=0) > 0]
    return _table(table["y"].astype(float), varied)


@cache
def _good_wine() -> Table:
    X, y = _uci("uci_wine_quality_red.npz")
    return Table(X, (y > 5).astype(int))


@cache
def _survey() -> Table:
    survey, _ = affairs.load()
    jobs = np.eye(len(affairs.OCCUPATIONS))[survey.occupation][:, :-1]
    return _table(survey.affair, survey.answers, jobs)


def hours(rows: int, rng: np.random.Generator) -> Table:
    """Make up hours of work: half of them 40, the others bent in age, and heavy-tailed."""
    age, education = rng.uniform(17, 90, rows), rng.integers(1, 17, rows)
    sex = rng.integers(0, 2, rows)
    bent = 20 + 8 * sex + 0.6 * education + 25 * np.exp(-(((age - 42) / 18) ** 2))
    own = np.clip(bent + 11 * rng.standard_t(4, rows), 1, 99)
    return _table(np.where(rng.random(rows) < 0.47, 40.0, own), age, education, sex)


# --- models: coefficients have priors as wide as the units of their predictors ask for ------------


def prior_sds(X: np.ndarray, outcome_sd: float) -> np.ndarray:
    """Return prior sds of coefficients: the next power of ten, as public knowledge of units is."""
    spread = np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 1.0)
    return 10.0 ** np.ceil(np.log10(outcome_sd / spread))


def _linear(
    sds: np.ndarray, centre: float, scale: float, data: Arrays, heavy: bool = False
) -> None:
    b = pm.Normal("b", np.append(centre, np.zeros(len(sds) - 1)), sds)
    mean, s = pm.Data("X", data["X"]) @ b, pm.HalfNormal("s", scale)
    if heavy:
        pm.StudentT("y", nu=FREEDOM, mu=mean, sigma=s, observed=data["y"])
    else:
        pm.Normal("y", mean, s, observed=data["y"])


def _logistic(sds: np.ndarray, data: Arrays) -> None:
    b = pm.Normal("b", 0, sds)
    pm.Bernoulli("y", logit_p=pm.Data("X", data["X"]) @ b, observed=data["y"])


def _counts(sds: np.ndarray, data: Arrays) -> None:
    b = pm.Normal("b", 0, sds)
    pm.Poisson("y", pm.math.exp(pm.Data("X", data["X"]) @ b), observed=data["y"])


# --- problems ------------------------------------------------------------------------------------


def _rows(read: Callable[[], Table], rows: int | None, rng: np.random.Generator) -> Arrays:
    X, y = read()
    some = np.arange(len(y)) if rows is None else rng.choice(len(y), rows, replace=False)
    return {"X": X[some], "y": y[some]}


def _least_squares(read: Callable[[], Table]) -> Truth:
    X, y = read()
    b = np.linalg.lstsq(X, y, rcond=None)[0]
    return {"b": b, "s": np.std(y - X @ b)}


def _of_links(read: Callable[[], Table], family: str) -> Truth:
    """Find the mode of a logistic or a Poisson regression, by Newton steps."""
    X, y = read()
    scale = np.maximum(abs(X).max(axis=0), 1e-300)
    Z, b = X / scale, np.zeros(X.shape[1])
    for _ in range(NEWTON_STEPS):
        eta = np.clip(Z @ b, -30, 30)
        mean = np.exp(eta) if family == "counts" else 1 / (1 + np.exp(-eta))
        weight = mean if family == "counts" else mean * (1 - mean)
        step = np.linalg.lstsq((Z.T * weight) @ Z, Z.T @ (y - mean), rcond=None)[0]
        b += step * min(1.0, 2.0 / max(abs(Z @ step).max(), 1e-300))
    return {"b": b / scale}


def linear(
    name: str, read: Callable[[], Table], rows: int | None = None, heavy: bool = False
) -> Problem:
    """Fit so many rows of a table, or all, by a linear model with an unknown scale."""

    def model(data: Arrays) -> None:
        X, y = read()
        spread = float(10 ** np.ceil(np.log10(np.std(y))))
        centre = float(f"{y.mean():.0e}")  # to one digit
        _linear(prior_sds(X, spread), centre, spread, data, heavy)

    start = cache(partial(_least_squares, read))
    return _problem(name, start, lambda truth, rng: _rows(read, rows, rng), model)


def _linked(name: str, read: Callable[[], Table], family: str, rows: int | None = None) -> Problem:
    def model(data: Arrays) -> None:
        sds = 10 * prior_sds(read().X, 1.0)
        (_counts if family == "counts" else _logistic)(sds, data)

    start = cache(partial(_of_links, read, family))
    return _problem(name, start, lambda truth, rng: _rows(read, rows, rng), model)


def made_up(rows: int) -> Problem:
    """Fit the made-up table of hours."""

    def data(truth: Truth, rng: np.random.Generator) -> Arrays:
        return hours(rows, rng)._asdict()

    start = {"b": np.array([50.0, -0.1, 0.3, 4.0]), "s": np.array(14.0)}
    model = partial(_linear, np.array([60, 0.3, 1.5, 20]), 0.0, 30.0)
    return _problem(f"real-hours-{rows}", lambda: start, data, model)


def _problem(
    name: str,
    start: Callable[[], Truth],
    data: Callable[[Truth, np.random.Generator], Arrays],
    model: Callable[[Arrays], None],
) -> Problem:
    return Problem(name, "r", lambda rng: start(), data, model, ANY, draws=DRAWS, real=True)


PROBLEMS = (
    made_up(MADE_UP_ROWS),
    made_up(MADE_UP_ROWS // 10),
    linear("real-wages", scaled_wages),
    linear("real-wages-raw", wages),
    linear("real-wages-t", scaled_wages, heavy=True),
    *(linear(f"real-wages-{rows}", scaled_wages, rows) for rows in (1000, 5000, 20_000)),
    *(linear(f"real-wages-raw-{rows}", wages, rows) for rows in (1000, 5000)),
    _linked("real-abalone", partial(_abalone, True), "counts"),
    _linked("real-abalone-old", partial(_abalone, False), "yes or no"),
    _linked("real-wine-good", _good_wine, "yes or no"),
    _linked("real-survey", _survey, "yes or no"),
    *(
        linear(f"real-{name}", partial(_uci, f"uci_{file}.npz"))
        for name, file in {
            "wine": "wine_quality_red",
            "arm": "kin8nm",
            "naval": "naval_propulsion_plant",
            "power": "power_plant",
            "protein": "protein_tertiary_structure",
        }.items()
    ),
)
