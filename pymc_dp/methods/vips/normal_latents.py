"""Gaussian latents of single records: their posterior is exact, and its covariance is public."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.contribution import row_norms
from pymc_dp.methods.vips.factor_sums import Asked, Inference, Sums, with_one


class Beliefs(NamedTuple):
    """One row a record: y - psi at the expected latents, these with a one, the energy."""

    residual: np.ndarray
    features: np.ndarray
    energy: np.ndarray


class _Public(NamedTuple):
    """The covariance V of a record's latents, and the loadings times it; both with a zero for 1."""

    covariance: np.ndarray
    loaded: np.ndarray


def normal_latents(gain: np.ndarray, energies: bool) -> Inference:
    """Infer Gaussian latents; ``gain`` holds square roots of the outcomes' curvatures."""
    return Inference(lambda slopes, asked: infer(slopes / gain, asked), norms, sums, energies)


def _public(asked: Asked) -> _Public:
    loadings = asked.mean[:, :-1]
    second = loadings.T @ loadings + np.diag(asked.variance[:, :-1].sum(axis=0))
    covariance = np.linalg.inv(np.diag(asked.parameter) + asked.precision * second)
    covariance = np.pad((covariance + covariance.T) / 2, (0, 1))
    return _Public(covariance, asked.mean @ covariance)


def infer(outcome: np.ndarray, asked: Asked) -> Beliefs:
    """E-step: E z = tau V W'(y - c)."""
    public = _public(asked)
    centred = outcome - asked.mean[:, -1]
    z = asked.precision * centred @ public.loaded[:, :-1]
    residual = centred - z @ asked.mean[:, :-1].T
    energy = np.vecdot(residual, residual) + np.vdot(public.loaded, asked.mean)
    return Beliefs(residual, with_one(z), energy)


def norms(beliefs: Beliefs, asked: Asked) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Norms of r z~' - W V, of z~ z~' + V and of the energy.

    Vectors are shortened to at most 1 first, so that no square leaves the range of doubles. A
    difference of squares is raised by its rounding error: no norm may be short.
    """
    public = _public(asked)
    long, wide = row_norms(beliefs.residual), row_norms(beliefs.features)
    long = np.where(long < 1, 1.0, long)  # nan stays
    r, z = beliefs.residual / long[:, None], beliefs.features / wide[:, None]
    unit = 1 / (long * wide)
    straight = np.vecdot(r, r) * np.vecdot(z, z)
    correction = np.vdot(public.loaded, public.loaded) * unit**2
    crossed = 2 * unit * np.vecdot(r @ public.loaded, z)
    score = np.maximum(straight - crossed + correction, 0.0) + 1e-12 * (straight + correction)
    spread = 2 * np.vecdot(z @ public.covariance, z) / wide**2
    own = np.vdot(public.covariance, public.covariance) / wide**4
    curvature = wide**2 * np.sqrt(np.vecdot(z, z) ** 2 + np.maximum(spread, 0.0) + own)
    return long * wide * np.sqrt(score), curvature, beliefs.energy


def sums(beliefs: Beliefs, asked: Asked, weights: np.ndarray) -> Sums:
    """Weighted sums over records."""
    public = _public(asked)
    total = weights.sum()
    features = weights[:, None] * beliefs.features
    return Sums(
        (weights[:, None] * beliefs.residual).T @ beliefs.features - total * public.loaded,
        features.T @ beliefs.features + total * public.covariance,
        weights @ beliefs.energy,
    )
