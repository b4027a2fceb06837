"""Expectation propagation for the mixture, with a site for every record (Minka 2001).

Its state holds a site of every record and it starts from centres of the data, so nothing of it is
private. It is the yardstick of the DP-SEP paper's figure 1, and no part of the package.
"""

from typing import NamedTuple

import numpy as np
from scipy.cluster.vq import kmeans
from scipy.special import softmax

from benchmarks.papers.mixture_data import COMPONENTS, NOISE_VARIANCE, PRIOR_VARIANCE, Posterior

ROUNDS, DAMPING = 60, 0.5


class Gaussians(NamedTuple):
    """Natural parameters: precisions times means, shape (..., d), and precisions, (..., d, d)."""

    shift: np.ndarray
    precision: np.ndarray

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        covariance = np.linalg.inv(self.precision)
        return (covariance @ self.shift[..., None])[..., 0], covariance


def fit(X: np.ndarray, seed: int) -> Posterior:
    """Run to the fixed point near the centres that k-means finds in several attempts."""
    start, _ = kmeans(X, COMPONENTS, rng=np.random.default_rng(seed))
    sites = _even_sites(len(X), start)
    for _ in range(ROUNDS):
        sites = _update(X, sites)
    return Posterior(*_product(sites).moments())


def _even_sites(number: int, start: np.ndarray) -> Gaussians:
    """As if all records belonged to all components in equal parts, and lay on their centres."""
    eye = np.eye(start.shape[1]) / (COMPONENTS * NOISE_VARIANCE)
    precision = np.broadcast_to(eye, (number, *start.shape, start.shape[1]))
    return Gaussians(np.broadcast_to(start @ eye, (number, *start.shape)), precision)


def _product(sites: Gaussians) -> Gaussians:
    """Multiply the prior and all sites, component by component."""
    eye = np.eye(sites.shift.shape[-1])
    return Gaussians(sites.shift.sum(axis=0), sites.precision.sum(axis=0) + eye / PRIOR_VARIANCE)


def _update(X: np.ndarray, sites: Gaussians) -> Gaussians:
    """Move all sites towards those that give each tilted density its moments."""
    whole = _product(sites)
    cavity = Gaussians(whole.shift - sites.shift, whole.precision - sites.precision)
    # no density, no moments: such a site waits until the others have moved
    proper = np.linalg.eigvalsh(cavity.precision)[..., 0].min(axis=1) > 0
    cavity = Gaussians(cavity.shift[proper], cavity.precision[proper])
    mean, covariance = _tilted(X[proper], *cavity.moments())
    precision = np.linalg.inv(covariance)
    shift = (precision @ mean[..., None])[..., 0]
    moved = Gaussians(sites.shift.copy(), sites.precision.copy())
    moved.shift[proper] += DAMPING * (shift - cavity.shift - sites.shift[proper])
    moved.precision[proper] += DAMPING * (precision - cavity.precision - sites.precision[proper])
    return moved


def _tilted(X: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, ...]:
    """Moments of every centre, shape (N, K, d), given its cavity and the one record."""
    marginal = covariance + NOISE_VARIANCE * np.eye(X.shape[1])
    off = X[:, None] - mean
    step = np.linalg.solve(marginal, off[..., None])[..., 0]
    log_z = -((off * step).sum(axis=-1) + np.linalg.slogdet(marginal)[1]) / 2
    r = softmax(log_z, axis=1)[..., None]
    delta = (covariance @ step[..., None])[..., 0]
    shrunk = covariance @ np.linalg.solve(marginal, covariance)
    spread = (r * (1 - r))[..., None] * delta[..., None] * delta[..., None, :]
    return mean + r * delta, covariance - r[..., None] * shrunk + spread
