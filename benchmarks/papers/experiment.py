"""What every experiment shares: its options, a table that grows cell by cell, its page's numbers.

An experiment names its cells, measures one, and draws the table. Cells that the table holds are not
measured again, so an experiment that was cut short goes on where it was.
"""

import argparse
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pymc as pm
import xarray as xr
from matplotlib.figure import Figure
from rich.progress import track
from threadpoolctl import threadpool_limits

import pymc_dp
from benchmarks.data import add_data_dir


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out warnings about privacy; a function takes it as a decorator, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pymc_dp.PrivacyWarning)
        yield


@quiet()
def quiet_fit(**settings) -> xr.DataTree:
    """Fit as `pymc_dp.fit` does."""
    return pymc_dp.fit(progressbar=False, **settings)


def default_clip_norm(model: pm.Model, **settings: Any) -> float:
    """Return the clip norm that a fit with noise takes by default; it depends on no budget."""
    planned = pymc_dp.plan(model=model, epsilon=1.0, delta=1e-5, **settings)
    return planned.plan.releases[-1].clip_norm  # a sketch may come first


OUTPUT = Path("benchmarks/results/papers")
# how tables and pictures name a fit without noise
NOT_PRIVATE = "not private"


class Experiment(NamedTuple):
    """A figure or a table of a paper."""

    name: str  # of the files: <name>.csv, and <name>.png unless it has no picture
    # what to measure: named tuples whose fields are columns of the table, and tell cells apart
    cells: Callable[[argparse.Namespace], Iterable[Any]]
    # the numbers of one cell, by column
    measure: Callable[[Any, argparse.Namespace], dict[str, float]]
    summary: Callable[[pd.DataFrame], pd.DataFrame]  # what is printed
    draw: Callable[[pd.DataFrame], Figure] | None = None


def options(module: str, doc: str | None, seeds: int) -> argparse.ArgumentParser:
    """Return the options that all experiments have; ``seeds`` is the default of one of them."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.papers.{module}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=seeds, help="repetitions of each fit")
    parser.add_argument(
        "--out",
        type=Path,
        default=OUTPUT,
        help="folder of tables and pictures; rows found there are kept and not measured again: "
        "delete them after a change of the code",
    )
    add_data_dir(parser)
    return parser


def run(experiment: Experiment, arguments: argparse.Namespace) -> pd.DataFrame:
    """Measure what the table lacks, print the summary, draw, and return the table."""
    table = measured(
        list(experiment.cells(arguments)),
        lambda cell: experiment.measure(cell, arguments),
        arguments.out / f"{experiment.name}.csv",
    )
    print(f"\n{markdown(experiment.summary(table))}\n", flush=True)
    if experiment.draw:
        path = arguments.out / f"{experiment.name}.png"
        experiment.draw(table).savefig(path, dpi=150, bbox_inches="tight")
        print(f"Wrote {path}.", flush=True)
    return table


def measured(
    # what to measure: named tuples whose fields are columns of the table, and tell cells apart
    cells: Sequence[Any],
    measure: Callable[[Any], dict[str, float]],
    path: Path,
) -> pd.DataFrame:
    """Return the rows of the cells, in their order; the file gets each row as it is measured."""
    found = _read(path)
    with threadpool_limits(1):  # matrices are small: on busy cores threads wait for each other
        for cell in track(cells, path.stem):
            if _key(cell) not in found:
                found[_key(cell)] = cell._asdict() | measure(cell)
                _write(found, path)
    return pd.DataFrame([found[_key(cell)] for cell in cells])


def mean_and_error(table: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Average over all else; add ``error``, the standard error, and ``fits``, their number."""
    groups = table.groupby(list(by), sort=False, dropna=False)[value]
    columns = {value: groups.mean(), "error": groups.sem(), "fits": groups.count()}
    return pd.DataFrame(columns).reset_index()


def markdown(table: pd.DataFrame) -> str:
    """Lay a table out for a page; numbers with four significant digits."""
    rows = [list(table.columns), ["---"] * len(table.columns)]
    rows += [[_shown(value) for value in row] for row in table.itertuples(index=False)]
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    lines[1] = lines[1].replace(" ", "")
    return "\n".join(lines)


def _key(cell: Iterable[Any]) -> str:
    return "|".join(map(str, cell))


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Read rows by the key of their cell."""
    if not path.exists():
        return {}
    table = pd.read_csv(path, index_col="cell")
    return dict(zip(table.index, table.to_dict("records"), strict=True))


def _write(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Replace the file at once: whoever is killed leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    pd.DataFrame(list(found.values()), pd.Index(found, name="cell")).to_csv(draft)
    draft.replace(path)


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return "-" if math.isnan(value) else f"{value:.4g}"
