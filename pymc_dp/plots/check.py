"""A plot of the checks of a result."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from arviz_base.labels import MapLabeller, NoVarLabeller, mix_labellers
from arviz_plots import visuals as shapes
from arviz_plots.plot_collection import PlotCollection

from pymc_dp.checking.check import LIMITS, Checks, check
from pymc_dp.plots.visuals import Drawing, Visuals, bar, check_visuals, row_names, wrapped

VISUALS = ("bar", "names", "limit", "title")
TITLES: Mapping[Hashable, Hashable] = {
    "steps": "last steps, in\nposterior sds",
    "noise": "noise's share\nof the variance",
    "prior": "width over\nthat of the prior",
}
# dots that a panel takes, and each of its rows
WIDTH, ABOVE_AND_BELOW, ROW = 320, 110, 22


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
    visuals = check_visuals("plot_check", visuals, VISUALS)
    worst = _worst(check(idata, model), rows)
    if plot_collection is None:
        height = ABOVE_AND_BELOW + ROW * worst.sizes["rank"]
        plot_collection = wrapped(
            worst[["value"]],
            backend,
            WIDTH * worst.sizes["check"],
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
    for i, found in enumerate(known.values()):
        ranked = sorted(found.items(), key=lambda each: -each[1])[:longest]
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
