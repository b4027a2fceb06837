"""Curvature of many latents as a diagonal and a few factors: far fewer numbers than a matrix has.

Noise on a whole matrix hides its small eigenvalues, and with them how well the records tell latents
apart. It hides neither the diagonal nor the few directions that many latents share, and these say
most of what the small eigenvalues are.
"""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.methods.gaussian.belief import Curvature, positive_beside, symmetric
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.noise_floor import mean_if_positive, spectral_edge, without_noise
from pymc_dp.methods.gaussian.path import Path


class FactorModel(NamedTuple):
    """M = diag(uniqueness) + U U', fitted to a noisy curvature."""

    uniqueness: np.ndarray  # (d,)
    shared: np.ndarray  # U U', (d, d)
    factors: int  # columns of U

    @property
    def matrix(self) -> np.ndarray:
        """M, (d, d)."""
        return np.asarray(np.diag(self.uniqueness) + self.shared)

    @property
    def fitted_share(self) -> float:
        """How many numbers are fitted, over those that a symmetric matrix has."""
        return 2 * (1 + self.factors) / (len(self.uniqueness) + 1)


class Model(NamedTuple):
    """A curvature that follows from few numbers."""

    matrix: np.ndarray  # (d, d)
    fitted_share: float  # of the numbers that a symmetric matrix has


class Believed(NamedTuple):
    """A curvature, and what may be wrong with it."""

    curvature: Curvature  # its noise may hide eigenvalues
    error: np.ndarray  # (d, d): as `Curvature.noise`, of all that is not known of the curvature
    is_modelled: bool  # whether it follows from a model of factors, or from the diagonal alone
    path: Path | None = None  # along which the curvature is known


def with_factors(found: Curvature, fewest: int = 0) -> Believed:
    """Weigh a noisy curvature against the factor model that was fitted to it.

    How far curvatures are from such a model follows from what the fit leaves over. Where that is
    noise alone, the model is believed; where it is more, or where the model has as many numbers as
    the matrix, the matrix. Of many latents only the diagonal is released, and believed.

    The matrix of less than the ``fewest`` latents is believed as it was found: what the fit leaves
    over hardly tells how wrong the model is in weak directions, where small errors of it are large
    ones of the posterior.
    """
    d = len(found.estimate)
    if not fewest <= d <= MANY_LATENTS:
        return Believed(found, found.noise, is_modelled=d > MANY_LATENTS)
    return weighed(found, _fitted(found))


def weighed(found: Curvature, model: Model | FactorModel) -> Believed:
    """Weigh a noisy curvature against a model of it."""
    M, share = model.matrix, model.fitted_share
    if len(M) > MANY_LATENTS:
        return _as_modelled(M)
    if share >= 1:
        return Believed(found, found.noise, is_modelled=False)
    believed = found.combined(Curvature(M, _distance(found, M, share) * M))
    error = believed.noise + share**0.5 * found.noise
    return Believed(believed, error, is_modelled=True)


def with_departures(found: Curvature, model: Model) -> Model:
    """Add to a model what was found to be surely unlike it: by more than the edge of the noise.

    >>> found = Curvature(np.array([[4.0, 3.9], [3.9, 4.0]]), np.array([[1.0, 0.9], [0.9, 1.0]]))
    >>> alike = Model(4 * np.eye(2), 0.5)
    >>> with_departures(found, alike).matrix.round(1)
    array([[2.1, 1.9],
           [1.9, 2.1]])
    """
    differs = Curvature(found.estimate - model.matrix, found.noise).spectrum()
    size, L = abs(differs.values), differs.vectors
    visible = size > DEFAULTS.visible_departure * differs.edge
    if not visible.any():
        return model
    kept = visible * np.sign(differs.values) * without_noise(size, differs.edge, 0.0)
    matrix = model.matrix + symmetric((L * kept) @ L.T)
    fitted = 2 * int(visible.sum()) / (len(matrix) + 1)
    return Model(positive_beside(model.matrix, matrix), model.fitted_share + fitted)


