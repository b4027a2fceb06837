"""Posteriors in a result: moments over all coordinates, natural parameters by block."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import xarray as xr

from pymc_dp.methods.conjugate.exponential import ExponentialFamily, Natural
from pymc_dp.model import Records
from pymc_dp.model.split import named_dims


def describe(
    records: Records,
    families: Mapping[str, ExponentialFamily],
    posterior: Mapping[str, Natural],
    variances: Mapping[str, Natural],
) -> xr.Dataset:
    """Return means, standard deviations and the natural parameters of factorised blocks.

    ``variances`` are those of the noise on the natural parameters.
    """
    mean, sd = flat_moments(families, posterior)
    variables = {"mean_vector": ("rows", mean), "standard_deviation": ("rows", sd)}
    variables |= natural_parameters(records, families, posterior)
    noise = {name: tuple(v**0.5 for v in parts) for name, parts in variances.items()}
    for name, value in natural_parameters(records, families, noise).items():
        variables[f"{name}_noise_sd"] = value
    return xr.Dataset(variables, {"rows": records.labels})


def natural_parameters(
    records: Records, families: Mapping[str, ExponentialFamily], posterior: Mapping[str, Natural]
) -> dict[str, tuple[Any, ...]]:
    """Name the natural parameters ``latent.parameter``, with the latent's dims."""
    return {
        f"{name}.{parameter}": (dims_of(records, name), value)
        for name, family in families.items()
        for parameter, value in zip(family.parameters, posterior[name], strict=True)
    }


def labels_of(records: Records, names: Collection[str]) -> list[str]:
    """Labels of the coordinates of some latents, in the model's order."""
    return [label for label in records.labels if label.split("[")[0] in names]


def dims_of(records: Records, name: str) -> tuple[str, ...]:
    """Return the dims of a latent, as in the posterior group."""
    return named_dims(records.outputs.dims[name], name, records.point[name].ndim)


def flat_moments(
    families: Mapping[str, ExponentialFamily], posterior: Mapping[str, Natural]
) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard deviations of all coordinates."""
    moments = [family.moments(posterior[name]) for name, family in families.items()]
    mean, sd = zip(*moments, strict=True)
    return np.concatenate([m.ravel() for m in mean]), np.concatenate([s.ravel() for s in sd])
