"""Plots of what privacy costs: the guarantee of a result, and the share of noise in its width.

First what all plots share: visuals that a caller can restyle or leave out, the figure, and bars
with names. Then `plot_privacy` with its helpers, then `plot_noise` with its own. All are
post-processing of a result.
"""

import math
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from arviz_base import rcParams
from arviz_base.labels import MapLabeller, NoVarLabeller, mix_labellers
from arviz_plots import plot_forest
from arviz_plots import visuals as shapes
from arviz_plots.plot_collection import PlotCollection, backend_from_object
from arviz_plots.plots.utils import process_group_variables_coords

from pymc_dp.filing.record import label_of, ledger_state
from pymc_dp.ledger.ledger import Ledger
from pymc_dp.results.build import privacy_of
from pymc_dp.results.report import noise_sd_of, share_of

Visuals = Mapping[str, Mapping[str, Any] | bool]
Visual = Callable[..., Any]  # draws in one panel
backend_of_object: Callable[..., Any] = backend_from_object
OF_PRIVACY = ("label", "line", "mark", "point", "text", "title", "xlabel", "ylabel")
CURVES: Mapping[Hashable, Hashable] = {
    "epsilon": "What the whole fit costs",
    "epsilon_spent": "How the cost adds up",
}
PANEL = xr.Dataset({"label": 0.0})
LABEL: Mapping[Hashable, Hashable] = {"label": "Privacy label"}
X_AXES: Mapping[Hashable, Hashable] = {"epsilon": "delta", "epsilon_spent": "releases made"}
OF_FOREST = ("trunk", "twig", "point_estimate", "labels", "ticklabels", "remove_axis")
OF_NOISE = (*OF_FOREST, "share", "share_text", "title", "legend")
COLUMNS = {"forest": "posterior", "share": "noise's share\nof the variance"}
# dots that the plot of noise takes, and each of its rows
WIDTH, ABOVE_AND_BELOW, ROW = 900, 130, 30


def check_visuals(function: str, visuals: Visuals | None, known: Iterable[str]) -> Visuals:
    """Refuse visuals that a plot does not have, and values that are no styling."""
    for name, keywords in (visuals or {}).items():
        if name not in known:
            raise ValueError(
                f"{function} draws no visual that is named {name!r}: visuals= may name "
                f"{', '.join(known)}."
            )
        if not isinstance(keywords, Mapping | bool):
            raise TypeError(
                f"visuals= of {function} gives {keywords!r} for {name!r}: give a mapping of "
                "keywords, or False to leave it out."
            )
    return visuals or {}


class Drawing(NamedTuple):
    """A collection of panels, and what the caller has said of its visuals."""

    collection: Any
    visuals: Visuals

    def keywords_of(self, name: str, **defaults: Any) -> dict[str, Any] | None:
        """Return how a visual is drawn; None if it is left out."""
        given = self.visuals.get(name, True)
        if given is False:
            return None
        return defaults if given is True else {**defaults, **given}

    def draw(
        self, name: str, by: Visual, data: xr.Dataset, ignore_aes: Any = "all", **defaults: Any
    ) -> None:
        """Map a visual over data, unless it is left out; aesthetics replace defaults."""
        mapped = set() if ignore_aes == "all" else self.collection.aes_set - ignore_aes
        free = {key: value for key, value in defaults.items() if key not in mapped}
        keywords = self.keywords_of(name, ignore_aes=ignore_aes, **free)
        if keywords is not None:
            self.collection.map(by, name, data=data, **keywords)

    def label(self, name: str, by: Visual, data: xr.Dataset, labeller: Any) -> None:
        """Write a title, or the name of an axis, that a labeller makes for each panel."""
        self.draw(name, by, data, labeller=labeller, subset_info=True)

    def set_axes(self, by: Visual, data: xr.Dataset, **to: Any) -> None:
        """Set ticks or limits, which are no visuals that a caller can restyle."""
        self.collection.map(by, data=data, ignore_aes="all", store_artist=False, **to)


def backend_of(backend: str | None, collection: PlotCollection | None) -> str:
    """Return the caller's backend, else the collection's, else ArviZ's default."""
    return backend or (collection.backend if collection is not None else rcParams["plot.backend"])


