"""Sites of a mixture: one record's factors on each component's mean and weight.

The tilted density of component k is a mixture of two Gaussians: with responsibility r_k the
record belongs to it, else the factor is 1. Moments are matched in closed form.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.mixture.model import Components, MixtureModel
from pymc_dp.methods.sep.mixture.defaults import DEFAULTS
from pymc_dp.privacy.contribution import Batch, RowContribution


class Context(NamedTuple):
    """The cavity at which sites of a batch are taken: public values."""

    mean: np.ndarray  # of all Gaussian latents
    covariance: np.ndarray  # of each component's own latents
    concentration: np.ndarray  # of the weights
    temperature: float  # the power of the likelihood


class Sites(NamedTuple):
    """Sites or sums of sites, in units in which one record's precision is the identity."""

    score: Any  # nu - Lambda m, with m the cavity's mean
    precision: Any
    weights: Any
    number: Any  # the number of records


def layout_of(count: int, d: int) -> Layout:
    """Lay out the `Sites` of a record, for K components with d latents each."""
    parts = {
        "score": Part((count, d)),
        "precision": Part((count, d, d), DEFAULTS.precision_scale, symmetric=True),
        "weights": Part((count,), DEFAULTS.weights_scale),
        "number": Part((), DEFAULTS.number_scale),
    }
    return Layout(parts)


def contribution(compute: Components, model: MixtureModel, root: np.ndarray) -> RowContribution:
    """Contribute sites of means and weights, and a one; the context is a `Context`."""
    count, d = model.blocks.shape
    layout, known = layout_of(count, d), model.weights is None

    def prepare(batch: Batch, context: Context) -> np.ndarray:
        sites = sites_of(*compute(batch, context.mean), model.curvature, root, context)
        return layout.pack(sites._replace(weights=(1 - known) * sites.weights)._asdict())

    return RowContribution(layout.size, 8 * count * d * d, lambda rows, context: rows, prepare)


def basis_of(
    covariance: np.ndarray, curvature: np.ndarray, root: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Diagonalise V and H together: F with F F' = V, the cavity's covariance, a share, and a map.

    Where a record certainly belongs to the component, V becomes F diag(share) F'. The map brings
    precisions and scores to a record's units.
    """
    lower = np.linalg.cholesky(covariance)
    values, vectors = np.linalg.eigh(np.swapaxes(lower, -1, -2) @ curvature @ lower)
    factor = lower @ vectors
    out = np.linalg.inv(root) @ np.swapaxes(np.linalg.inv(factor), -1, -2)
    return factor, 1 / (1 + np.maximum(values, 0.0)), out


def sites_of(
    joint: np.ndarray, slope: np.ndarray, curvature: np.ndarray, root: np.ndarray, context: Context
) -> Sites:
    """Match moments of cavity times likelihood, and divide by the cavity.

    ``joint``, (rows, K), holds log joint densities at the cavity's mean, with even weights, and
    ``slope``, (rows, K, d), their slopes in each component's own latents. ``curvature`` and
    ``root``, (K, d, d), are the precision H of one record, and its symmetric root.
    """
    factor, share, out = basis_of(context.covariance, context.temperature * curvature, root)
    slope = context.temperature * np.einsum("kde,nkd->nke", factor, slope)
    shift = share * slope
    # log Z_k = l_k(m) + g' (V^-1 + H)^-1 g / 2 - log |I + V H| / 2, times the weight's mean
    log_z = context.temperature * joint + np.vecdot(slope, shift) / 2
    log_z = log_z + np.log(share).sum(axis=1) / 2 + np.log(context.concentration)
    r = softmax(log_z, axis=1)[..., None]
    # the tilted covariance is diag(variance) + r (1 - r) shift shift'
    variance = 1 - r + r * share
    along = shift / variance
    shrunk = 1 / (1 + r * (1 - r) * np.vecdot(shift, along)[..., None])
    score = np.einsum("kde,nke->nkd", out, r * shrunk * along)
    diagonal = np.einsum("kde,nke,kfe->nkdf", out, 1 / variance - 1, out)
    along = np.einsum("kde,nke->nkd", out, np.sqrt(r * (1 - r) * shrunk) * along)
    precision = diagonal - along[..., :, None] * along[..., None, :]
    weights = weight_sites(r[..., 0], context.concentration)
    return Sites(score, precision, weights, np.ones(len(r)))


def weight_sites(r: np.ndarray, concentration: np.ndarray) -> np.ndarray:
    """Match means and the sum of variances of sum_k r_k Dirichlet(a + e_k) (Minka 2001).

    >>> import numpy as np
    >>> weight_sites(np.array([[1.0, 0.0]]), np.array([2.0, 3.0])).round(12)
    array([[1., 0.]])
    """
    total = concentration.sum()
    mean = (concentration + r) / (total + 1)
    second = concentration * (concentration + 1) + 2 * r * (concentration + 1)
    second = second / ((total + 1) * (total + 2))
    spread = (second - mean**2).sum(axis=1, keepdims=True)
    matched = (mean - second).sum(axis=1, keepdims=True) / np.maximum(spread, 1e-300)
    return np.asarray(matched * mean - concentration)