def _as_modelled(M: np.ndarray) -> Believed:
    """Believe a model of many latents as it is: their diagonal alone was released.

    It has no noise that hides eigenvalues, and is positive definite. So its noise is alike in all
    directions, and well below them.
    """
    noise = M / (DEFAULTS.visible_scale * spectral_edge(1.0, len(M)))
    return Believed(Curvature(M, noise), noise, is_modelled=True)


def _fitted(found: Curvature) -> FactorModel:
    """Fit by generalized least squares, the factors and the uniquenesses in turn."""
    H, Q = found
    root = np.linalg.cholesky(Q)
    inverse = np.linalg.inv(root)
    precision = inverse.T @ inverse
    covariance = np.linalg.inv(precision**2)  # of a diagonal's estimate by least squares
    noise_sd = np.sqrt(np.diag(covariance))
    uniqueness = diagonal = np.maximum(np.diag(H), np.diag(Q) / 2)
    for _ in range(DEFAULTS.factor_steps):
        visible, factors = _visible(symmetric(inverse @ (H - np.diag(uniqueness)) @ inverse.T))
        shared = symmetric(root @ visible @ root.T)
        estimate = covariance @ np.diag(precision @ (H - shared) @ precision)
        least = DEFAULTS.least_of_model * diagonal
        uniqueness = (uniqueness + np.maximum(mean_if_positive(estimate, noise_sd), least)) / 2
    return FactorModel(uniqueness, shared, factors)


def _visible(matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """Return what is visible of a matrix, and its rank; entries of svec have the noise N(0, 1)."""
    values, vectors = np.linalg.eigh(matrix)
    edge = spectral_edge(1.0, len(values))
    visible = values > edge
    values, vectors = without_noise(values[visible], edge, 0.0), vectors[:, visible]
    return (vectors * values) @ vectors.T, len(values)


def _distance(found: Curvature, M: np.ndarray, fitted_share: float) -> float:
    """Estimate the scale of a curvature's distance from M, as if it were noise like M; by moments.

    It is one standard deviation larger. In coordinates that make M the identity and the noise
    diagonal, with entries n_i, the entry (i, j) of svec has the variance n_i n_j of its noise, and
    the squared scale.
    """
    inverse = np.linalg.inv(np.linalg.cholesky(M))
    n, vectors = np.linalg.eigh(symmetric(inverse @ found.noise @ inverse.T))
    to = vectors.T @ inverse
    rows, columns = np.triu_indices(len(n))
    left = (to @ (found.estimate - M) @ to.T)[rows, columns]
    squares = np.where(rows == columns, 1, 2) * left**2 / (1 - fitted_share)
    noise, squared = n[rows] * n[columns], 0.0
    for _ in range(DEFAULTS.factor_steps):
        weights = (noise + squared) ** -2.0
        squared = max(0.0, float(weights @ (squares - noise) / weights.sum()))
    weights = (noise + squared) ** -2.0
    sd = (2 / weights.sum()) ** 0.5 / (1 - fitted_share)
    return float((squared + sd) ** 0.5)


def visible_along_steps(
    believed: Curvature, found: Curvature, slope: np.ndarray, prior: np.ndarray
) -> Curvature:
    """Make a curvature as large along the next steps as it was found to be.

    A single direction of a noisy curvature is visible where the noise hides its eigenvectors, and a
    step that takes its curvature for too small goes too far. Steps go along ``(H + prior)^-1
    slope``.
    """
    H = believed.estimate
    for _ in range(DEFAULTS.most_iterations):
        step = np.linalg.solve(H + prior, slope)
        missing = (found.estimate - H) @ step
        along, noise_sd = float(step @ missing), float(step @ found.noise @ step)
        if not along > noise_sd:
            break
        H = symmetric(H + np.outer(missing, missing) / along)
    return believed._replace(estimate=H)
