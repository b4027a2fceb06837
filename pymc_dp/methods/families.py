"""Gaussian variational families, in PyMC's parameterisation."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.special import expit

Params = dict[str, np.ndarray]


class Family(NamedTuple):
    """A family of distributions of z as functions of its parameters.

    Attributes
    ----------
    init : (mean (d,), sd) -> params
    sample : (params, eps (k, d)) -> z (k, d)
    gradient : (params, eps (k, d), g (k, d)) -> params
        The gradient of E[log p(z)] + entropy, where g are the gradients of log p at the draws.
    covariance : params -> (d, d)
    describe : (params, labels) -> Dataset
    pace : dict
        The share of the learning rate that each parameter takes: the d^2 / 2 entries of a factor
        share the noise of d numbers, and would spread the draws of z if they followed it quickly.
    """

    init: Callable[[np.ndarray, float], Params]
    sample: Callable[[Params, np.ndarray], np.ndarray]
    gradient: Callable[[Params, np.ndarray, np.ndarray], Params]
    covariance: Callable[[Params], np.ndarray]
    describe: Callable[[Params, list[str]], xr.Dataset]
    pace: dict[str, float]


def softplus(rho: np.ndarray) -> np.ndarray:
    """PyMC's map from rho to a standard deviation.

    >>> import numpy as np
    >>> bool(np.isclose(softplus(inverse_softplus(0.1)), 0.1))
    True
    """
    return np.logaddexp(0.0, rho)


def inverse_softplus(sd: float) -> float:
    """Return the rho of a standard deviation."""
    return float(np.log(np.expm1(sd)))


def mean_field_slopes(params: Params, eps: np.ndarray) -> np.ndarray:
    """D z / d rho of the mean-field family at fixed draws; shape (k, d)."""
    return eps * expit(params["rho"])


def _mean_field_gradient(params: Params, eps: np.ndarray, g: np.ndarray) -> Params:
    slope = expit(params["rho"])
    entropy = slope / softplus(params["rho"])
    return {"mu": g.sum(axis=0) / len(g), "rho": (g * eps).sum(axis=0) / len(g) * slope + entropy}


def _mean_field_summary(params: Params, labels: list[str]) -> xr.Dataset:
    coords = {"rows": labels}
    return xr.Dataset(
        {
            "mean_vector": ("rows", params["mu"]),
            "standard_deviation": ("rows", softplus(params["rho"])),
        },
        coords,
    )


MEAN_FIELD = Family(
    init=lambda mean, sd: {"mu": mean.copy(), "rho": np.full(mean.size, inverse_softplus(sd))},
    sample=lambda params, eps: params["mu"] + softplus(params["rho"]) * eps,
    gradient=_mean_field_gradient,
    covariance=lambda params: np.diag(softplus(params["rho"]) ** 2),
    describe=_mean_field_summary,
    pace={"mu": 1.0, "rho": 1.0},
)


def cholesky(params: Params) -> np.ndarray:
    """Unpack PyMC's ``L_tril``: the diagonal goes through a softplus."""
    d = params["mu"].size
    factor = np.zeros((d, d))
    factor[np.tril_indices(d)] = params["L_tril"]
    factor[np.diag_indices(d)] = softplus(np.diag(factor))
    return factor


def _full_rank_init(mean: np.ndarray, sd: float) -> Params:
    start = np.eye(mean.size) * inverse_softplus(sd)
    return {"mu": mean.copy(), "L_tril": start[np.tril_indices(mean.size)]}


def _full_rank_gradient(params: Params, eps: np.ndarray, g: np.ndarray) -> Params:
    d = params["mu"].size
    rows, columns = np.tril_indices(d)
    grad = (g.T @ eps / len(g))[rows, columns]
    diagonal = rows == columns
    rho = params["L_tril"][diagonal]
    grad[diagonal] = (grad[diagonal] + 1 / softplus(rho)) * expit(rho)
    return {"mu": g.sum(axis=0) / len(g), "L_tril": grad}


def _full_rank_covariance(params: Params) -> np.ndarray:
    factor = cholesky(params)
    return factor @ factor.T


def _full_rank_summary(params: Params, labels: list[str]) -> xr.Dataset:
    covariance = _full_rank_covariance(params)
    return xr.Dataset(
        {
            "mean_vector": ("rows", params["mu"]),
            "standard_deviation": ("rows", np.sqrt(np.diag(covariance))),
            "covariance_matrix": (("rows", "columns"), covariance),
        },
        {"rows": labels, "columns": labels},
    )


FULL_RANK = Family(
    init=_full_rank_init,
    sample=lambda params, eps: params["mu"] + eps @ cholesky(params).T,
    gradient=_full_rank_gradient,
    covariance=_full_rank_covariance,
    describe=_full_rank_summary,
    pace={"mu": 1.0, "L_tril": 0.1},
)
