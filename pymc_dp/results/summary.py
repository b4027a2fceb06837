"""How much of a posterior's width is privacy noise."""

import math
from typing import Any

import arviz as az
import pandas as pd
import xarray as xr
from arviz_base import xarray_var_iter
from arviz_base.labels import BaseLabeller

from pymc_dp.results.allow_list import privacy_of


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
        One row a variable. ArviZ's columns, then ``noise_sd``, what the privacy noise adds in root
        mean square, and ``noise_share``, its share of the posterior variance: near 0 the records
        set the width, near 1 the noise does. They have two significant digits, are 0 where epsilon
        is infinite, and nan where too few draws tell noise from chance. Its
        ``attrs["algorithm"]`` says which algorithm ran, with its sources.

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
    noise = noise_sd_of(idata)
    table = az.summary(idata, **{"kind": "stats", **kwargs})
    table.attrs["algorithm"] = privacy_of(idata).attrs["algorithm"]
    columns = {"noise_sd": by_label(noise), "noise_share": by_label(share_of(idata, noise))}
    return table.assign(**{name: _rounded(x.reindex(table.index)) for name, x in columns.items()})


def _rounded(values: pd.Series) -> pd.Series:
    """Round to two significant digits, as ArviZ does."""
    return values.map(lambda x: float(f"{x:.2g}"))


def noise_sd_of(idata: xr.DataTree) -> xr.Dataset:
    """Return what the privacy noise adds to each variable in root mean square."""
    if leaves_noise_out(idata):
        raise ValueError(
            "This posterior leaves the privacy noise out: arviz.summary(idata) says the rest. "
            "Otherwise fit with noise_aware=True, by a method that knows its noise."
        )
    if "noise_sd" in idata.children:
        return idata["noise_sd"].to_dataset()
    return xr.zeros_like(idata["posterior"].to_dataset().mean(("chain", "draw")))


def leaves_noise_out(idata: xr.DataTree) -> bool:
    """Whether releases had noise that the posterior does not hold."""
    private = math.isfinite(privacy_of(idata).attrs["epsilon"])
    return private and "noise_sd" not in idata.children


def share_of(idata: xr.DataTree, noise_sd: xr.Dataset) -> xr.Dataset:
    """Return the noise's share of the posterior variance; what does not vary has no noise."""
    posterior = idata["posterior"].to_dataset()[list(noise_sd)]  # others may have been added
    variance = posterior.astype("float64").var(("chain", "draw"))
    return (noise_sd**2 / variance).where(variance > 0, 0.0)


def by_label(values: xr.Dataset) -> pd.Series:
    """Lay values out as ArviZ labels them."""
    label = BaseLabeller().make_label_flat
    rows = {
        label(name, selected, at): float(value)
        for name, selected, at, value in xarray_var_iter(values, skip_dims=set())
    }
    return pd.Series(rows, dtype="float64")
