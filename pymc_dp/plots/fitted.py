"""Plots of what was fitted: the checks of a result, predictive checks, and topics.

`plot_check`, `plot_ppc` and `plot_topics`, each followed by its helpers. All are post-processing
of a result.
"""

from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from arviz_base.labels import DimCoordLabeller, MapLabeller, NoVarLabeller, mix_labellers
from arviz_plots import visuals as shapes
from arviz_plots.plot_collection import PlotCollection

from pymc_dp.checking.check import LIMITS, Checks, check
from pymc_dp.plots.privacy import (
    Drawing,
    Visuals,
    backend_of_object,
    bar,
    check_visuals,
    row_names,
    wrapped,
)
from pymc_dp.postprocess.topics import mean_topics
from pymc_dp.results.build import privacy_of

OF_CHECK = ("bar", "names", "limit", "title")
TITLES: Mapping[Hashable, Hashable] = {
    "steps": "last steps, in\nposterior sds",
    "noise": "noise's share\nof the variance",
    "prior": "width over\nthat of the prior",
}
# dots that a panel takes, and each of its rows
CHECK_WIDTH, CHECK_MARGIN, CHECK_ROW = 320, 110, 22
OF_PPC = ("replicated", "expected", "observed", "noise", "title", "xlabel", "ylabel")
PPC_WIDTH, PPC_HEIGHT = 700, 420
EDGES = 8  # how many edges of bins are written
OF_TOPICS = ("bar", "words", "title", "xlabel")
# panels in a row, and dots that a panel and each of its words take
TOPIC_COLUMNS = 5
TOPIC_WIDTH, TOPIC_MARGIN, WORD_ROW = 200, 90, 19


