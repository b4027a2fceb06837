"""Plots of a result: what privacy costs, how much of an interval is noise, predictive checks.

Each returns a collection of arviz-plots, and is post-processing of a result.
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

from pymc_dp.results.report import noise_sd_of, share_of
from pymc_dp.results.tree import privacy_of

EDGES = 8  # how many edges of bins are written


def _collection(data: xr.Dataset, backend: str | None, **pc_kwargs: Any) -> Any:
    wide = {"figsize": (900, 400), "figsize_units": "dots", **pc_kwargs.pop("figure_kwargs", {})}
    make: Callable[..., PlotCollection] = PlotCollection.wrap
    return make(data, backend=backend, figure_kwargs=wide, **pc_kwargs)


def plot_privacy(
    idata: xr.DataTree, *, backend: str | None = None, **pc_kwargs: Any
) -> PlotCollection:
    """Draw what a result costs: epsilon by delta, and along the releases.

    The guaranteed pair of epsilon and delta is a point of either curve.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's default, if left out.
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ValueError
        The result has no finite epsilon to draw.

    Examples
    --------
    >>> pymc_dp.plot_privacy(idata)  # doctest: +SKIP
    """
    privacy = privacy_of(idata)
    epsilon, delta, made = (privacy.attrs[name] for name in ("epsilon", "delta", "releases"))
    if not math.isfinite(epsilon):
        raise ValueError(
            "This result has no finite epsilon to draw: it was fitted without noise, or its "
            "epsilon is not proved. pymc_dp.privacy_report(idata) says what holds."
        )
    # not every backend has logarithmic axes
    by_delta = _path("pair", x=np.log10(privacy["delta"]), y=privacy["epsilon"])
    spent = _path("made", x=[0, *privacy["releases"]], y=[0, *privacy["epsilon_spent"]])
    curves = xr.Dataset({"epsilon": by_delta, "epsilon_spent": spent})
    ends = {"epsilon": math.log10(delta), "epsilon_spent": made}
    points = {name: _path("point", x=[x], y=[epsilon]) for name, x in ends.items()}
    titles = {
        "epsilon": f"epsilon {epsilon:.3g} at delta {delta:.3g}",
        "epsilon_spent": "How the cost adds up",
    }
    along = {"epsilon": "log10 of delta", "epsilon_spent": "releases made"}
    collection = _collection(curves, backend, **{"cols": ["__variable__"], **pc_kwargs})
    collection.map(shapes.line_xy, "line", data=curves, width=2)
    collection.map(shapes.scatter_xy, "point", data=xr.Dataset(points), color="C1")
    _name_axes(collection, curves, titles, along, "epsilon")
    return collection  # type: ignore[no-any-return]


def _name_axes(
    collection: Any, data: xr.Dataset, titles: Mapping[Any, str], x: Mapping[Any, str], y: str
) -> None:
    of_each = {"data": data, "subset_info": True}
    collection.map(shapes.labelled_title, "title", labeller=MapLabeller(titles), **of_each)
    collection.map(shapes.labelled_x, "xlabel", labeller=MapLabeller(x), **of_each)
    collection.map(shapes.labelled_y, "ylabel", data=data, text=y)


def _path(dim: str, **axes: Any) -> xr.DataArray:
    return xr.DataArray([*axes.values()], {"plot_axis": [*axes]}, ["plot_axis", dim])


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
    idata, var_names, filter_vars, coords, **keywords
        A result of `pymc_dp.fit`, and how to draw it, as in ``arviz_plots.plot_forest``. Its
        ``visuals`` may name ``share``, the numbers, too.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ValueError
        The tree was not made by pymc_dp, or its posterior leaves the noise out.

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
    result: xr.DataTree, *, backend: str | None = None, **pc_kwargs: Any
) -> PlotCollection:
    """Draw observed numbers of records by bin beside those that the posterior predicts.

    Lines are replicated data sets and their mean, points are observed numbers. Bars are two
    standard deviations of the privacy noise on the difference of observed and expected numbers.

    Parameters
    ----------
    result : DataTree
        Of `pymc_dp.ppc`.
    backend, **pc_kwargs
        As in `pymc_dp.plot_privacy`.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ValueError
        The tree is no result of `pymc_dp.ppc`.

    Examples
    --------
    >>> pymc_dp.plot_ppc(result, backend="matplotlib")  # doctest: +SKIP
    """
    privacy_of(result)
    if "ppc" not in result.children:
        raise ValueError("This result holds no predictive check: give one of pymc_dp.ppc.")
    bins = result["ppc"].to_dataset()
    name, noise = bins.attrs["variable"], 2 * float(bins["difference_noise_sd"])
    middle, observed = bins["bin"].to_numpy() + 0.5, bins["observed"].to_numpy()
    lines = bins["replicated"].pad({"bin": (0, 1)}).to_numpy()  # nan lifts the pen
    replicated = _path("point", x=np.tile([*middle, np.nan], len(lines)), y=lines.ravel())
    panel = xr.Dataset({name: _path("point", x=middle, y=bins["expected"].to_numpy())})
    ends = _path("point", x=middle, y_bottom=observed - noise, y_top=observed + noise)
    points = _path("point", x=middle, y=observed)
    collection = _collection(panel, backend, **pc_kwargs)
    for draw, visual, path, style in (
        (shapes.line_xy, "replicated", replicated, {"color": "C7", "width": 0.7}),
        (shapes.line_xy, "expected", panel[name], {"color": "C0", "width": 2}),
        (shapes.ci_line_y, "noise", ends, {"color": "C1", "width": 2}),
        (shapes.scatter_xy, "observed", points, {"color": "C1"}),
    ):
        collection.map(draw, visual, data=xr.Dataset({name: path}), **style)
    title = f"{name}: tail probability {bins.attrs['tail_probability']:.2g}"
    along = f"rank of {name} among predictions" if bins.attrs["statistic"] == "ranks" else name
    _name_axes(collection, panel, {name: title}, {name: along}, "records")
    edges = [*bins["lower"].to_numpy(), float(bins["upper"][-1])]
    places = range(0, len(edges), -(-len(edges) // EDGES))
    ticks = {"values": [*places], "labels": [f"{edges[k]:.3g}" for k in places]}
    collection.map(shapes.set_xticks, "xticks", data=panel, store_artist=False, **ticks)
    return collection  # type: ignore[no-any-return]
