"""A result as a file: what its fit released, in netCDF or Zarr."""

import math
import os
import warnings
from pathlib import Path

import xarray as xr

from pymc_dp.errors import PrivacyWarning
from pymc_dp.results.allow_list import privacy_of, released_part


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
    ValueError
        The tree is not a result of pymc_dp.
    ImportError
        Zarr is not installed.

    Warns
    -----
    PrivacyWarning
        The result claims no privacy: no noise was added, or it was made in test mode.

    Notes
    -----
    **Privacy.** PyMC's posterior predictive sampling and its pointwise log likelihoods put the
    data back into a tree; such groups are left out here. The tree's own ``to_netcdf`` and
    ``to_zarr`` check nothing, and write them. The list of what was released goes by names: values
    that were put in place of released ones, under their names, are written.

    Examples
    --------
    >>> pymc_dp.save(idata, "private.nc")  # doctest: +SKIP
    """
    released, attrs = released_part(idata), privacy_of(idata).attrs
    guarantee = attrs["guarantee"]
    if not math.isfinite(attrs["epsilon"]):
        warnings.warn(
            f"The file {os.fspath(path)!r} is NOT PRIVATE: its guarantee is {guarantee!r}.",
            PrivacyWarning,
            stacklevel=2,
        )
    if _is_zarr(path):
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
    FileNotFoundError
        There is no such file.
    ValueError
        What the file holds is not a result of pymc_dp.
    ImportError
        Zarr is not installed.

    Notes
    -----
    **Privacy.** Reads what is there: of a file that ``to_netcdf`` has written, also what was added
    after the fit. `privacy_report` names it.

    Examples
    --------
    >>> idata = pymc_dp.load("private.nc")  # doctest: +SKIP
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"There is no {os.fspath(path)!r}.")
    settings = {"engine": "zarr", "consolidated": False}
    with xr.open_datatree(path, **(settings if _is_zarr(path) else {"engine": "h5netcdf"})) as tree:
        idata: xr.DataTree = tree.load()
    privacy_of(idata)
    return idata


def _is_zarr(path: str | os.PathLike[str]) -> bool:
    """Whether a path means Zarr, which an optional package reads and writes."""
    found = Path(path).suffix == ".zarr"
    if found:
        try:
            import zarr  # noqa: F401
        except ImportError:
            raise ImportError(
                f"{os.fspath(path)!r} means Zarr: install it (pip install 'zarr>=3'), or give a "
                "path that ends in .nc."
            ) from None
    return found
