"""Sites of a mixture: what one record says about each component's mean and weight.

The tilted density of component k is a mixture of two Gaussians: with responsibility r_k the
record belongs to it, else it says nothing. Moments are matched in closed form.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from pymc_dp.contributions import Contribution
from pymc_dp.contributions.contribution import Batch, row_norms
from pymc_dp.contributions.symmetric import smat, svec
from pymc_dp.methods.sep.mixture_model import MixtureModel, components
from pymc_dp.records import Records

# shares of the precisions, of the weights' sites and of the count in a record's vector
PRECISION, WEIGHTS, NUMBER = 0.5, 1.0, 0.3


class Asked(NamedTuple):
    """The cavity at which a batch is asked: public values.

    Attributes
    ----------
    mean : (d_v,)
        Of all Gaussian latents.
    covariance : (K, d, d)
        Of each component's own latents.
    concentration : (K,)
        Of the weights.
    temperature : float
        The power of the likelihood.
    """

    mean: np.ndarray
    covariance: np.ndarray
    concentration: np.ndarray
    temperature: float


class Sums(NamedTuple):
    """Sums of sites, in units in which one record's precision is the identity.

    Attributes
    ----------
    score : (K, d)
        nu - Lambda m, with m the cavity's mean.
    precision : (K, d, d)
    weights : (K,)
    number : ()
        The number of records.
    """

    score: np.ndarray
    precision: np.ndarray
    weights: np.ndarray
    number: np.ndarray


class Sites(NamedTuple):
    """One row a record, in a record's units; ``precision`` is its upper triangle."""

    score: np.ndarray
    precision: np.ndarray
    weights: np.ndarray


def size_of(shape: tuple[int, int]) -> int:
    """Return the length of a record's vector: K scores, K triangles, K weights and a one."""
    count, d = shape
    return count * (d + d * (d + 1) // 2 + 1) + 1


def split(value: np.ndarray, shape: tuple[int, int]) -> Sums:
    """Cut a released vector into sums, scales undone."""
    count, d = shape
    score, precision, weights, number = np.split(
        value, np.cumsum([count * d, count * (d * (d + 1) // 2), count])
    )
    return Sums(
        score.reshape(count, d),
        np.stack([smat(part) for part in precision.reshape(count, -1)]) / PRECISION,
        weights / WEIGHTS,
        number[0] / NUMBER,
    )


def noise_of(sd: float) -> Sums:
    """Variance of the noise on an entry of each sum."""
    of_each = (np.asarray(sd / x) ** 2 for x in (1.0, PRECISION, WEIGHTS, NUMBER))
    return Sums(*of_each)


def contribution(
    records: Records, model: MixtureModel, root: np.ndarray, backend: str
) -> Contribution:
    """Contribute sites of means and weights, and a one; the context is an `Asked`.

    ``root`` is the symmetric root of a record's precision.
    """
    compute = components(records, model, backend)
    count, d = model.blocks.shape
    known = model.weights is None

    def prepare(batch: Batch, asked: Asked) -> np.ndarray:
        sites = sites_of(*compute(batch, asked.mean), model.curvature, root, asked)
        parts = (sites.score, PRECISION * sites.precision, WEIGHTS * (1 - known) * sites.weights)
        rows = [part.reshape(len(part), -1) for part in parts]
        return np.concatenate([*rows, np.full((len(rows[0]), 1), NUMBER)], axis=1)

    return Contribution(
        size_of(model.blocks.shape),
        8 * count * d * d,
        norms=lambda rows, asked: row_norms(rows),
        weighted_sum=lambda rows, asked, weights: weights @ rows,
        prepare=prepare,
    )


class Basis(NamedTuple):
    """Coordinates in which cavity and likelihood of a component are diagonal.

    Attributes
    ----------
    factor : (K, d, d)
        F with F F' = V, the cavity's covariance: it is the identity there.
    share : (K, d)
        Variances of a record that is sure of its component: V becomes F diag(share) F'.
    out : (K, d, d)
        Brings precisions and scores to a record's units.
    """

    factor: np.ndarray
    share: np.ndarray
    out: np.ndarray


def basis_of(covariance: np.ndarray, curvature: np.ndarray, root: np.ndarray) -> Basis:
    """Diagonalise V and H together."""
    lower = np.linalg.cholesky(covariance)
    values, vectors = np.linalg.eigh(np.swapaxes(lower, -1, -2) @ curvature @ lower)
    factor = lower @ vectors
    out = np.linalg.inv(root) @ np.swapaxes(np.linalg.inv(factor), -1, -2)
    return Basis(factor, 1 / (1 + np.maximum(values, 0.0)), out)


def sites_of(
    joint: np.ndarray, slope: np.ndarray, curvature: np.ndarray, root: np.ndarray, asked: Asked
) -> Sites:
    """Match moments of cavity times likelihood, and divide by the cavity.

    Parameters
    ----------
    joint : (rows, K)
        Log joint densities at the cavity's mean, with even weights.
    slope : (rows, K, d)
        Their slopes in each component's own latents.
    curvature, root : (K, d, d)
        The precision H of one record, and its symmetric root.
    asked : Asked
    """
    basis = basis_of(asked.covariance, asked.temperature * curvature, root)
    slope = asked.temperature * np.einsum("kde,nkd->nke", basis.factor, slope)
    shift = basis.share * slope
    # log Z_k = l_k(m) + g' (V^-1 + H)^-1 g / 2 - log |I + V H| / 2, times the weight's mean
    log_z = asked.temperature * joint + np.vecdot(slope, shift) / 2
    log_z = log_z + np.log(basis.share).sum(axis=1) / 2 + np.log(asked.concentration)
    r = softmax(log_z, axis=1)[..., None]
    # the tilted covariance is diag(variance) + r (1 - r) shift shift'
    variance = 1 - r + r * basis.share
    along = shift / variance
    lost = 1 / (1 + r * (1 - r) * np.vecdot(shift, along)[..., None])
    score = np.einsum("kde,nke->nkd", basis.out, r * lost * along)
    straight = np.einsum("kde,nke,kfe->nkdf", basis.out, 1 / variance - 1, basis.out)
    along = np.einsum("kde,nke->nkd", basis.out, np.sqrt(r * (1 - r) * lost) * along)
    precision = straight - along[..., :, None] * along[..., None, :]
    return Sites(score, svec(precision), weight_sites(r[..., 0], asked.concentration))


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
    return matched * mean - concentration
