"""Plots of a result: what privacy costs, how much of an interval is noise, predictive checks.

Each is a collection of arviz-plots, whose layers a caller can restyle or leave out (``visuals=``),
and post-processing of a result.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from arviz_base.labels import MapLabeller
from arviz_plots import plot_forest
from arviz_plots import visuals as shapes
from arviz_plots.plot_collection import PlotCollection
from arviz_plots.plots.utils import process_group_variables_coords

from pymc_dp.results.build import privacy_of
from pymc_dp.results.report import noise_sd_of, share_of

new_collection: Callable[..., PlotCollection] = PlotCollection.wrap
Visuals = Mapping[str, Mapping[str, Any] | bool]
# {visual: (the function of arviz-plots that draws it, its data, keywords)}
Layers = Mapping[str, tuple[Callable[..., Any], xr.Dataset, Mapping[str, Any]]]
WIDE = {"figsize": (900, 400), "figsize_units": "dots"}
EDGES = 8  # how many edges of bins are written


def _draw(collection: Any, layers: Layers, visuals: Visuals | None) -> PlotCollection:
    """Draw the layers that the caller does not leave out, in the caller's style."""
    styles = visuals or {}
    if unknown := styles.keys() - layers.keys():
        raise ValueError(f"visuals= names {sorted(unknown)}: it may name {', '.join(layers)}.")
    for name, (draw, data, keywords) in layers.items():
        style = styles.get(name, True)
        if style is not False:
            own = style if isinstance(style, Mapping) else {}
            collection.map(draw, name, data=data, **{"ignore_aes": "all", **keywords, **own})
    return collection  # type: ignore[no-any-return]


def _titles(labeller: Any, names: Mapping[Any, Any]) -> dict[str, Any]:
    return {"labeller": labeller or MapLabeller(names), "subset_info": True}


