"""How much of a posterior's width is privacy noise."""

from typing import Any

import arviz as az
import pandas as pd
import xarray as xr
from arviz_base import xarray_var_iter
from arviz_base.labels import BaseLabeller

from pymc_dp.allow_list import privacy_of


def summary(idata: xr.DataTree, **kwargs: Any) -> pd.DataFrame:
    """Summarise a posterior, and say how much of its width is privacy noise.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    **kwargs
        Passed to ``arviz.summary``; ``kind`` is ``"stats"`` by default.

    Returns
    -------
    pandas.DataFrame
        Its columns, then ``noise_sd``, what the privacy noise adds in root mean square, and
        ``noise_share``, its share of the posterior variance.

    Raises
    ------
    ValueError
        The tree was not made by pymc_dp, or its posterior leaves the noise out.

    Notes
    -----
    **Privacy.** Post-processing of the result.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     y = pm.Bernoulli("y", p, observed=np.repeat([0, 1], [300, 700]))
    >>> idata = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, progressbar=False)
    >>> list(pymc_dp.summary(idata).columns[-2:])
    ['noise_sd', 'noise_share']
    """
    noise = _noise_sd(idata)
    table = az.summary(idata, **{"kind": "stats", **kwargs})
    columns = {"noise_sd": _column(noise), "noise_share": _column(_share(idata, noise))}
    return table.assign(**{name: x.reindex(table.index) for name, x in columns.items()})


def plot_noise(idata: xr.DataTree, **kwargs: Any) -> Any:
    """Draw intervals of a posterior beside those that the records alone would give.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    **kwargs
        Passed to ``arviz.plot_forest``; for example ``var_names`` or ``backend``.

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
    >>> import pymc_dp
    >>> pymc_dp.plot_noise(idata)  # doctest: +SKIP
    """
    share = _share(idata, _noise_sd(idata))
    posterior = idata["posterior"].to_dataset()
    mean = posterior.mean(("chain", "draw"))
    alone = mean + (posterior - mean) * (1 - share).clip(min=0) ** 0.5
    pair = {
        "with privacy noise": xr.DataTree.from_dict({"posterior": posterior}),
        "records alone": xr.DataTree.from_dict({"posterior": alone}),
    }
    drawn = az.plot_forest(pair, **{"combined": True, **kwargs})
    drawn.add_legend("model", title="", loc="outside upper center", ncols=2)
    return drawn


def _noise_sd(idata: xr.DataTree) -> xr.Dataset:
    privacy_of(idata)
    if "noise_sd" not in idata.children:
        raise ValueError(
            "This posterior leaves the privacy noise out: fit with noise_aware=True and a finite "
            "epsilon, by a method that knows its noise."
        )
    return idata["noise_sd"].to_dataset()


def _share(idata: xr.DataTree, noise_sd: xr.Dataset) -> xr.Dataset:
    """Share of the posterior variance; what does not vary has no noise."""
    variance = idata["posterior"].to_dataset().astype("float64").var(("chain", "draw"))
    return (noise_sd**2 / variance).fillna(0.0)


def _column(values: xr.Dataset) -> pd.Series:
    """Lay values out as ArviZ labels them."""
    label = BaseLabeller().make_label_flat
    rows = {
        label(name, selected, at): float(value)
        for name, selected, at, value in xarray_var_iter(values, skip_dims=set())
    }
    return pd.Series(rows, dtype="float64")
