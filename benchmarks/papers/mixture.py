"""The mixture of the DP-SEP paper, its Table 1 and Figure 1.

Squared Frobenius errors of posterior means and covariances, averaged over the four components,
against the exact posterior by Gibbs sampling with unknown labels. The first data are the paper's;
the others are made up in the same way, and no setting was tried out on them. All errors read the
data and are not private.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import chi2

from benchmarks.papers import full_ep, private_em
from benchmarks.papers.experiment import (
    NOT_PRIVATE,
    Experiment,
    default_clip_norm,
    options,
    quiet,
    run,
)
from benchmarks.papers.mixture_data import (
    COMPONENTS,
    RECORDS,
    Case,
    D,
    Posterior,
    compare,
    generated,
    match,
    model,
    papers_data,
    responsibilities,
)
from benchmarks.papers.picture import COLOURS, log_epsilon, panels
from pymc_dp.driver.fit import set_up
from pymc_dp.driver.run import compile_method, run_releases
from pymc_dp.model import Column, PrivateData

# --- what fits the mixture: every method of the experiment, by its label and epsilon -------------

DELTA = 1e-5
# Clip norms stand to the natural size of a site here as the paper's 20, 10 and 1 stand to its own:
# in units of a record that size is sqrt(5); natural parameters (4x, 4I) have a norm of about 13.
CLIPPED = {f"sep, clipped at {c:g}": c for c in (3.4, 1.7, 0.17)}
# what all of the package's fits have
TERMS: dict[str, Any] = {"sampling": "full", "public": ("shares", "noise")}
# the package's settings; the number of records is public under replace-one neighbours alone
SETTINGS: dict[str, dict[str, Any]] = {
    "sep": {"method": "sep"},
    **{label: {"method": "dp_sep", "clip_norm": c} for label, c in CLIPPED.items()},
    "dp_sep": {"method": "dp_sep", "form": "damped"},
    "dp_sep, replace-one": {
        **{"method": "dp_sep", "form": "damped"},
        **{"neighbours": "replace_one", "num_records": RECORDS},
    },
    "vips": {"method": "vips", "form": "absolute"},
}
WITHOUT_NOISE = ("ep", "sep", *CLIPPED, "dp_sep")
WITH_NOISE = ("dp_sep", "dp_sep, replace-one", "vips", "dp_em")

Fitter = Callable[[np.ndarray, int], Posterior]


@cache
def fitter(label: str, epsilon: float) -> Fitter:
    """Compile one kind of fit; return what fits any data from the start of a seed."""
    if label == "ep":
        return full_ep.fit
    if label == "dp_em":
        return quiet()(partial(private_em.fit, epsilon=epsilon, delta=DELTA))
    budget = {"epsilon": epsilon} if math.isinf(epsilon) else {"epsilon": epsilon, "delta": DELTA}
    settings = SETTINGS[label] | ({} if label == "sep" else budget)
    if label == "dp_sep" and math.isinf(epsilon):
        settings["clip_norm"] = default_clip_norm(
            model(np.zeros((RECORDS, D))), **TERMS, **SETTINGS[label]
        )
    return compiled(**settings)


@quiet()
def compiled(**settings) -> Fitter:
    """Compile once, for made-up records; each fit puts its own behind a wall of its own."""
    template = model(np.zeros((RECORDS, D)))
    prepared = set_up(template, n=None, **TERMS, **settings)
    parts = compile_method(prepared, "python")
    [(name, spec)] = prepared.data.spec.items()

    def fit(X: np.ndarray, seed: int) -> Posterior:
        held = prepared._replace(data=PrivateData({name: Column(X, spec.axis, spec.dtype)}))
        steps, rng = range(prepared.plan.total), np.random.default_rng(seed)
        states, _ = run_releases(held, parts, rng, steps)
        return posterior_of(prepared.method.describe(states[-1]))

    return fit


def posterior_of(fit: xr.Dataset) -> Posterior:
    """Read the centres' moments off a result; mean-field fits have variances alone."""
    means = fit["mean_vector"].to_numpy().reshape(COMPONENTS, D)
    if "covariance_matrix" in fit:
        whole = fit["covariance_matrix"].to_numpy().reshape(COMPONENTS, D, COMPONENTS, D)
        return Posterior(means, np.stack([whole[k, :, k] for k in range(COMPONENTS)]))
    sds = fit["standard_deviation"].to_numpy().reshape(COMPONENTS, D)
    return Posterior(means, np.stack([np.diag(sd**2) for sd in sds]))


# --- the pictures of the mixture: errors against epsilon, and the clusters of figure 1 -----------

