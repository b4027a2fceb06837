"""What is read from a result: its guarantee in words, the share of noise in its width, a file.

All of it is post-processing.
"""

import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from arviz_base import xarray_var_iter
from arviz_base.labels import BaseLabeller

from pymc_dp.errors import PosteriorWarning, PrivacyWarning
from pymc_dp.methods.method import doubts_in
from pymc_dp.model import constrained, separate_unread
from pymc_dp.model.releasable import Trusted
from pymc_dp.results.tree import listed, privacy_of, released_part
from pymc_dp.tables.formula import pymc_model
from pymc_dp.tables.public_table import PublicTable

NEIGHBOURS = {
    "add_remove": "adding or removing one {unit}; the number of {unit}s stays private",
    "zero_out": "blanking out one {unit}; the number of {unit}s is public",
    "replace_one": "replacing one {unit} by any other; the number of {unit}s is public",
}
LIMITS = (
    "Not covered: whatever was computed from the data before the model (scaling by its own mean, "
    "choosing variables), other fits on the same data, choosing among fits, running time, "
    "predictions for records that were fitted."
)
NUMERICS = {
    "exact": "Arithmetic: exact. Sums are whole numbers of a grid and noise is rounded to it, so "
    "that the proof is of what was computed.",
    "idealized": "Arithmetic: idealized. Noise is exact, but rounding in what a record contributes "
    "is outside the proof.",
}


def in_words(
    idata: xr.DataTree, model: pm.Model | None = None, metadata: PublicTable | None = None
) -> str:
    """Return the paragraphs of `pymc_dp.privacy_report` that a result alone gives."""
    if metadata is not None and model is None:
        raise ValueError("metadata= needs model=, whose numbers the file declares: give both.")
    attrs = privacy_of(idata).attrs
    algorithm = attrs["algorithm"] and "Algorithm of method={method!r}: {algorithm}."
    made = [_guarantee(attrs), _mechanism(attrs), algorithm.format_map(attrs), *_options(attrs)]
    values = {} if model is None else _values(model, json.loads(attrs["declared_public"]))
    taken = [_public(attrs, idata, metadata), _trusted(attrs, values, metadata)]
    doubts = " ".join(doubt.text for doubt in doubts_in(attrs["doubts"]))
    doubtful = doubts and f"Doubtful about the posterior: {doubts}"
    added = added_names(idata)
    warning = added and (
        f"WARNING: this tree also holds {added}, which the fit did not release and which may be "
        "private. pymc_dp.save leaves them out; to_netcdf and to_zarr write them."
    )
    parts = [*made, NUMERICS[attrs["numerics"]], *taken, LIMITS, doubtful, warning]
    return "\n\n".join(part for part in parts if part)


def neighbours_in_words(attrs: Mapping[str, Any]) -> str:
    """Say in what two data sets differ that the guarantee speaks of."""
    unit = attrs["privacy_unit"]
    change = NEIGHBOURS[attrs["neighbours"]].format(unit=unit)
    if "unit" in attrs:
        change += f" (one {unit} is all records of one code in `{attrs['unit']}`)"
    return change


def contribution(attrs: Mapping[str, Any]) -> str:
    """Say what one unit may contribute to a release."""
    if "epsilon_if_exact" in attrs:
        return f"The log likelihood of one {attrs['privacy_unit']} is clipped."
    return (
        f"One {attrs['privacy_unit']} adds a vector to the sum of a release, which is clipped at "
        f"the norm {_numbers(attrs['clip_norm'])}."
    )


def _guarantee(attrs: dict[str, Any]) -> str:
    epsilon, delta = attrs["epsilon"], attrs["delta"]
    exact = attrs.get("epsilon_if_exact", math.nan)
    unit, change = attrs["privacy_unit"], neighbours_in_words(attrs)
    if math.isfinite(exact):
        return (
            "NO GUARANTEE IS PROVED. If every draw were an exact one, the result would be "
            f"{exact:.4g}-differentially private per {unit}, for {change}. A Markov chain comes "
            "close to its target, and how close is unknown: at a total variation distance g, delta "
            f"is {1 + math.exp(exact):.3g} g for each draw."
        )
    if math.isnan(epsilon):
        return "NOT PRIVATE. The noise was made in test mode and can be repeated by anyone."
    if math.isinf(epsilon):
        return "NOT PRIVATE. No noise was added."
    return (
        f"Guarantee: ({epsilon:.4g}, {delta:g})-differential privacy per {unit}. For {change}: "
        f"whatever someone does with this result, the odds of any conclusion change by a factor "
        f"of at most {math.exp(epsilon):.3g}, up to a probability of {delta:g}."
    )


