"""A plot of a topic model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_base.labels import DimCoordLabeller, NoVarLabeller, mix_labellers
from arviz_plots import visuals as shapes
from arviz_plots.plot_collection import PlotCollection

from pymc_dp.plots.visuals import Drawing, Visuals, bar, check_visuals, row_names, wrapped
from pymc_dp.postprocess.topics import mean_topics

VISUALS = ("bar", "words", "title", "xlabel")
# panels in a row, and dots that a panel and each of its words take
COLUMNS = 5
WIDTH, ABOVE_AND_BELOW, WORD = 200, 90, 19


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
    visuals = check_visuals("plot_topics", visuals, VISUALS)
    ranked = _ranked(_named(mean_topics(idata)).sel(coords or {}), words)
    if plot_collection is None:
        plot_collection = _collection(ranked, backend, pc_kwargs)
    panels = Drawing(plot_collection, visuals)
    panels.draw("bar", bar, ranked[["probability"]], color="C0", ignore_aes=set())
    panels.draw("words", row_names, ranked[["word"]], store_artist=False)
    _label(panels, ranked[["probability"]], labeller)
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
    columns = min(number, pc_kwargs.get("col_wrap", COLUMNS))
    rows = -(-number // columns)
    return wrapped(
        ranked[["probability"]],
        backend,
        WIDTH * columns,
        rows * (ABOVE_AND_BELOW + WORD * words),
        pc_kwargs,
        cols=[topic],
        col_wrap=COLUMNS,
        aes={"y": ["rank"]},
        y=-ranked["rank"].values,
        figure_kwargs={"sharex": True},
    )


def _label(panels: Drawing, topics: xr.Dataset, labeller: Any) -> None:
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
