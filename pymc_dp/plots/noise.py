"""A plot of how much of a posterior's width is privacy noise."""

from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import Any

import xarray as xr
from arviz_base.labels import MapLabeller, NoVarLabeller, mix_labellers
from arviz_plots import plot_forest
from arviz_plots import visuals as shapes
from arviz_plots.plot_collection import PlotCollection
from arviz_plots.plots.utils import process_group_variables_coords

from pymc_dp.plots.visuals import Drawing, Visuals, backend_of, bar, check_visuals, figure_of
from pymc_dp.results.summary import noise_sd_of, share_of

OF_FOREST = ("trunk", "twig", "point_estimate", "labels", "ticklabels", "remove_axis")
VISUALS = (*OF_FOREST, "share", "share_text", "title", "legend")
TITLES = {"forest": "posterior", "share": "noise's share\nof the variance"}
# dots that the plot takes, and each of its rows
WIDTH, ABOVE_AND_BELOW, ROW = 900, 130, 30


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
    visuals = check_visuals("plot_noise", visuals, VISUALS)
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
    _label(Drawing(collection, visuals))
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
    columns = ["labels", *TITLES]
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


def _label(panels: Drawing) -> None:
    labeller = mix_labellers((MapLabeller, NoVarLabeller))(coord_map={"column": TITLES})
    columns = xr.Dataset({"title": ("column", [nan, 0.0, 0.0])}, {"column": ["labels", *TITLES]})
    panels.label("title", shapes.labelled_title, columns, labeller)
    on_top = {"loc": "outside upper center", "ncols": 2}
    placed = on_top if panels.collection.backend == "matplotlib" else {}
    legend = panels.keywords_of("legend", title="", **placed)
    if legend is not None:
        panels.collection.add_legend("model", **legend)
