"""Two public tables, and the regressions that are compared on synthetic copies of them.

Nothing here imports `pymc_dp`, so that `benchmarks/aim.py` runs in an environment of its own.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from statsmodels.api import OLS, Logit, add_constant
from statsmodels.datasets import fair

ANSWERS = ["rate_marriage", "age", "yrs_married", "children", "religious", "educ"]
SURVEY = ["occupation", *ANSWERS[1:], "occupation_husb", "rate_marriage", "affair"]
# all regressions of a table; each returns named estimates and variances
Estimates = tuple[pd.Series, pd.Series]
Regression = Callable[[pd.DataFrame], Estimates]


class Table(NamedTuple):
    """A table, its regressions, and which columns have numbers to be cut into bins."""

    frame: pd.DataFrame
    regressions: dict[str, Regression]
    edges: dict[str, np.ndarray]


def survey() -> Table:
    """Answers of 6366 women (Fair 1978); all nine columns, of which none is continuous."""
    frame = fair.load_pandas().data
    frame["affair"] = (frame["affairs"] > 0).astype(int)
    frame = frame[SURVEY].astype({"occupation": int, "occupation_husb": int})
    regressions: dict[str, Regression] = {
        "affair": _affair,
        "rating": _rating,
        "children": _children,
    }
    return Table(frame, regressions, {})


def wages(folder: Path) -> Table:
    """Wages of 54,875 adults (Current Population Survey, 2024)."""
    frame = pd.read_csv(folder / "cps_asec_2024_wages.csv.gz")
    frame = frame[["female", "educ_years", "experience", "log_wage"]].astype({"female": int})
    edges = {"experience": np.linspace(0, 60, 31), "log_wage": np.linspace(7, 15, 33)}
    regressions: dict[str, Regression] = {"wage": _wage, "experience": _experience}
    return Table(frame, regressions, edges)


def resampled(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Draw as many rows as there are, with replacement: a sample of the table as a population."""
    return frame.sample(frac=1, replace=True, random_state=seed).reset_index(drop=True)


def _fitted(model: type, y: pd.Series, x: pd.DataFrame) -> Estimates:
    kept = x.loc[:, x.nunique() > 1]
    options = {"disp": 0, "method": "newton"} if model is Logit else {"cov_type": "HC1"}
    fitted = model(np.asarray(y, float), add_constant(kept.astype(float))).fit(**options)
    names = kept.columns
    return fitted.params[names], fitted.bse[names] ** 2


def _affair(frame: pd.DataFrame) -> Estimates:
    jobs = {f"occupation {k}": frame["occupation"].astype(int) == k for k in (2, 4, 5)}
    return _fitted(Logit, frame["affair"], frame[ANSWERS].assign(**jobs))


def _rating(frame: pd.DataFrame) -> Estimates:
    return _fitted(OLS, frame["rate_marriage"], frame[[*ANSWERS[1:], "occupation_husb"]])


def _children(frame: pd.DataFrame) -> Estimates:
    return _fitted(OLS, frame["children"], frame[["age", "yrs_married", "religious", "educ"]])


def _wage(frame: pd.DataFrame) -> Estimates:
    years = frame["experience"] / 10
    x = frame[["educ_years", "female"]].assign(experience=years, experience_sq=years**2)
    return _fitted(OLS, frame["log_wage"], x)


def _experience(frame: pd.DataFrame) -> Estimates:
    return _fitted(OLS, frame["experience"], frame[["educ_years", "female"]])


def marginal_error(table: Table, synthetic: pd.DataFrame) -> tuple[float, float]:
    """Return the mean total variation distance of one-way and of two-way marginals."""
    real, made = (_binned(table, x) for x in (table.frame, synthetic))
    names = list(table.frame.columns)
    one = [_distance(real, made, [a]) for a in names]
    two = [_distance(real, made, [a, b]) for k, a in enumerate(names) for b in names[:k]]
    return float(np.mean(one)), float(np.mean(two))


def _binned(table: Table, frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(**{k: np.digitize(frame[k], e[1:-1]) for k, e in table.edges.items()})


def _distance(real: pd.DataFrame, made: pd.DataFrame, names: list[str]) -> float:
    counts = [x.astype(float).groupby(names).size() / len(x) for x in (real, made)]
    return float(counts[0].sub(counts[1], fill_value=0).abs().sum() / 2)


def share_of_equal_rows(rows: pd.DataFrame, others: pd.DataFrame) -> float:
    """Return the share of rows that equal one of the others in all columns."""
    keys = [pd.util.hash_pandas_object(x.astype(float), index=False) for x in (rows, others)]
    return float(keys[0].isin(keys[1]).mean())
