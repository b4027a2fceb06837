"""Pictures of a result."""

import math
from collections.abc import Mapping
from typing import Any

import xarray as xr

from pymc_dp.allow_list import privacy_of

# variable of the privacy group: its coord, the title and the label of the x axis
PANELS = {
    "epsilon": ("delta", "What the whole fit costs", "delta"),
    "epsilon_spent": ("releases", "What it had cost on the way", "releases made"),
}


def plot_privacy(
    idata: xr.DataTree,
    *,
    plot_collection: Any = None,
    backend: str = "matplotlib",
    visuals: Mapping[str, Mapping[str, Any]] | None = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw what a result costs: epsilon against delta, and the spend along the releases.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    plot_collection : arviz_plots.PlotCollection, optional
        One with a facet for each of ``epsilon`` and ``epsilon_spent``.
    backend : str
        A plotting backend of arviz-plots.
    visuals : mapping, optional
        Keywords for ``line``, ``mark`` (the claimed epsilon), ``title`` and ``label``.
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ValueError
        The result has no finite epsilon to draw.

    Notes
    -----
    **Privacy.** Reads the ``privacy`` group alone.

    Examples
    --------
    >>> import pymc_dp
    >>> pymc_dp.plot_privacy(idata)  # doctest: +SKIP
    """
    from arviz_plots import PlotCollection

    privacy = privacy_of(idata)
    if not math.isfinite(privacy.attrs["epsilon"]):
        raise ValueError(
            "This result has no finite epsilon to draw: it was fitted without noise, or its "
            "epsilon is not proved."
        )
    if plot_collection is None:
        pc_kwargs = {"cols": ["__variable__"], "figure_kwargs": {"figsize": (10, 4)}, **pc_kwargs}
        plot_collection = PlotCollection.wrap(privacy[list(PANELS)], backend=backend, **pc_kwargs)
    for name in PANELS:
        _draw_panel(plot_collection, privacy, name, visuals or {})
    return plot_collection


def _draw_panel(
    collection: Any, privacy: xr.Dataset, name: str, visuals: Mapping[str, Mapping[str, Any]]
) -> None:
    from arviz_plots import visuals as draw

    coord, title, label = PANELS[name]
    curve = privacy[[name]]
    claimed = xr.Dataset({name: privacy.attrs["epsilon"]})

    def panel(visual, key, data=curve, **kwargs):
        collection.map(visual, f"{name}_{key}", data=data, **{**kwargs, **visuals.get(key, {})})

    panel(draw.line, "line", xname=coord)
    panel(draw.hline, "mark", data=claimed, linestyle="--", color="grey", alpha=0.7)
    panel(draw.labelled_title, "title", text=title, ignore_aes="all")
    panel(draw.labelled_x, "label", text=label, ignore_aes="all")
    panel(draw.labelled_y, "label", text="epsilon", ignore_aes="all")
    if coord == "delta":
        panel(draw.set_xscale, "scale", scale="log", ignore_aes="all")
