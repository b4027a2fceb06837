"""A plot of a private posterior predictive check."""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from arviz_base.labels import MapLabeller
from arviz_plots import visuals as shapes
from arviz_plots.plot_collection import PlotCollection

from pymc_dp.plots.visuals import Drawing, Visuals, backend_of_object, check_visuals, wrapped
from pymc_dp.results.allow_list import privacy_of

VISUALS = ("replicated", "expected", "observed", "noise", "title", "xlabel", "ylabel")
WIDTH, HEIGHT = 700, 420
EDGES = 8  # how many edges of bins are written


def plot_ppc(
    result: xr.DataTree,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    labeller: Any = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Draw observed numbers of records by bin beside those that the posterior predicts.

    Parameters
    ----------
    result : DataTree
        Of `pymc_dp.ppc`.
    plot_collection, backend, labeller, **pc_kwargs
        As in `pymc_dp.plot_privacy`; the collection has one panel, of the observed variable.
    visuals : mapping of {str : mapping or bool}, optional
        Keywords for a visual, or False to leave it out:

        * ``replicated`` -> replicated data sets, passed to the backend's ``line``
        * ``expected`` -> their mean, passed to the same
        * ``observed`` -> passed to the backend's ``scatter``
        * ``noise`` -> two standard deviations of the noise on the difference of observed and
          expected numbers, passed to the backend's ``line``
        * ``title``, ``xlabel``, ``ylabel`` -> passed to ``arviz_plots.visuals.labelled_title``,
          ``labelled_x`` and ``labelled_y``

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ValueError
        The tree is no result of `pymc_dp.ppc`, or a visual is not known.

    Notes
    -----
    **Privacy.** Post-processing of the result.

    Examples
    --------
    >>> pymc_dp.plot_ppc(result, backend="matplotlib")  # doctest: +SKIP
    """
    visuals = check_visuals("plot_ppc", visuals, VISUALS)
    privacy_of(result)
    if "ppc" not in result.children:
        raise ValueError("This result holds no predictive check: give one of pymc_dp.ppc.")
    found = result["ppc"].to_dataset()
    lines = _lines(found)
    if plot_collection is None:
        of_variable = found[["expected"]].rename(expected=found.attrs["variable"])
        plot_collection = wrapped(of_variable, backend, WIDTH, HEIGHT, pc_kwargs)
    panel, path = Drawing(plot_collection, visuals), partial(_path, "line")
    panel.draw("replicated", path, lines["replicated"], color="C7", width=0.7)
    panel.draw("expected", path, lines["expected"], color="C0", width=2)
    panel.draw("noise", path, lines["noise"], color="C1", width=2)
    panel.draw("observed", partial(_path, "scatter"), lines["observed"], color="C1")
    _label(panel, found, labeller)
    return plot_collection


def _lines(found: xr.Dataset) -> dict[str, xr.Dataset]:
    """Return polylines, (point, plot_axis) each; nan lifts the pen."""
    middle = found["bin"].to_numpy() + 0.5
    observed, noise = found["observed"].to_numpy(), 2 * float(found["difference_noise_sd"])
    rows = [[(*middle, np.nan), (*row, np.nan)] for row in found["replicated"].to_numpy()]
    bars = [
        [(x, x, np.nan), (y - noise, y + noise, np.nan)]
        for x, y in zip(middle, observed, strict=True)
    ]
    paths = {
        "replicated": np.concatenate(rows, axis=1).T,
        "expected": np.stack([middle, found["expected"].to_numpy()], axis=1),
        "observed": np.stack([middle, observed], axis=1),
        "noise": np.concatenate(bars, axis=1).T,
    }
    variable, dims = found.attrs["variable"], ("point", "plot_axis")
    return {name: xr.Dataset({variable: (dims, path)}) for name, path in paths.items()}


def _path(kind: str, path: xr.DataArray, target: Any, **keywords: Any) -> Any:
    return getattr(backend_of_object(target), kind)(*path.to_numpy().T, target, **keywords)


def _label(panel: Drawing, found: xr.Dataset, labeller: Any) -> None:
    variable, tail = found.attrs["variable"], found.attrs["tail_probability"]
    place = xr.Dataset({variable: 0.0})
    edges = np.append(found["lower"].to_numpy(), found["upper"].to_numpy()[-1])
    chosen = range(0, len(edges), -(-len(edges) // EDGES))
    ticks = {"values": [*chosen], "labels": [f"{edges[k]:.3g}" for k in chosen]}
    panel.set_axes(shapes.set_xticks, place, **ticks)
    title = labeller or MapLabeller({variable: f"{variable}: tail probability {tail:.2g}"})
    panel.label("title", shapes.labelled_title, place, title)
    ranked = found.attrs["statistic"] == "ranks"
    along = f"rank of {variable} among predictions" if ranked else variable
    xlabel = labeller or MapLabeller({variable: along})
    panel.label("xlabel", shapes.labelled_x, place, xlabel)
    panel.draw("ylabel", shapes.labelled_y, place, text="records")
