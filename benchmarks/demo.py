"""Fit a sensitive survey with privacy, and show what the privacy changed.

The survey is public: that alone is why numbers without privacy may stand here beside private ones.
"""

import math
import time
from pathlib import Path

import numpy as np
import pymc as pm
import xarray as xr
from rich.console import Console
from rich.table import Table

import pymc_dp
from benchmarks.affairs import Survey, build_model, load, score

NOT_PRIVATE = "not private: public survey data"
EPSILON, DELTA = 1.0, 1e-5
OUTPUT = Path("demo-output")
EFFECTS = ("intercept", "effect", "occupation_effect")


def main() -> None:
    training, held_out = load()
    show(build_model(training), held_out)


def show(model: pm.Model, held_out: Survey) -> None:
    """Fit, print, save and draw."""
    console = Console()
    start = time.perf_counter()
    with model:
        private = pm.fit(method="dp_advi", epsilon=EPSILON, delta=DELTA, progressbar=False)
        took = time.perf_counter() - start
        # the same code: without noise, rounds clip nothing
        unprotected = pm.fit(method="dp_advi", epsilon=math.inf, random_seed=0, progressbar=False)
    console.print(coefficient_table(private, unprotected))
    console.print(score_table(private, unprotected, held_out))
    spent = private["privacy"].attrs
    console.print(
        f"Privacy spent on each woman: epsilon {spent['epsilon']:.3g} at delta {spent['delta']:g} "
        f"({spent['releases']} releases, {took:.1f} s)."
    )
    console.print("The private ± contains the noise for privacy, and what clipping may leave out.")
    OUTPUT.mkdir(exist_ok=True)
    pymc_dp.save(private, str(OUTPUT / "result.nc"))
    draw(private, unprotected, OUTPUT / "demo.png")
    console.print(f"Wrote {OUTPUT}/result.nc (the private fit alone) and {OUTPUT}/demo.png.")


def coefficients(idata: xr.DataTree) -> dict[str, tuple[float, float]]:
    """Posterior mean and standard deviation of every coefficient, by its label."""
    summary = {}
    for name in EFFECTS:
        draws = idata["posterior"][name].isel(chain=0)
        labels = draws.coords[draws.dims[1]].to_numpy() if draws.ndim > 1 else [name]
        values = draws.to_numpy().reshape(draws.sizes["draw"], -1)
        moments = zip(values.mean(axis=0), values.std(axis=0), strict=True)
        summary |= dict(zip(map(str, labels), moments, strict=True))
    return summary


def coefficient_table(private: xr.DataTree, unprotected: xr.DataTree) -> Table:
    """Lay the two posteriors side by side."""
    table = Table(title="Log odds of an affair: posterior mean ± standard deviation")
    table.add_column("coefficient")
    table.add_column("private", justify="right")
    table.add_column(f"without privacy;\n{NOT_PRIVATE}", justify="right")
    ours, theirs = coefficients(private), coefficients(unprotected)
    for name in ours:
        table.add_row(name, *[f"{mean:+.2f} ± {sd:.2f}" for mean, sd in (ours[name], theirs[name])])
    return table


def score_table(private: xr.DataTree, unprotected: xr.DataTree, held_out: Survey) -> Table:
    """Compare predictions for rows that neither fit has seen."""
    table = Table(title=f"Held-out women: {len(held_out.affair)} ({NOT_PRIVATE})")
    table.add_column("score of the predictions")
    table.add_column("private fit", justify="right")
    table.add_column("without privacy", justify="right")
    ours, theirs = score(private, held_out), score(unprotected, held_out)
    for name in ours:
        table.add_row(name, f"{ours[name]:.4f}", f"{theirs[name]:.4f}")
    return table


def draw(private: xr.DataTree, unprotected: xr.DataTree, path: Path) -> None:
    """Draw both posteriors, and epsilon against delta."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    fig, (left, right) = plt.subplots(
        1, 2, figsize=(10, 5), width_ratios=(3, 2), layout="constrained"
    )
    draw_coefficients(left, coefficients(private), coefficients(unprotected))
    draw_profile(right, private["privacy"])
    fig.savefig(path, dpi=120)
    plt.close(fig)


def draw_coefficients(ax, private: dict, unprotected: dict) -> None:
    """Draw 94% intervals, as ArviZ does; the first coefficient stands on top."""
    rows = np.arange(len(private))
    styles = (
        (private, -0.17, "C0", f"private: epsilon {EPSILON:g}, delta {DELTA:g}"),
        (unprotected, +0.17, "0.6", f"without privacy ({NOT_PRIVATE})"),
    )
    for values, shift, colour, label in styles:
        mean, sd = np.array(list(values.values())).T
        style = {"color": colour, "elinewidth": 2.5, "markersize": 5, "label": label}
        ax.errorbar(mean, rows + shift, xerr=1.88 * sd, fmt="o", **style)
    ax.axvline(0, color="0.8", linewidth=1, zorder=0)
    ax.set_yticks(rows, list(private))
    ax.invert_yaxis()
    ax.set_xlabel("log odds of an affair, 94% interval")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)


def draw_profile(ax, privacy: xr.DataTree) -> None:
    """Draw the guarantee at every delta, and mark the one that was asked for."""
    epsilon, delta = privacy.attrs["epsilon"], privacy.attrs["delta"]
    ax.plot(privacy["delta"], privacy["epsilon"], color="C0", linewidth=2)
    ax.plot(delta, epsilon, "o", color="C0")
    ax.annotate(
        f"this fit:\nepsilon {epsilon:.3g}\nat delta {delta:g}",
        (delta, epsilon),
        xytext=(8, 4),
        textcoords="offset points",
    )
    ax.set_xscale("log")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("delta")
    ax.set_ylabel("epsilon of the whole private fit")
    ax.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
