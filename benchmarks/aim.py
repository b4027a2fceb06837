"""The regressions of `benchmarks.synthetic` on data sets that AIM makes (McKenna et al. 2022).

It runs in an environment of its own, which has no part in the package:

    python -m venv aim && aim/bin/pip install "opendp[mbi]" polars statsmodels pandas
    aim/bin/python -m benchmarks.aim survey 10

AIM has no rule for intervals: here they are those of one synthetic data set taken as real, and
those of 20 sets drawn from its one model and pooled.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
import pandas as pd
import polars as pl
from opendp.extras.mbi import AIM
from scipy.optimize import brentq, minimize_scalar

from benchmarks.synthetic_tables import (
    Table,
    marginal_error,
    resampled,
    share_of_equal_rows,
    survey,
    wages,
)

DELTA, SETS = 1e-5, 20
dp.enable_features("contrib")


def zcdp(epsilon: float) -> float:
    """Return the zero-concentrated privacy that epsilon at delta allows (Canonne et al. 2020)."""

    def log_delta(rho: float) -> float:
        def at(order: float) -> float:
            gain = (order - 1) * (order * rho - epsilon)
            return float(gain - np.log(order - 1) + order * np.log1p(-1 / order))

        return float(minimize_scalar(at, bounds=(1.001, 1e4), method="bounded").fun)

    return float(brentq(lambda rho: log_delta(rho) - np.log(DELTA), 1e-6, epsilon))


def fitted(table: Table, rows: pd.DataFrame, epsilon: float, given: argparse.Namespace) -> Any:
    """Fit AIM to private rows."""
    data = pl.from_pandas(rows.astype(float)).lazy()
    rho = zcdp(epsilon)
    context = dp.Context.compositor(
        data=data,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho, delta=0.0),
    )
    keys = {k: sorted(table.frame[k].astype(float).unique()) for k in rows if k not in table.edges}
    cuts = {k: list(map(float, x[1:-1])) for k, x in table.edges.items()}
    query = context.query(rho=rho, delta=0.0).select(*rows.columns)
    algorithm = AIM(queries=given.degree, rounds=given.rounds)
    return query.contingency_table(keys=keys, cuts=cuts, algorithm=algorithm).release()


def completed(frame: pd.DataFrame, table: Table, rng: np.random.Generator) -> pd.DataFrame:
    """Put a draw of the others in the place of values that AIM calls missing, and beyond edges."""
    for name in frame:
        bad = ~np.isfinite(frame[name])
        frame.loc[bad, name] = rng.choice(frame.loc[~bad, name], bad.sum())
    return frame


def one(table: Table, seed: int, epsilon: float, given: argparse.Namespace) -> pd.DataFrame:
    """Return the errors of each coefficient, over its standard deviation by two rules."""
    rng, start = np.random.default_rng(seed), time.perf_counter()
    rows = resampled(table.frame, seed)
    model = fitted(table, rows, epsilon, given)
    sets = [
        completed(model.synthesize(len(rows), "sample").to_pandas(), table, rng)
        for _ in range(SETS)
    ]
    one_way, two_way = marginal_error(table, sets[0])
    print(
        f"seed {seed}: marginals off by {one_way:.4f} (one), {two_way:.4f} (two columns); rows "
        f"equal to one of the fitted {share_of_equal_rows(sets[0], rows):.3f}, to one of another "
        f"sample {share_of_equal_rows(sets[0], resampled(table.frame, seed + 20_000)):.3f}; "
        f"{time.perf_counter() - start:.0f} s",
        flush=True,
    )
    found = []
    for name, regression in table.regressions.items():
        truth, _ = regression(table.frame)
        _, variance = regression(rows)
        each = [regression(x) for x in sets]
        estimates, variances = (pd.DataFrame(list(x)) for x in zip(*each, strict=True))
        total = (1 + 1 / SETS) * estimates.var() - variances.mean()
        positive = np.where(total > 0, total, variances.mean())
        found.append(
            pd.DataFrame(
                {
                    "regression": name,
                    "naive": (estimates.iloc[0] - truth) / variances.iloc[0] ** 0.5,
                    "pooled": (estimates.mean() - truth) / positive**0.5,
                    "error": (estimates.mean() - truth) / variance**0.5,
                }
            ).reset_index(names="coefficient")
        )
    return pd.concat(found).assign(seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aim", description=__doc__)
    parser.add_argument("table", choices=("survey", "wages"))
    parser.add_argument("sets", type=int, nargs="?", default=5)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--degree", type=int, default=2, help="of the marginals of its workload")
    parser.add_argument("--rounds", type=int, help="at most; AIM's own default is 16 a column")
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("PYMC_DP_DATA", "data"))
    given = parser.parse_args()
    table = survey() if given.table == "survey" else wages(Path(given.data_dir))
    results = []
    for seed in range(given.sets):
        results.append(one(table, seed, given.epsilon, given))
        show(pd.concat(results))


def show(results: pd.DataFrame) -> None:
    """Print how many 90% intervals hold what the whole table says, and errors."""
    for keys in ([True] * len(results), results["regression"]):
        groups = results.groupby(keys)
        shares = groups[["naive", "pooled"]].agg(lambda z: (z.abs() < 1.645).mean())
        shares["rms error over sd of rows"] = groups["error"].agg(lambda z: (z**2).mean() ** 0.5)
        print(shares.round(2).to_string(), flush=True)


if __name__ == "__main__":
    main()