def _mechanism(attrs: dict[str, Any]) -> str:
    names = ("sample_rate", "clip_norm", "noise_multiplier")
    settings = ", ".join(f"{name} {_numbers(attrs[name])}" for name in names)
    return (
        f"Mechanism: {attrs['method']} made {attrs['releases_made']} of {attrs['releases']} "
        f"planned releases ({attrs['mechanism']}; {attrs['sampling']} batches, {settings}), "
        f"accounted by {attrs['accountant']} ({attrs['accountant_version']}). Stopping early "
        "does not lower epsilon."
    )


def _options(attrs: dict[str, Any]) -> Iterator[str]:
    """Say what a search and survey weights add to the guarantee."""
    if "selected" in attrs:
        yield (
            f"Selected: {attrs['selected']} out of {len(json.loads(attrs['selected_from']))} "
            "settings, by a private score. The guarantee covers the choice; how many fits were "
            "made is secret."
        )
    settings = json.loads(attrs["settings"])
    if "weights" in settings:
        power = "" if settings["power"] == 1 else f", raised to the power {settings['power']:g}"
        yield (
            f"Survey weights: `{settings['weights']}`, which is private, over the largest that a "
            f"record can have, {settings['upper']:g}{power}. That number was declared public: it "
            "must not come from the weights at hand. Intervals are those of the design."
        )


def _numbers(values: Any) -> str:
    """One number, or the range of those of a schedule."""
    low, high = np.min(values), np.max(values)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _public(attrs: dict[str, Any], idata: xr.DataTree, metadata: PublicTable | None) -> str:
    rows = ["the model, its names, dims and group coords", "all settings of the fit"]
    if attrs["neighbours"] != "add_remove":
        rows.append(f"the number of {attrs['privacy_unit']}s")
    if "num_records" in attrs:
        same = metadata is not None and metadata.num_records == attrs["num_records"]
        where = f" in {metadata.source}" if metadata is not None and same else ""
        rows.append(f"num_records={attrs['num_records']}, as declared{where}")
    if metadata is not None:
        fitted = {name: x.values.tolist() for name, x in idata["posterior"].coords.items()}
        listed = [name for name, levels in metadata.coords().items() if fitted.get(name) == levels]
        rows += [f"the levels of `{name}`, declared in {metadata.source}" for name in listed]
    rows += [f"`{name}`, as declared" for name in json.loads(attrs["declared_public"])]
    return "Taken as public: " + "; ".join(rows) + "."


def _values(model: pm.Model, public: list[str]) -> dict[Trusted, tuple[float, ...]]:
    """Find the numbers that a model takes on trust, by the lines that count them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # the fit has given them
        model = pymc_model(model)
        first, second = (separate_unread(x, public=public)[0] for x in (model, constrained(model)))
    return {**first.trusted, **second.trusted}


def _trusted(
    attrs: dict[str, Any], values: Mapping[Trusted, tuple[float, ...]], metadata: PublicTable | None
) -> str:
    trusted, withheld = json.loads(attrs["trusted_constants"]), json.loads(attrs["withheld"])
    shown = {str(line): f" ({', '.join(f'{x:g}' for x in n)})" for line, n in values.items() if n}
    declared = set() if metadata is None else metadata.declared(values)
    words = {line: line + shown.get(line, "") for line in trusted}
    in_file = "; ".join(words[line] for line in trusted if line in declared)
    others = "; ".join(words[line] for line in trusted if line not in declared)
    parts = []
    if metadata is not None and in_file:
        parts.append(f"Declared in {metadata.source}: {in_file}.")
    if others:
        parts.append(
            f"Trusted, because no check can see how these numbers came about: {others}. If one was "
            "computed from the data, the guarantee does not hold."
        )
    if withheld:
        parts.append(
            f"Withheld, because they may reveal data: {', '.join(withheld)}. Compute them from the "
            "draws, or fit with their names in public= if no number in them comes from data."
        )
    return " ".join(parts)


def added_names(idata: xr.DataTree) -> list[str]:
    """Name what was added to a result since its fit: groups, variables and attributes of any."""
    released, added = listed(idata), []
    for node in idata.subtree:
        path, group = node.path.strip("/"), node.to_dataset(inherit=False)
        names = released.get(path, set())
        if path and path not in released:
            added.append(path)
            continue
        members = {*map(str, (*group.variables, *group.attrs))} - names
        members |= {f"{name}.{key}" for name, x in group.variables.items() for key in x.attrs}
        added += [f"{path}/{member}".strip("/") for member in sorted(members)]
    return added


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
        mean square, and ``noise_share``, its share of the posterior variance. They have two
        significant digits, are 0 where epsilon is infinite, and nan where too few draws tell noise
        from chance. Its ``attrs["algorithm"]`` says which algorithm ran, with its sources.

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
    ...     y = pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.repeat([0, 1], [300, 700]))
    >>> idata = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, progressbar=False)
    >>> list(pymc_dp.summary(idata).columns[-2:])
    ['noise_sd', 'noise_share']
    """
    noise = noise_by_label(idata)
    table = az.summary(idata, **{"kind": "stats", **kwargs})
    table.attrs["algorithm"] = privacy_of(idata).attrs["algorithm"]
    for name, values in noise.items():
        table[name] = values.reindex(table.index).map(lambda x: float(f"{x:.2g}"))
    return table


