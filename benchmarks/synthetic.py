"""How often intervals from synthetic data sets hold what the real table says.

python -m benchmarks.synthetic survey 10
python -m benchmarks.synthetic wages 5 --data-dir ../data

The real table is the population: each run draws as many of its rows with replacement, fits them,
and compares pooled regressions with those on the whole table. `benchmarks/aim.py` does the same by
AIM.
"""

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd

import pymc_dp
from benchmarks.data import add_data_dir
from benchmarks.synthetic_tables import (
    Estimates,
    Table,
    marginal_error,
    resampled,
    share_of_equal_rows,
    survey,
    wages,
)
from pymc_dp import Column, Columns

TERMS: dict[str, Any] = {"delta": 1e-5, "backend": "python", "progressbar": False}
SETS = 20


def columns_of(name: str) -> Columns:
    """Describe the columns of a table by what its questionnaire says."""
    if name == "wages":
        years = [*range(8), 12, 14, 16, 18, 20, 22]
        return Columns(
            {
                "female": Column.yes_no(0, 1),
                "educ_years": Column.ordered(years),
                "experience": Column.number(0, 60, squared=True),
                "log_wage": Column.number(7, 15),
            }
        )
    ordered: dict[str, list[float]] = {
        "age": [17.5, 22, 27, 32, 37, 42],
        "yrs_married": [0.5, 2.5, 6, 9, 13, 16.5, 23],
        "children": [0, 1, 2, 3, 4, 5.5],
        "religious": [1, 2, 3, 4],
        "educ": [9, 12, 14, 16, 17, 20],
        "occupation_husb": [1, 2, 3, 4, 5, 6],
        "rate_marriage": [1, 2, 3, 4, 5],
    }
    columns = {"occupation": Column.categories(range(1, 7))}
    columns |= {name: Column.ordered(levels) for name, levels in ordered.items()}
    return Columns(columns | {"affair": Column.yes_no(0, 1)})


def pooled(table: Table, sets: list[pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Pool every regression over data sets."""
    found = {}
    for name, regression in table.regressions.items():
        each: list[Estimates] = [regression(one) for one in sets]
        estimates, variances = (pd.DataFrame(list(x)) for x in zip(*each, strict=True))
        kept = estimates.dropna(axis=1).columns
        found[name] = pymc_dp.pool(estimates[kept], variances[kept])
    return found


def one(name: str, table: Table, seed: int, epsilon: float) -> pd.DataFrame:
    """Return what each coefficient's interval says, and print what else is measured."""
    rows, columns = resampled(table.frame, seed), columns_of(name)
    fits = columns.fit(rows, epsilon=epsilon, **TERMS)
    found = []
    for times in (1, 4):
        sets = columns.synthesize(fits, n=times * len(rows), m=SETS, random_seed=seed)
        for regression, result in pooled(table, sets).items():
            real, _ = table.regressions[regression](table.frame)
            same, variance = table.regressions[regression](rows)
            result["truth"], result["same_rows"] = real, same
            result["sd_of_rows"], result["times"] = variance**0.5, times
            result["regression"] = regression
            found.append(result.reset_index(names="coefficient"))
        if times == 1:
            one_way, two_way = marginal_error(table, sets[0])
            equal = share_of_equal_rows(sets[0], rows)
            by_chance = share_of_equal_rows(resampled(table.frame, seed + 10_000), rows)
            print(
                f"seed {seed}: marginals off by {one_way:.4f} (one), {two_way:.4f} (two columns); "
                f"rows equal to one of the fitted {equal:.3f}, to one of another sample "
                f"{share_of_equal_rows(sets[0], resampled(table.frame, seed + 20_000)):.3f}; "
                f"real rows of another sample {by_chance:.3f}",
                flush=True,
            )
    return pd.concat(found).assign(seed=seed)


def show(results: pd.DataFrame) -> None:
    """Print coverage, and errors over standard deviations."""
    covered = (results["lower"] <= results["truth"]) & (results["truth"] <= results["upper"])
    z = (results["estimate"] - results["truth"]) / results["sd"]
    ratio = results["sd"] / results["sd_of_rows"]
    kept = results.assign(covered=covered, squared=z**2, ratio=ratio)
    for keys in (["times"], ["times", "regression"], ["times", "regression", "coefficient"]):
        means = kept.groupby(keys)[["covered", "squared", "ratio"]].mean()
        print(means.assign(rms_z=np.sqrt(means.pop("squared"))).round(2).to_string(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.synthetic", description=__doc__)
    parser.add_argument("table", choices=("survey", "wages"))
    parser.add_argument("sets", type=int, nargs="?", default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--epsilon", type=float, default=1.0)
    add_data_dir(parser)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    table = survey() if given.table == "survey" else wages(given.data_dir)
    seeds = range(given.first, given.first + given.sets)
    results = []
    for seed in seeds:
        results.append(one(given.table, table, seed, given.epsilon))
        show(pd.concat(results))


if __name__ == "__main__":
    main()