# squared errors of Table 1, for means and covariances: these were measured against another
# reference (see docs/papers/dp_sep.md)
PUBLISHED = {
    "dp_sep": {1: (82.9746, 5.0777), 5: (12.1623, 1.0655), 50: (2.2411, 0.0358)},
    "dp_em": {1: (7.5166, 57.8665), 5: (10.4548, 3.7573), 50: (5.3769, 1.3189)},
}
LINES = {
    "dp_sep": COLOURS["dp_sep"],
    "dp_sep, replace-one": COLOURS["dp_fullrank_advi"],
    "vips": COLOURS["vips"],
    "dp_em": COLOURS["peer"],
}
# of the components, in the order of the reference (Okabe and Ito)
CLUSTERS = np.array(["#0072B2", "#D55E00", "#009E73", "#CC79A7"])
LEVEL = 0.98
SIZE = (6.2 / 3, 1.65)
SHOWN = 4  # one record in four
MARGIN = 0.8  # of the plot around the records, which all panels share


def draw_errors(table: pd.DataFrame) -> Figure:
    """Draw medians over the fits to the paper's data; bars reach from the best to the worst."""
    table = table[table["data"] == "paper"]
    figure, axes = panels(2)
    for column, (ax, value) in enumerate(zip(axes, ("means", "covariances"), strict=True)):
        for method in LINES:
            _line(ax, table[(table["method"] == method) & np.isfinite(table["epsilon"])], value)
        for method, rows in PUBLISHED.items():
            numbers = [both[column] for both in rows.values()]
            style = {"color": LINES[method], "ls": ":", "marker": "x", "label": f"{method}, paper"}
            ax.plot(list(rows), numbers, **style)
        sep = table.loc[table["method"] == "sep", value].median()
        ax.axhline(sep, color=COLOURS[NOT_PRIVATE], ls="--", label=f"sep, {NOT_PRIVATE}")
        ax.set_yscale("log")
        ax.set_ylabel(f"squared error of the {value}")
        log_epsilon(ax, PUBLISHED["dp_sep"])
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    return figure


def _line(ax: Axes, table: pd.DataFrame, value: str) -> None:
    groups = table.groupby(["method", "epsilon"])[value]
    found = groups.quantile([0, 0.5, 1]).unstack().reset_index()
    bars = np.abs(found[[0, 1]].T.to_numpy() - found[0.5].to_numpy())
    [method] = found["method"].unique()
    style = {"color": LINES[method], "marker": "o", "ms": 4, "capsize": 3}
    apart = 1.05 ** (list(LINES).index(method) - 1.5)  # so that bars do not hide each other
    ax.errorbar(apart * found["epsilon"], found[0.5], bars, label=method, **style)


def draw_clusters(table: pd.DataFrame, case: Case) -> Figure:
    """Draw two dimensions: records by their likeliest component, rings with 98% of each centre."""
    figure, axes = panels(1 + len(table), columns=3, size=SIZE, shared=True)
    _panel(axes[0], case.X, case.label, case.reference, "data, Gibbs sampling")
    for ax, (_, row) in zip(axes[1:], table.iterrows(), strict=True):
        fit = match(_posterior(row), case.reference)
        label = responsibilities(case.X, fit.means).argmax(axis=1)
        has_noise = np.isfinite(row["epsilon"])
        title = f"{row['method']}, epsilon {row['epsilon']:g}" if has_noise else row["method"]
        _panel(ax, case.X, label, fit, title)
    low, high = case.X[:, :2].min(axis=0) - MARGIN, case.X[:, :2].max(axis=0) + MARGIN
    axes[0].set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    return figure


def _posterior(row: pd.Series) -> Posterior:
    """Read the columns that `mixture.moments` wrote, in its order."""
    means = row.filter(regex="^means").to_numpy(float).reshape(COMPONENTS, D)
    covariances = row.filter(regex="^covariances").to_numpy(float)
    return Posterior(means, covariances.reshape(COMPONENTS, D, D))


def _panel(ax: Axes, X: np.ndarray, label: np.ndarray, fit: Posterior, title: str) -> None:
    shown = slice(None, None, SHOWN)
    style = {"s": 4, "alpha": 0.6, "linewidths": 0, "antialiased": False}
    ax.scatter(*X[shown, :2].T, c=CLUSTERS[label[shown]], **style)
    for mean, covariance in zip(fit.means[:, :2], fit.covariances[:, :2, :2], strict=True):
        ax.plot(*_ring(mean, covariance), color="black", lw=1.2)
    ax.set_title(title, fontsize=8)
    ax.tick_params(labelsize=7)
    ax.grid(visible=False)


def _ring(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Points of the ellipse that holds the level, shape (2, points)."""
    angle = np.linspace(0, 2 * np.pi, 100)
    radius = np.sqrt(chi2.ppf(LEVEL, df=2))
    circle = radius * np.stack([np.cos(angle), np.sin(angle)])
    return mean[:, None] + np.linalg.cholesky(covariance) @ circle


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
    """Medians, the worst in brackets, and how many fits found all four components."""
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
    parser = options("mixture", __doc__, seeds=5)
    parser.add_argument("--data-sets", type=int, default=5, help="generated data sets, a fit each")
    arguments = parser.parse_args()
    draw = partial(draw_clusters, case=papers_data(arguments.data_dir))
    run(Experiment("mixture", cells, measure, summary, draw_errors), arguments)
    run(Experiment("mixture_clusters", lambda _: PANELS, moments, listed, draw), arguments)


if __name__ == "__main__":
    main()
