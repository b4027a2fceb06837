"""Medians over private fits of the demo's survey, against the limits that they must keep.

Every number here reads private rows: not private, public survey data.
"""

import numpy as np
import pymc as pm
import xarray as xr
from pymc.blocking import DictToArrayBijection, RaveledVars
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.affairs import Survey, score
from benchmarks.fits import NOT_PRIVATE, fit_privately, fit_without_noise
from pymc_dp.compiling.compile import compile_mode
from pymc_dp.model.modes import without_c

NEWTON_STEPS = 20
LIMITS = {
    "held-out log likelihood lost": "at most 0.005",
    "distance of means, in sds": "at most 2",
    "smallest ratio of sds": "at least 0.4",
    "largest ratio of sds": "at most 2.5",
}


def show_medians(model: pm.Model, held_out: Survey, seeds: int) -> None:
    """Fit each method ``seeds`` times and print the medians."""
    mode, sds = laplace(model)
    unprotected = fit_without_noise(model)
    reference = score(unprotected, held_out)["mean log likelihood"]
    off = distance(unprotected["fit"]["mean_vector"].to_numpy(), mode, sds)
    console = Console()
    console.print(
        f"Without noise: mean log likelihood {reference:.4f}, means {off:.2f} posterior sds from "
        f"the mode ({NOT_PRIVATE})."
    )
    table = Table(title=f"Medians of {seeds} private fits ({NOT_PRIVATE})")
    for column in ("", "dp_advi", "dp_fullrank_advi", "limit"):
        table.add_column(column, justify="left" if column in ("", "limit") else "right")
    medians = {
        method: np.median(
            [
                compare(fit_privately(model, method), unprotected, held_out, mode, sds)
                for _ in track(range(seeds), method)
            ],
            axis=0,
        )
        for method in ("dp_advi", "dp_fullrank_advi")
    }
    for i, (name, limit) in enumerate(LIMITS.items()):
        table.add_row(name, *[f"{found[i]:.4f}" for found in medians.values()], limit)
    console.print(table)


def compare(
    private: xr.DataTree,
    unprotected: xr.DataTree,
    held_out: Survey,
    mode: np.ndarray,
    sds: np.ndarray,
) -> list[float]:
    """Measure one private fit; the order is that of `LIMITS`."""
    ours, theirs = [score(fit, held_out)["mean log likelihood"] for fit in (private, unprotected)]
    ratio = private["fit"]["standard_deviation"] / unprotected["fit"]["standard_deviation"]
    means = private["fit"]["mean_vector"].to_numpy()
    return [theirs - ours, distance(means, mode, sds), float(ratio.min()), float(ratio.max())]


def distance(means: np.ndarray, mode: np.ndarray, sds: np.ndarray) -> float:
    """Root mean square distance of means from the mode, in posterior standard deviations."""
    return float(np.sqrt(np.mean(((means - mode) / sds) ** 2)))


def laplace(model: pm.Model) -> tuple[np.ndarray, np.ndarray]:
    """Mode and standard deviations of the posterior's Laplace approximation, by Newton's method."""
    with without_c():
        gradient = model.compile_dlogp(mode=compile_mode("python"))
        hessian = model.compile_d2logp(negate_output=False, mode=compile_mode("python"))
    start = DictToArrayBijection.map(model.initial_point())
    z, info = start.data.astype(float), start.point_map_info
    for _ in range(NEWTON_STEPS):
        point = DictToArrayBijection.rmap(RaveledVars(z, info))
        precision = -hessian(point)
        z = z + np.linalg.solve(precision, gradient(point))
    return z, np.sqrt(np.diag(np.linalg.inv(precision)))