def figure_of(
    backend: str, width: float, height: float, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return keywords of a figure: its size in dots, and room for all labels."""
    layout = {"layout": "constrained"} if backend == "matplotlib" else {}
    size = {} if "figsize" in given else {"figsize": (width, height), "figsize_units": "dots"}
    return {**layout, **size, **given}


def wrapped(
    data: xr.Dataset,
    backend: str | None,
    width: float,
    height: float,
    given: Mapping[str, Any],
    **defaults: Any,
) -> PlotCollection:
    """Return a collection of panels; what is ``given`` replaces the defaults."""
    backend, keywords = backend_of(backend, None), {**defaults, **given}
    of_figure = {**defaults.get("figure_kwargs", {}), **given.get("figure_kwargs", {})}
    keywords["figure_kwargs"] = figure_of(backend, width, height, of_figure)
    wrap: Callable[..., PlotCollection] = PlotCollection.wrap
    return wrap(data, backend=backend, **keywords)


def bar(length: xr.DataArray, target: Any, y: Any, height: float = 0.8, **keywords: Any) -> Any:
    """Draw a horizontal bar from 0: a visual that arviz-plots does not have."""
    low, high = float(y) - height / 2, float(y) + height / 2
    ends = [0.0, length.item()]
    return backend_of_object(target).fill_between_y(
        ends, [low, low], [high, high], target, **keywords
    )


def row_names(names: xr.DataArray, target: Any, **keywords: Any) -> None:
    """Write the names of bars at their heights, which fall with the rank."""
    heights = -names["rank"].values
    backend_of_object(target).yticks(heights, names.values.tolist(), target, **keywords)


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
    visuals = check_visuals("plot_privacy", visuals, OF_PRIVACY)
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
    _label_curves(panels, curves, labeller)
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
    curves = privacy[[*CURVES]].reindex(releases=from_nothing, fill_value=0.0)
    return curves.assign_coords(delta=np.log10(curves["delta"]))


def _draw_label(panels: Drawing, label: str, labeller: Any) -> None:
    panels.draw("label", _write_lines, PANEL, text=label, size=9.5)
    panels.set_axes(shapes.remove_axis, PANEL, axis="both")
    titles = labeller or MapLabeller(var_name_map=LABEL)
    panels.label("title", shapes.labelled_title, PANEL, titles)


def _write_lines(_: xr.DataArray, target: Any, text: str, **keywords: Any) -> Any:
    """Write lines from the upper left of a panel: a visual that arviz-plots does not have."""
    backend = backend_of_object(target)
    backend.xlim((0, 1), target)
    backend.ylim((0, 1), target)
    place = {"vertical_align": "top", "horizontal_align": "left"}
    return backend.text(0, 1, text, target, **place, **keywords)


def _draw_curves(panels: Drawing, curves: xr.Dataset) -> None:
    panels.draw("line", _draw_line, curves, width=2, ignore_aes=set())
    lowest, *_, highest = curves["delta"].values
    powers = range(math.ceil(lowest), math.floor(highest) + 1, 2)
    ticks = {"values": [*powers], "labels": [f"1e{power}" for power in powers]}
    panels.set_axes(shapes.set_xticks, curves[["epsilon"]], **ticks)


def _draw_line(values: xr.DataArray, target: Any, **keywords: Any) -> Any:
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


def _label_curves(panels: Drawing, curves: xr.Dataset, labeller: Any) -> None:
    titles = labeller or MapLabeller(var_name_map=CURVES)
    panels.label("title", shapes.labelled_title, curves, titles)
    names = MapLabeller(var_name_map=X_AXES)
    panels.label("xlabel", shapes.labelled_x, curves, names)
    panels.draw("ylabel", shapes.labelled_y, curves, text="epsilon")


def plot_noise(
    idata: xr.DataTree,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    coords: Mapping[str, Any] | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    labeller: Any = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Draw intervals of a posterior beside those that the records alone would give.

    A column of its own says which share of the posterior variance is privacy noise.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    var_names, filter_vars, coords
        Which variables to draw, as in ``arviz_plots.plot_forest``.
    plot_collection, backend, labeller
        As in `pymc_dp.plot_privacy`; the collection is one that an earlier call returned for the
        same variables.
    visuals : mapping of {str : mapping or bool}, optional
        Keywords for a visual, or False to leave it out:

        * ``trunk``, ``twig``, ``point_estimate``, ``labels``, ``ticklabels``, ``remove_axis`` ->
          those of ``arviz_plots.plot_forest``
        * ``share`` -> the bars of shares, passed to the backend's ``fill_between_y``
        * ``share_text`` -> the shares in numbers, passed to ``annotate_xy``
        * ``title`` -> the columns' titles, passed to ``labelled_title``
        * ``legend`` -> passed to ``PlotCollection.add_legend``
    **pc_kwargs
        Passed to ``arviz_plots.plot_forest``: its own settings, such as ``ci_probs``, and those
        of ``PlotCollection.grid``.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ValueError
        The tree was not made by pymc_dp, its posterior leaves the noise out, or a visual is not
        known.

    Notes
    -----
    **Privacy.** Post-processing of the result.

    Examples
    --------
    >>> pymc_dp.plot_noise(idata, var_names=["b"])  # doctest: +SKIP
    """
    visuals = check_visuals("plot_noise", visuals, OF_NOISE)
    shares = share_of(idata, noise_sd_of(idata))
    select: Callable[..., xr.Dataset] = process_group_variables_coords
    posterior, shares = (
        select(group, None, var_names, filter_vars, coords)
        for group in (idata["posterior"].to_dataset()[[*shares.data_vars]], shares)
    )
    backend = backend_of(backend, plot_collection)
    if plot_collection is None:
        size = (WIDTH, ABOVE_AND_BELOW + ROW * sum(x.size for x in shares.values()))
        figure = figure_of(backend, *size, pc_kwargs.get("figure_kwargs", {}))
        pc_kwargs["figure_kwargs"] = figure
    collection = plot_forest(
        _pair(posterior, shares),
        plot_collection=plot_collection,
        labeller=labeller,
        **{"backend": backend, "combined": True, **_of_forest(visuals), **pc_kwargs},
    )
    _draw_shares(Drawing(collection, visuals), shares)
    _label_columns(Drawing(collection, visuals))
    return collection


def _of_forest(visuals: Visuals) -> dict[str, Any]:
    """Return what ``plot_forest`` takes; it has a setting of its own to leave the labels out."""
    given = {name: visuals[name] for name in OF_FOREST if name in visuals}
    if given.get("labels") is False:
        return {"labels": [], "visuals": given | {"labels": {}}}
    return {"visuals": given}


def _pair(posterior: xr.Dataset, shares: xr.Dataset) -> dict[str, xr.DataTree]:
    """Return the posterior and what the records alone would give, for all columns."""
    mean = posterior.mean(("chain", "draw"))
    alone = mean + (posterior - mean) * (1 - shares).clip(min=0) ** 0.5
    pair = {"with privacy noise": posterior, "records alone": alone}
    columns = ["labels", *COLUMNS]
    return {
        name: xr.DataTree.from_dict({"posterior": drawn.expand_dims(column=columns)})
        for name, drawn in pair.items()
    }


def _draw_shares(panels: Drawing, shares: xr.Dataset) -> None:
    collection, column = panels.collection, {"column": "share"}
    heights = collection.get_aes_as_dataset("y").mean("model")
    at = {"coords": column, "ignore_aes": collection.aes_set - {"overlay"}, "y": heights}
    text = {"text": " {:.0%}".format, "horizontal_align": "left"}
    panels.draw("share", bar, shares, height=0.5, color="C2", alpha=0.7, **at)
    panels.draw("share_text", shapes.annotate_xy, shares, **text, **at)
    whole, ticks = xr.Dataset({"share": 0.0}), {0: "0", 0.5: "50%", 1: "100%"}
    panels.set_axes(shapes.set_xlim, whole, coords=column, limits=(0, 1.25))
    panels.set_axes(
        shapes.set_xticks, whole, coords=column, values=[*ticks], labels=[*ticks.values()]
    )


def _label_columns(panels: Drawing) -> None:
    labeller = mix_labellers((MapLabeller, NoVarLabeller))(coord_map={"column": COLUMNS})
    columns = xr.Dataset(
        {"title": ("column", [math.nan, 0.0, 0.0])}, {"column": ["labels", *COLUMNS]}
    )
    panels.label("title", shapes.labelled_title, columns, labeller)
    on_top = {"loc": "outside upper center", "ncols": 2}
    placed = on_top if panels.collection.backend == "matplotlib" else {}
    legend = panels.keywords_of("legend", title="", **placed)
    if legend is not None:
        panels.collection.add_legend("model", **legend)