def plot_privacy(
    idata: xr.DataTree,
    *,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    labeller: Any = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Draw what a result costs: epsilon by delta, and along the releases.

    The guaranteed pair of epsilon and delta is a point of either curve.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    plot_collection : arviz_plots.PlotCollection, optional
        One with a facet for each of the variables ``epsilon`` and ``epsilon_spent``.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's default, if left out.
    labeller : labeller, optional
        Of ArviZ; makes the titles.
    visuals : mapping of {str : mapping or bool}, optional
        Keywords of ``line``, ``point``, ``title``, ``xlabel`` or ``ylabel``, or False to leave
        it out.
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
    >>> pymc_dp.plot_privacy(idata, visuals={"point": False})  # doctest: +SKIP
    """
    privacy = privacy_of(idata)
    epsilon, delta, made = (privacy.attrs[name] for name in ("epsilon", "delta", "releases"))
    if not math.isfinite(epsilon):
        raise ValueError(
            "This result has no finite epsilon to draw: it was fitted without noise, or its "
            "epsilon is not proved. pymc_dp.privacy_report(idata) says what holds."
        )
    # not every backend has logarithmic axes
    by_delta = _path(np.log10(privacy["delta"]), privacy["epsilon"], "pair")
    spent = _path([0, *privacy["releases"]], [0, *privacy["epsilon_spent"]], "made")
    curves = xr.Dataset({"epsilon": by_delta, "epsilon_spent": spent})
    points = xr.Dataset(
        {
            "epsilon": _path([math.log10(delta)], [epsilon], "point"),
            "epsilon_spent": _path([made], [epsilon], "point"),
        }
    )
    titles = {
        "epsilon": f"epsilon {epsilon:.3g} at delta {delta:.3g}",
        "epsilon_spent": "How the cost adds up",
    }
    xlabels = {"epsilon": "log10 of delta", "epsilon_spent": "releases made"}
    if plot_collection is None:
        of_figure = WIDE | pc_kwargs.pop("figure_kwargs", {})
        keywords = {"cols": ["__variable__"], "figure_kwargs": of_figure, **pc_kwargs}
        plot_collection = new_collection(curves, backend=backend, **keywords)
    layers: Layers = {
        "line": (shapes.line_xy, curves, {"width": 2}),
        "point": (shapes.scatter_xy, points, {"color": "C1"}),
        "title": (shapes.labelled_title, curves, _titles(labeller, titles)),
        "xlabel": (shapes.labelled_x, curves, _titles(None, xlabels)),
        "ylabel": (shapes.labelled_y, curves, {"text": "epsilon"}),
    }
    return _draw(plot_collection, layers, visuals)


def _path(x: Any, y: Any, dim: str) -> xr.DataArray:
    return xr.DataArray([x, y], dims=["plot_axis", dim], coords={"plot_axis": ["x", "y"]})


def plot_noise(
    idata: xr.DataTree,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    coords: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> PlotCollection:
    """Draw intervals of a posterior beside those that the records alone would give.

    Numbers at the right say which share of the posterior variance is privacy noise.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    var_names, filter_vars, coords, **keywords
        As in ``arviz_plots.plot_forest``. Its ``visuals`` may name ``share``, the numbers, too.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ValueError
        The tree was not made by pymc_dp, or its posterior leaves the noise out.

    Notes
    -----
    **Privacy.** Post-processing of the result.

    Examples
    --------
    >>> pymc_dp.plot_noise(idata, var_names=["b"])  # doctest: +SKIP
    """
    shares = share_of(idata, noise_sd_of(idata))
    select: Callable[..., xr.Dataset] = process_group_variables_coords
    posterior, shares = (
        select(group, None, var_names, filter_vars, coords)
        for group in (idata["posterior"].to_dataset()[[*shares.data_vars]], shares)
    )
    mean = posterior.mean(("chain", "draw"))
    alone = mean + (posterior - mean) * (1 - shares).clip(min=0) ** 0.5
    columns = ["labels", "forest", "share"]
    pair = {
        name: xr.DataTree.from_dict({"posterior": drawn.expand_dims(column=columns)})
        for name, drawn in {"with privacy noise": posterior, "records alone": alone}.items()
    }
    visuals = dict(keywords.pop("visuals", None) or {})
    share = visuals.pop("share", {})
    collection: Any = plot_forest(pair, combined=True, visuals=visuals, **keywords)
    if share is not False:
        heights = collection.get_aes_as_dataset("y").mean("model")
        text = {"text": "{:.0%}".format, "y": heights, **share}
        at = {
            "coords": {"column": "share"},
            "data": shares,
            "ignore_aes": collection.aes_set - {"overlay"},
        }
        collection.map(shapes.annotate_xy, "share", **at, **text)
        along = "noise's share of the variance"
        collection.map(shapes.labelled_x, **at, store_artist=False, text=along)
    collection.add_legend("model", title="")
    return collection  # type: ignore[no-any-return]


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
        Keywords of a visual, or False to leave it out: ``replicated`` data sets, their mean
        (``expected``), what was ``observed``, two standard deviations of the ``noise`` on the
        difference of observed and expected numbers, ``title``, ``xlabel``, ``ylabel``, ``xticks``.

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
    privacy_of(result)
    if "ppc" not in result.children:
        raise ValueError("This result holds no predictive check: give one of pymc_dp.ppc.")
    bins = result["ppc"].to_dataset()
    name, noise = bins.attrs["variable"], 2 * float(bins["difference_noise_sd"])
    middle, lifted = bins["bin"].to_numpy() + 0.5, {"bin": (0, 1)}  # nan lifts the pen
    lines = bins["replicated"].pad(lifted).to_numpy()
    observed = bins["observed"].to_numpy()
    paths = {
        "replicated": _path(np.tile([*middle, np.nan], len(lines)), lines.ravel(), "point"),
        "expected": _path(middle, bins["expected"].to_numpy(), "point"),
        "observed": _path(middle, observed, "point"),
        "noise": xr.DataArray(
            [middle, observed - noise, observed + noise],
            dims=["plot_axis", "point"],
            coords={"plot_axis": ["x", "y_bottom", "y_top"]},
        ),
    }
    data = {visual: xr.Dataset({name: path}) for visual, path in paths.items()}
    panel = data["expected"]
    if plot_collection is None:
        of_figure = WIDE | pc_kwargs.pop("figure_kwargs", {})
        plot_collection = new_collection(
            panel, backend=backend, figure_kwargs=of_figure, **pc_kwargs
        )
    edges = [*bins["lower"].to_numpy(), float(bins["upper"][-1])]
    places = range(0, len(edges), -(-len(edges) // EDGES))
    ticks = {"values": [*places], "labels": [f"{edges[k]:.3g}" for k in places]}
    ranked = bins.attrs["statistic"] == "ranks"
    along = f"rank of {name} among predictions" if ranked else name
    title = f"{name}: tail probability {bins.attrs['tail_probability']:.2g}"
    layers: Layers = {
        "replicated": (shapes.line_xy, data["replicated"], {"color": "C7", "width": 0.7}),
        "expected": (shapes.line_xy, panel, {"color": "C0", "width": 2}),
        "noise": (shapes.ci_line_y, data["noise"], {"color": "C1", "width": 2}),
        "observed": (shapes.scatter_xy, data["observed"], {"color": "C1"}),
        "title": (shapes.labelled_title, panel, _titles(labeller, {name: title})),
        "xlabel": (shapes.labelled_x, panel, _titles(labeller, {name: along})),
        "ylabel": (shapes.labelled_y, panel, {"text": "records"}),
        "xticks": (shapes.set_xticks, panel, {"store_artist": False, **ticks}),
    }
    return _draw(plot_collection, layers, visuals)
