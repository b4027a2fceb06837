"""Gaussian variational families, in PyMC's parameterisation."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from pymc_dp.methods.papers.gradient_defaults import DEFAULTS

Params = dict[str, np.ndarray]


class Family(NamedTuple):
    """A family of distributions of z as functions of its parameters."""

    init: Callable[[np.ndarray, float], Params]  # (mean (d,), sd) -> params
    sample: Callable[[Params, np.ndarray], np.ndarray]  # (params, eps (k, d)) -> z (k, d)
    # (params, eps (k, d), g (k, d)) -> params: the gradient of E[log p(z)] + entropy, where g are
    # the gradients of log p at the draws
    gradient: Callable[[Params, np.ndarray, np.ndarray], Params]
    covariance: Callable[[Params], np.ndarray]  # params -> (d, d), or its diagonal (d,)
    pace: dict[str, float]  # the share of the learning rate that each parameter takes


def softplus(rho: np.ndarray) -> np.ndarray:
    """PyMC's map from rho to a standard deviation.

    >>> bool(np.isclose(softplus(inverse_softplus(0.1)), 0.1))
    True
    """
    return np.asarray(np.logaddexp(0.0, rho))


def inverse_softplus(sd: float) -> float:
    """Return the rho of a standard deviation."""
    return float(np.log(np.expm1(sd)))


def mean_field_slopes(params: Params, eps: np.ndarray) -> np.ndarray:
    """D z / d rho of the mean-field family at fixed draws; shape (k, d)."""
    return np.asarray(eps * expit(params["rho"]))


def _mean_field_gradient(params: Params, eps: np.ndarray, g: np.ndarray) -> Params:
    slope = expit(params["rho"])
    entropy = slope / softplus(params["rho"])
    return {"mu": g.sum(axis=0) / len(g), "rho": (g * eps).sum(axis=0) / len(g) * slope + entropy}


MEAN_FIELD = Family(
    init=lambda mean, sd: {"mu": mean.copy(), "rho": np.full(mean.size, inverse_softplus(sd))},
    sample=lambda params, eps: params["mu"] + softplus(params["rho"]) * eps,
    gradient=_mean_field_gradient,
    covariance=lambda params: softplus(params["rho"]) ** 2,
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
    rows, columns = np.tril_indices(params["mu"].size)
    grad = (g.T @ eps / len(g))[rows, columns]
    diagonal = rows == columns
    rho = params["L_tril"][diagonal]
    grad[diagonal] = (grad[diagonal] + 1 / softplus(rho)) * expit(rho)
    return {"mu": g.sum(axis=0) / len(g), "L_tril": grad}


def _full_rank_covariance(params: Params) -> np.ndarray:
    factor = cholesky(params)
    return np.asarray(factor @ factor.T)


FULL_RANK = Family(
    init=_full_rank_init,
    sample=lambda params, eps: params["mu"] + eps @ cholesky(params).T,
    gradient=_full_rank_gradient,
    covariance=_full_rank_covariance,
    pace={"mu": 1.0, "L_tril": DEFAULTS.factor_rate},
)