def plot_check(
    idata: xr.DataTree,
    model: pm.Model | None = None,
    *,
    rows: int = 12,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    labeller: Any = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Draw the checks that have a number for every variable, the worst ones first.

    Parameters
    ----------
    idata, model
        As in `pymc_dp.check`.
    rows : int
        How many variables a panel shows.
    plot_collection, backend, labeller, **pc_kwargs
        As in `pymc_dp.plot_privacy`; the collection has a facet for each ``check``, and its
        aesthetic ``y`` goes by the dimension ``rank``.
    visuals : mapping of {str : mapping or bool}, optional
        Keywords for a visual, or False to leave it out:

        * ``bar`` -> the numbers, passed to the backend's ``fill_between_y``
        * ``names`` -> of the variables, passed to the backend's ``yticks``
        * ``limit`` -> where a number is worth a look, passed to ``arviz_plots.visuals.vline``
        * ``title`` -> passed to ``labelled_title``

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ValueError
        No check of this result has numbers by variable, or a visual is not known.

    Notes
    -----
    **Privacy.** Post-processing of the result.

    Examples
    --------
    >>> pymc_dp.plot_check(idata, model)  # doctest: +SKIP
    """
    visuals = check_visuals("plot_check", visuals, OF_CHECK)
    worst = _worst(check(idata, model), rows)
    if plot_collection is None:
        height = CHECK_MARGIN + CHECK_ROW * worst.sizes["rank"]
        plot_collection = wrapped(
            worst[["value"]],
            backend,
            CHECK_WIDTH * worst.sizes["check"],
            height,
            pc_kwargs,
            cols=["check"],
            aes={"y": ["rank"]},
            y=-worst["rank"].values,
        )
    panels, limit = Drawing(plot_collection, visuals), worst[["limit"]]
    panels.draw("bar", bar, worst[["value"]], color="C0", ignore_aes=set())
    panels.draw("names", row_names, worst[["name"]], store_artist=False)
    panels.draw("limit", shapes.vline, limit, linestyle="C1", color="B2")
    titles = labeller or mix_labellers((MapLabeller, NoVarLabeller))(coord_map={"check": TITLES})
    panels.label("title", shapes.labelled_title, limit, titles)
    return plot_collection


def _worst(checks: Checks, rows: int) -> xr.Dataset:
    known = {str(name): checks[str(name)].values for name in TITLES if checks[str(name)].values}
    if not known:
        raise ValueError(
            "No check of this result has numbers by variable: pymc_dp.check says what is known."
        )
    longest = min(rows, max(map(len, known.values())))
    values = np.zeros((len(known), longest))
    names = np.full(values.shape, "", dtype=object)
    for i, values_of in enumerate(known.values()):
        ranked = sorted(values_of.items(), key=lambda each: -each[1])[:longest]
        values[i, : len(ranked)] = [value for _, value in ranked]
        names[i, : len(ranked)] = [name for name, _ in ranked]
    return xr.Dataset(
        {
            "value": (("check", "rank"), values),
            "name": (("check", "rank"), names.astype(str)),
            "limit": ("check", [LIMITS[name] for name in known]),
        },
        {"check": [*known], "rank": np.arange(longest)},
    )


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
    visuals = check_visuals("plot_ppc", visuals, OF_PPC)
    privacy_of(result)
    if "ppc" not in result.children:
        raise ValueError("This result holds no predictive check: give one of pymc_dp.ppc.")
    bins = result["ppc"].to_dataset()
    lines = _lines(bins)
    if plot_collection is None:
        of_variable = bins[["expected"]].rename(expected=bins.attrs["variable"])
        plot_collection = wrapped(of_variable, backend, PPC_WIDTH, PPC_HEIGHT, pc_kwargs)
    panel, path = Drawing(plot_collection, visuals), partial(_path, "line")
    panel.draw("replicated", path, lines["replicated"], color="C7", width=0.7)
    panel.draw("expected", path, lines["expected"], color="C0", width=2)
    panel.draw("noise", path, lines["noise"], color="C1", width=2)
    panel.draw("observed", partial(_path, "scatter"), lines["observed"], color="C1")
    _label_bins(panel, bins, labeller)
    return plot_collection


def _lines(bins: xr.Dataset) -> dict[str, xr.Dataset]:
    """Return polylines, (point, plot_axis) each; nan lifts the pen."""
    middle = bins["bin"].to_numpy() + 0.5
    observed, noise = bins["observed"].to_numpy(), 2 * float(bins["difference_noise_sd"])
    rows = [[(*middle, np.nan), (*row, np.nan)] for row in bins["replicated"].to_numpy()]
    bars = [
        [(x, x, np.nan), (y - noise, y + noise, np.nan)]
        for x, y in zip(middle, observed, strict=True)
    ]
    paths = {
        "replicated": np.concatenate(rows, axis=1).T,
        "expected": np.stack([middle, bins["expected"].to_numpy()], axis=1),
        "observed": np.stack([middle, observed], axis=1),
        "noise": np.concatenate(bars, axis=1).T,
    }
    variable, dims = bins.attrs["variable"], ("point", "plot_axis")
    return {name: xr.Dataset({variable: (dims, path)}) for name, path in paths.items()}


def _path(kind: str, path: xr.DataArray, target: Any, **keywords: Any) -> Any:
    return getattr(backend_of_object(target), kind)(*path.to_numpy().T, target, **keywords)


def _label_bins(panel: Drawing, bins: xr.Dataset, labeller: Any) -> None:
    variable, tail = bins.attrs["variable"], bins.attrs["tail_probability"]
    place = xr.Dataset({variable: 0.0})
    edges = np.append(bins["lower"].to_numpy(), bins["upper"].to_numpy()[-1])
    chosen = range(0, len(edges), -(-len(edges) // EDGES))
    ticks = {"values": [*chosen], "labels": [f"{edges[k]:.3g}" for k in chosen]}
    panel.set_axes(shapes.set_xticks, place, **ticks)
    title = labeller or MapLabeller({variable: f"{variable}: tail probability {tail:.2g}"})
    panel.label("title", shapes.labelled_title, place, title)
    ranked = bins.attrs["statistic"] == "ranks"
    along = f"rank of {variable} among predictions" if ranked else variable
    xlabel = labeller or MapLabeller({variable: along})
    panel.label("xlabel", shapes.labelled_x, place, xlabel)
    panel.draw("ylabel", shapes.labelled_y, place, text="records")


def plot_topics(
    idata: xr.DataTree,
    *,
    words: int = 10,
    coords: Mapping[str, Any] | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    labeller: Any = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Draw the most probable words of every topic, as posterior means of their probabilities.

    Parameters
    ----------
    idata : DataTree
        A topic model's result of `pymc_dp.fit` with ``method="vips"``. Words and topics are named
        by the coords of the topics' dims.
    words : int
        How many words a topic shows.
    coords : mapping, optional
        Which topics to draw, as in ArviZ; for example ``{"topic": [0, 3]}``.
    plot_collection, backend, labeller, **pc_kwargs
        As in `pymc_dp.plot_privacy`; the collection has a facet for each topic, and
        its aesthetic ``y`` goes by the dimension ``rank``.
    visuals : mapping of {str : mapping or bool}, optional
        Keywords for a visual, or False to leave it out:

        * ``bar`` -> the probabilities, passed to the backend's ``fill_between_y``
        * ``words`` -> passed to the backend's ``yticks``
        * ``title`` -> passed to ``arviz_plots.visuals.labelled_title``
        * ``xlabel`` -> passed to ``labelled_x``

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ValueError
        The result holds no topics, or a visual is not known.

    Notes
    -----
    **Privacy.** Reads the ``fit`` group alone, which is released. A word with few occurrences is
    noise: `pymc_dp.fit` shrinks it towards its overall frequency.

    Examples
    --------
    >>> pymc_dp.plot_topics(idata, words=5)  # doctest: +SKIP
    """
    visuals = check_visuals("plot_topics", visuals, OF_TOPICS)
    ranked = _ranked(_named(mean_topics(idata)).sel(coords or {}), words)
    if plot_collection is None:
        plot_collection = _collection(ranked, backend, pc_kwargs)
    panels = Drawing(plot_collection, visuals)
    panels.draw("bar", bar, ranked[["probability"]], color="C0", ignore_aes=set())
    panels.draw("words", row_names, ranked[["word"]], store_artist=False)
    _label_topics(panels, ranked[["probability"]], labeller)
    return plot_collection


def _named(topics: xr.DataArray) -> xr.DataArray:
    """Call topics and words so where the model does not name them."""
    plain = {dim for dim in topics.dims if dim not in topics.coords}
    names = dict(zip(topics.dims, ("topic", "word"), strict=True))
    numbers = {dim: np.arange(topics.sizes[dim]) for dim in plain}
    renamed = {dim: name for dim, name in names.items() if dim in plain}
    return topics.assign_coords(numbers).rename(renamed)


def _ranked(topics: xr.DataArray, words: int) -> xr.Dataset:
    topic, vocabulary = topics.dims
    order = np.argsort(-topics.values, axis=1, kind="stable")[:, :words]
    dims = (topic, "rank")
    return xr.Dataset(
        {
            "probability": (dims, np.take_along_axis(topics.values, order, axis=1)),
            "word": (dims, topics[vocabulary].values.astype(str)[order]),
        },
        {topic: topics[topic], "rank": np.arange(order.shape[1])},
    )


def _collection(
    ranked: xr.Dataset, backend: str | None, pc_kwargs: Mapping[str, Any]
) -> PlotCollection:
    [topic] = set(ranked["probability"].dims) - {"rank"}
    number, words = ranked["probability"].shape
    columns = min(number, pc_kwargs.get("col_wrap", TOPIC_COLUMNS))
    rows = -(-number // columns)
    return wrapped(
        ranked[["probability"]],
        backend,
        TOPIC_WIDTH * columns,
        rows * (TOPIC_MARGIN + WORD_ROW * words),
        pc_kwargs,
        cols=[topic],
        col_wrap=TOPIC_COLUMNS,
        aes={"y": ["rank"]},
        y=-ranked["rank"].values,
        figure_kwargs={"sharex": True},
    )


def _label_topics(panels: Drawing, topics: xr.Dataset, labeller: Any) -> None:
    labeller = labeller or mix_labellers((DimCoordLabeller, NoVarLabeller))()
    panels.label("title", shapes.labelled_title, topics, labeller)
    lowest = _lowest(panels.collection, topics)
    panels.draw("xlabel", shapes.labelled_x, lowest, text="probability")
    if panels.collection.backend == "matplotlib":  # which hides numbers above an empty place
        panels.set_axes(shapes.set_ticklabel_visibility, lowest, axis="x")


def _lowest(collection: PlotCollection, topics: xr.Dataset) -> xr.Dataset:
    """Blank out the panels but the last one of each column, with none below it."""
    columns = int(collection.viz["col_index"].max()) + 1
    topic, _ = topics["probability"].dims
    place = xr.DataArray(np.arange(topics.sizes[topic]), dims=[topic])
    return topics.where(place >= topics.sizes[topic] - columns)
