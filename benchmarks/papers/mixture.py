"""The mixture of the DP-SEP paper, its Table 1 and Figure 1.

Squared Frobenius errors of posterior means and covariances, averaged over the four components,
against the exact posterior by Gibbs sampling with unknown labels. The first data are the paper's;
the others are made up in the same way, and no setting was tried out on them. All errors read the
data and are not private.
"""

import argparse
import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.papers.experiment import Experiment, options, run
from benchmarks.papers.mixture_data import Case, compare, generated, papers_data
from benchmarks.papers.mixture_fits import CLIPPED, WITH_NOISE, WITHOUT_NOISE, fitter
from benchmarks.papers.mixture_picture import draw_clusters, draw_errors

EPSILONS = (1.0, 5.0, 50.0)


class Cell(NamedTuple):
    """A fit; ``seed`` is that of its start and of generated data. Noise has no seed."""

    data: str
    method: str
    epsilon: float
    seed: int


class Panel(NamedTuple):
    """A fit to the paper's data, from the first start, that figure 1 shows."""

    method: str
    epsilon: float


# the rows of the paper's figure 1, and vips
PANELS = (
    *(Panel(label, math.inf) for label in ("ep", "sep", *CLIPPED)),
    *(Panel(label, epsilon) for label in ("dp_sep", "dp_em", "vips") for epsilon in EPSILONS),
)


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """List the fits, those of one kind together: each kind is compiled once."""
    kinds = [(label, math.inf) for label in WITHOUT_NOISE]
    kinds += [(label, epsilon) for label in WITH_NOISE for epsilon in EPSILONS]
    for kind in kinds:
        yield from (Cell("paper", *kind, k) for k in range(arguments.seeds))
        yield from (Cell("generated", *kind, k) for k in range(arguments.data_sets))


def case(cell: Cell, arguments: argparse.Namespace) -> Case:
    return papers_data(arguments.data_dir) if cell.data == "paper" else generated(cell.seed)


def measure(cell: Cell, arguments: argparse.Namespace) -> dict[str, float]:
    X, _, reference = case(cell, arguments)
    return compare(fitter(cell.method, cell.epsilon)(X, cell.seed), reference)._asdict()


def moments(panel: Panel, arguments: argparse.Namespace) -> dict[str, float]:
    """Return every entry of the means and covariances, as a column each."""
    fit = fitter(*panel)(papers_data(arguments.data_dir).X, 0)
    return {
        name + "".join(map(str, place)): float(value)
        for name, values in fit._asdict().items()
        for place, value in np.ndenumerate(values)
    }


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Medians, the worst in brackets, and how many fits found all four components.

    A fit that misses a component has errors a thousand times the others', and would be the mean.
    """
    groups = table.groupby(["data", "method", "epsilon"], sort=False)
    columns = {
        value: groups[value].apply(lambda errors: f"{errors.median():.2g} ({errors.max():.2g})")
        for value in ("means", "covariances")
    }
    columns["all found"] = groups["found"].apply(lambda found: f"{found.sum():g} of {len(found)}")
    return pd.DataFrame(columns).reset_index().sort_values("data", ascending=False, kind="stable")


def listed(table: pd.DataFrame) -> pd.DataFrame:
    """Name the fits: their moments are for the picture."""
    return table[["method", "epsilon"]]


def main() -> None:
    """Measure table 1, then draw figure 1."""
    parser = options("mixture", __doc__, seeds=5)
    parser.add_argument("--data-sets", type=int, default=5, help="generated data sets, a fit each")
    arguments = parser.parse_args()
    draw = partial(draw_clusters, case=papers_data(arguments.data_dir))
    run(Experiment("mixture", cells, measure, summary, draw_errors), arguments)
    run(Experiment("mixture_clusters", lambda _: PANELS, moments, listed, draw), arguments)


if __name__ == "__main__":
    main()
