"""A plot of a result's guarantee."""

import math
import os
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_base.labels import MapLabeller
from arviz_plots import visuals as shapes
from arviz_plots.plot_collection import PlotCollection

from pymc_dp.filing.balance import ledger_state
from pymc_dp.filing.label import label_of
from pymc_dp.ledger.ledger import Ledger
from pymc_dp.plots.visuals import Drawing, Visuals, backend_of_object, check_visuals, wrapped
from pymc_dp.results.allow_list import privacy_of

VISUALS = ("label", "line", "mark", "point", "text", "title", "xlabel", "ylabel")
TITLES: Mapping[Hashable, Hashable] = {
    "epsilon": "What the whole fit costs",
    "epsilon_spent": "How the cost adds up",
}
PANEL = xr.Dataset({"label": 0.0})
LABEL: Mapping[Hashable, Hashable] = {"label": "Privacy label"}
X_AXES: Mapping[Hashable, Hashable] = {"epsilon": "delta", "epsilon_spent": "releases made"}


def plot_privacy(
    idata: xr.DataTree,
    *,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    labeller: Any = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Draw the label of a result, and what it costs: epsilon by delta, and along the releases.

    The label says on one page what is protected, how well, what was released and what is left. The
    guaranteed pair of epsilon and delta is a point of either curve.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    ledger : Ledger or path, optional
        The ledger that the fit was booked in: the label then says what is left in it.
    plot_collection : arviz_plots.PlotCollection, optional
        One with a facet for each of the variables ``epsilon`` and ``epsilon_spent``, and for
        ``label`` if the label is to be drawn.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        The collection's, or ArviZ's default, if left out.
    labeller : labeller, optional
        Of ArviZ; makes the titles.
    visuals : mapping of {str : mapping or bool}, optional
        Keywords for a visual, or False to leave it out:

        * ``label`` -> the lines of the label, passed to the backend's ``text``
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
        The result has no finite epsilon to draw, a visual is not known, or the ledger holds no
        such fit.

    Notes
    -----
    **Privacy.** Reads the ``privacy`` group alone, and the ledger's plans.

    Examples
    --------
    >>> pymc_dp.plot_privacy(idata, visuals={"text": False})  # doctest: +SKIP
    """
    visuals = check_visuals("plot_privacy", visuals, VISUALS)
    privacy = privacy_of(idata)
    curves = _curves(privacy)
    label = label_of(privacy, ledger_state(ledger, privacy.attrs))
    if plot_collection is None:
        drawn = curves if visuals.get("label") is False else PANEL.merge(curves)
        width = 900 if drawn is curves else 1350
        plot_collection = wrapped(drawn, backend, width, 380, pc_kwargs, cols=["__variable__"])
    panels = Drawing(plot_collection, visuals)
    if "label" in plot_collection.viz["plot"]:
        _draw_label(panels, label, labeller)
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


def _draw_label(panels: Drawing, label: str, labeller: Any) -> None:
    panels.draw("label", _lines, PANEL, text=label, size=9.5)
    panels.set_axes(shapes.remove_axis, PANEL, axis="both")
    titles = labeller or MapLabeller(var_name_map=LABEL)
    panels.label("title", shapes.labelled_title, PANEL, titles)


def _lines(_: xr.DataArray, target: Any, text: str, **keywords: Any) -> Any:
    """Write lines from the upper left of a panel: a visual that arviz-plots does not have."""
    backend = backend_of_object(target)
    backend.xlim((0, 1), target)
    backend.ylim((0, 1), target)
    place = {"vertical_align": "top", "horizontal_align": "left"}
    return backend.text(0, 1, text, target, **place, **keywords)


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