def noise_by_label(idata: xr.DataTree) -> dict[str, pd.Series]:
    """Return what the privacy noise adds to each variable, and its share, as ArviZ labels them."""
    noise = noise_sd_of(idata)
    return {"noise_sd": by_label(noise), "noise_share": by_label(share_of(idata, noise))}


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


def warn_if_too_narrow(intervals: str, *results: xr.DataTree) -> None:
    """Warn where intervals that a caller is given come from a posterior without its noise."""
    if any(map(leaves_noise_out, results)):
        warnings.warn(
            f"The posterior leaves the privacy noise of its fit out, and so do {intervals}: they "
            "are too narrow. method='dp_advi' has the noise in its posterior.",
            PosteriorWarning,
            stacklevel=3,
        )


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


def save(idata: xr.DataTree, path: str | os.PathLike[str]) -> None:
    """Write a result to netCDF or Zarr: what its fit released, and nothing that was added since.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`, whatever was added to it since.
    path : str or Path
        Where to; what exists there is replaced. ``.zarr`` at its end means Zarr, all else netCDF.

    Raises
    ------
    ValueError, ImportError
        The tree is not a result of pymc_dp; Zarr is not installed.

    Warns
    -----
    PrivacyWarning
        The result claims no privacy: no noise was added, or it was made in test mode.

    Notes
    -----
    **Privacy.** What PyMC adds to a tree from the data is left out; the tree's own ``to_netcdf``
    and ``to_zarr`` write it. The list of what was released goes by names: values that were put in
    place of released ones, under their names, are written.

    Examples
    --------
    >>> pymc_dp.save(idata, "private.nc")  # doctest: +SKIP
    """
    released, attrs = released_part(idata), privacy_of(idata).attrs
    if not math.isfinite(attrs["epsilon"]):
        text = f"The file {os.fspath(path)!r} is NOT PRIVATE: its guarantee is "
        warnings.warn(f"{text}{attrs['guarantee']!r}.", PrivacyWarning, stacklevel=2)
    if Path(path).suffix == ".zarr":
        released.to_zarr(path, mode="w", consolidated=False)
    else:
        released.to_netcdf(path, engine="h5netcdf")


def load(path: str | os.PathLike[str]) -> xr.DataTree:
    """Read a result that `save` has written.

    Parameters
    ----------
    path : str or Path
        Zarr if it ends in ``.zarr``, else netCDF.

    Returns
    -------
    DataTree
        In memory; the file is closed.

    Raises
    ------
    FileNotFoundError, ValueError
        There is no such file; it holds no result of pymc_dp; Zarr is not installed.

    Notes
    -----
    **Privacy.** Reads what is there: of a file that ``to_netcdf`` has written, also what was added
    after the fit. `privacy_report` names it.

    Examples
    --------
    >>> idata = pymc_dp.load("private.nc")  # doctest: +SKIP
    """
    is_zarr = Path(path).suffix == ".zarr"
    settings = {"engine": "zarr", "consolidated": False} if is_zarr else {"engine": "h5netcdf"}
    with xr.open_datatree(path, **settings) as tree:
        idata: xr.DataTree = tree.load()
    privacy_of(idata)
    return idata
