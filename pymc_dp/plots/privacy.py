"""A plot of a result's guarantee."""

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_base.labels import MapLabeller
from arviz_plots import visuals as shapes
from arviz_plots.plot_collection import PlotCollection

from pymc_dp.plots.visuals import Drawing, Visuals, check_visuals, wrapped
from pymc_dp.results.allow_list import privacy_of

VISUALS = ("line", "mark", "point", "text", "title", "xlabel", "ylabel")
TITLES: Mapping[Hashable, Hashable] = {
    "epsilon": "What the whole fit costs",
    "epsilon_spent": "How the cost adds up",
}
X_AXES: Mapping[Hashable, Hashable] = {"epsilon": "delta", "epsilon_spent": "releases made"}


def plot_privacy(
    idata: xr.DataTree,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    labeller: Any = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Draw what a result costs: epsilon against delta, and along the releases.

    The guaranteed pair of both is a point of either curve.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    plot_collection : arviz_plots.PlotCollection, optional
        One with a facet for each of the variables ``epsilon`` and ``epsilon_spent``.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        The collection's, or ArviZ's default, if left out.
    labeller : labeller, optional
        Of ArviZ; makes the titles.
    visuals : mapping of {str : mapping or bool}, optional
        Keywords for a visual, or False to leave it out:

        * ``line`` -> the curves, passed to ``arviz_plots.visuals.line``
        * ``mark`` -> the level of the guaranteed epsilon, passed to ``hline``
        * ``point``, ``text`` -> the guaranteed pair, passed to ``scatter_xy`` and ``annotate_xy``
        * ``title`` -> passed to ``labelled_title``
        * ``xlabel``, ``ylabel`` -> passed to ``labelled_x`` and ``labelled_y``
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ValueError
        The result has no finite epsilon to draw, or a visual is not known.

    Notes
    -----
    **Privacy.** Reads the ``privacy`` group alone.

    Examples
    --------
    >>> pymc_dp.plot_privacy(idata, visuals={"text": False})  # doctest: +SKIP
    """
    visuals = check_visuals("plot_privacy", visuals, VISUALS)
    privacy = privacy_of(idata)
    curves = _curves(privacy)
    if plot_collection is None:
        plot_collection = wrapped(curves, backend, 900, 380, pc_kwargs, cols=["__variable__"])
    panels = Drawing(plot_collection, visuals)
    _draw_curves(panels, curves)
    _draw_guarantee(panels, privacy)
    _label(panels, curves, labeller)
    return plot_collection


def _curves(privacy: xr.Dataset) -> xr.Dataset:
    """Return epsilon by log10 of delta, and by the releases made, of which none cost nothing."""
    # not every backend has logarithmic axes
    if not math.isfinite(privacy.attrs["epsilon"]):
        raise ValueError(
            "This result has no finite epsilon to draw: it was fitted without noise, or its "
            "epsilon is not proved. pymc_dp.privacy_report(idata) says what holds."
        )
    from_nothing = [0, *privacy["releases"].values]
    curves = privacy[[*TITLES]].reindex(releases=from_nothing, fill_value=0.0)
    return curves.assign_coords(delta=np.log10(curves["delta"]))


def _draw_curves(panels: Drawing, curves: xr.Dataset) -> None:
    panels.draw("line", _line, curves, width=2, ignore_aes=set())
    lowest, *_, highest = curves["delta"].values
    powers = range(math.ceil(lowest), math.floor(highest) + 1, 2)
    ticks = {"values": [*powers], "labels": [f"1e{power}" for power in powers]}
    panels.set_axes(shapes.set_xticks, curves[["epsilon"]], **ticks)


def _line(values: xr.DataArray, target: Any, **keywords: Any) -> Any:
    [along] = values.dims
    draw_line: Callable[..., Any] = shapes.line
    return draw_line(values, target, xname=along, **keywords)


def _draw_guarantee(panels: Drawing, privacy: xr.Dataset) -> None:
    """Mark the epsilon of the whole fit at its delta, which all planned releases cost."""
    epsilon, delta = privacy.attrs["epsilon"], privacy.attrs["delta"]
    ends = {"epsilon": math.log10(delta), "epsilon_spent": privacy.attrs["releases"]}
    level = xr.Dataset(dict.fromkeys(ends, epsilon))
    points = xr.Dataset(
        {name: ("plot_axis", [x, epsilon]) for name, x in ends.items()}, {"plot_axis": ["x", "y"]}
    )
    text = f" epsilon {epsilon:.3g}\n at delta {delta:.3g}"
    place = {"vertical_align": "bottom", "horizontal_align": "left"}
    panels.draw("mark", shapes.hline, level, linestyle="C1", color="B2")
    panels.draw("point", shapes.scatter_xy, points, color="C1")
    panels.draw("text", shapes.annotate_xy, points[["epsilon"]], text=text, **place)


def _label(panels: Drawing, curves: xr.Dataset, labeller: Any) -> None:
    titles = labeller or MapLabeller(var_name_map=TITLES)
    panels.label("title", shapes.labelled_title, curves, titles)
    names = MapLabeller(var_name_map=X_AXES)
    panels.label("xlabel", shapes.labelled_x, curves, names)
    panels.draw("ylabel", shapes.labelled_y, curves, text="epsilon")
