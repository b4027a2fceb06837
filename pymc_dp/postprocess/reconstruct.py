"""Latents of new records under a released belief net, and predictions from them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from scipy.special import expit

from pymc_dp.methods.options import NotConjugateError
from pymc_dp.methods.vips.belief_nets import (
    context_at,
    inference_of,
    recognise,
    scores_at_zero,
)
from pymc_dp.model import Column, Records, constrained, separate_unread
from pymc_dp.model.columns import as_array
from pymc_dp.model.split import named_dims


def reconstruct(
    idata: xr.DataTree, model: pm.Model, data: Mapping[str, Any], *, iterations: int | None = None
) -> xr.DataArray:
    """Infer the latents of new records, and return the outcomes that they predict.

    Parameters
    ----------
    idata : DataTree
        A result of ``pymc_dp.fit(method="vips")`` for a sigmoid belief network.
    model : pymc.Model
        The model that was fitted; its own data are not used.
    data : mapping
        The outcomes of the new records, by the name of the observed variable (or of its pm.Data).
    iterations : int, optional
        Rounds of updates of the latents; as in the fit.

    Returns
    -------
    DataArray
        Probabilities of a 1 at the inferred latents and the released posterior means, with the dims
        of the observed variable.

    Raises
    ------
    ValueError
        The model is no belief net, the result is not one of it, or a row lies outside the
        support of the outcomes.

    Notes
    -----
    **Privacy.** Post-processing of the released ``fit`` group, for records that were not fitted. A
    reconstruction of a record that was fitted is computed from that record again: releasing it
    is a leak that no epsilon covers.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> y = np.repeat([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], 500, axis=0)
    >>> with pm.Model() as model:
    ...     W, c = pm.Normal("W", 0, 3, shape=(6, 1)), pm.Normal("c", 0, 3, shape=6)
    ...     z = pm.Bernoulli("z", logit_p=0.0, shape=(1000, 1))
    ...     _ = pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=y)
    >>> idata = pymc_dp.fit(model=model, method="vips", epsilon=2, delta=1e-5, progressbar=False)
    >>> new = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]])  # each lacks a one
    >>> (pymc_dp.reconstruct(idata, model, {"y": new}) > 0.5).astype(int).values
    array([[1, 1, 1, 0, 0, 0],
           [0, 0, 0, 1, 1, 1]])
    """
    # new rows need no check that protects records: nothing is released of them
    records, _ = separate_unread(constrained(model), data=data)
    try:
        structure = recognise(records)
    except NotConjugateError as reason:
        raise ValueError(f"The model is no belief net that vips fits: {reason}.") from None
    released = idata["fit"].to_dataset()
    try:
        moments = {
            name: (released[f"{name}.mean"].to_numpy(), released[f"{name}.sd"].to_numpy())
            for name in structure.moved
        }
    except KeyError as missing:
        raise ValueError(
            f"This result is not a vips fit of the model: it lacks {missing}."
        ) from None
    context = context_at(structure, moments)
    [name] = records.shapes.keys() - records.local_latents.keys()
    axis, dtype = records.shapes[name].index(None), records.batch.inputs[name].type.dtype
    column = Column(as_array(f"data=`{name}`", data[name]), axis, dtype)
    slopes = scores_at_zero(records, structure.predictor, structure.latent, "python")
    batch = {name: column.take(np.arange(column.rows))}
    with np.errstate(all="ignore"):
        kappa = slopes(batch)
    bad = np.flatnonzero(~np.isfinite(kappa).all(axis=1))
    if bad.size:
        rows = "1 row of" if bad.size == 1 else f"{bad.size} rows of"
        raise ValueError(
            f"{rows} data=`{name}` lies outside the support of the outcomes, the first at "
            f"{bad[0]}: leave it out."
        )
    features = inference_of(structure, iterations)(kappa, context).features
    return _arranged(records, model, column, expit(features @ context.mean.T))


def _arranged(
    records: Records, model: pm.Model, column: Column, values: np.ndarray
) -> xr.DataArray:
    """Bring (rows, J) to the shape and the dims of the observed variable."""
    [observed] = model.observed_RVs
    lengths = np.delete(column.values.shape, column.axis)
    array = np.moveaxis(values.reshape(len(values), *lengths), 0, column.axis)
    dims = named_dims(model.named_vars_to_dims.get(observed.name), observed.name, array.ndim)
    coords = {x: v for x, v in records.outputs.coords.items() if x in dims}
    return xr.DataArray(array, coords, dims, observed.name)
