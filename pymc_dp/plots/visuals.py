"""What all plots share: visuals that can be restyled or left out, and the figure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import xarray as xr
from arviz_base import rcParams
from arviz_plots.plot_collection import PlotCollection, backend_from_object

Visuals = Mapping[str, Mapping[str, Any] | bool]
Visual = Callable[..., Any]  # draws in one panel

backend_of_object: Callable[..., Any] = backend_from_object


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
