"""Coordinates of the next round, and the norms that its parts are clipped to in them."""

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.methods.gaussian.belief import CurvatureSpectrum, symmetric, whitening_of
from pymc_dp.methods.gaussian.clipped_share import VarianceShare
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.schedule import Shares


def unclipped_curvature(spectrum: CurvatureSpectrum, share: VarianceShare) -> np.ndarray:
    """Return the curvature as unclipped scores would show it."""
    return spectrum.matrix_at_least(DEFAULTS.floor_in_coordinates) / share.curvature_share


def visible_directions(spectrum: CurvatureSpectrum, prior_precision: np.ndarray) -> float:
    """Return in how many directions the records' curvature is visible, 1 at least.

    That is about the mean squared norm of whitened scores: where noise hides the curvature, they
    are shorter than its floor says. What clipping takes away of it does not make them shorter.
    """
    floored = spectrum.matrix_at_least(DEFAULTS.floor_in_coordinates) + prior_precision
    curvature = spectrum.matrix(DEFAULTS.floor_on_average)
    visible = float(np.trace(np.linalg.solve(floored, curvature)))
    return float(np.clip(visible, 1.0, len(prior_precision)))


def norm_bounds(
    d: int, number: float, noise_unit: float, shares: list[Shares], visible: float
) -> tuple[float, float, float]:
    """Return norms of scores, over the root of their size, of curvatures, and for weights.

    They are larger where noise is less; ``visible`` is the mean squared norm of whitened scores.
    """
    if noise_unit == 0:
        return np.inf, np.inf, np.inf
    # signal over noise, if all rounds were one
    score = (number * sum(s.score for s in shares) / d) ** 0.5 / noise_unit
    score = np.clip(DEFAULTS.norm_over_noise * score, *DEFAULTS.score_range)
    curvature = number * sum(s.curvature for s in shares) ** 0.5
    curvature = curvature / ((2 * d) ** 0.5 * noise_unit * d)
    least = DEFAULTS.least_curvature_norm
    weight = max(DEFAULTS.norm_over_noise * curvature, least)
    # what clipping leaves out of curvatures falls as their noise does, both to nothing
    of_slope = max(weight**0.5, least)
    return float(score), float(of_slope * visible), float(weight * visible)


def noise_of_score(number: float, noise_unit: float, shares: list[Shares]) -> float:
    """Return the noise of these rounds together, in posterior sds, at a norm of scores of 1."""
    return float(noise_unit / (number * sum(s.score for s in shares)) ** 0.5)


def whitening(precision: np.ndarray, number: float, dispersion: np.ndarray) -> np.ndarray:
    """Return W with W precision W' = number I; by the diagonal alone, (d,), for many latents.

    What ``dispersion`` picks, (d,), is whitened by itself, as if it were independent of the others.
    """
    precision = np.where(np.equal.outer(dispersion, dispersion), precision, 0.0)
    if len(precision) > MANY_LATENTS:
        return np.asarray((number / np.diag(precision)) ** 0.5)
    return whitening_of(precision, number)


def root_of(W: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Return A with A'A the inverse of W precision W'; by the diagonal alone if W is one, (d,).

    >>> A = root_of(np.diag([1.0, 2.0]), np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> np.linalg.inv(A.T @ A).round(6)
    array([[2., 2.],
           [2., 8.]])
    """
    if W.ndim == 1:
        return np.asarray(1 / (W * np.diag(precision) ** 0.5))
    return np.asarray(np.linalg.inv(W @ np.linalg.cholesky(symmetric(precision))))


def whitened_direction(W: np.ndarray, path: np.ndarray) -> np.ndarray | None:
    """Return the unit vector c, (d,), with c' W H W' c proportional to path' H path for every H.

    None for a path of length 0.

    >>> whitened_direction(np.diag([1.0, 2.0]), np.array([3.0, 8.0]))
    array([0.6, 0.8])
    """
    along = path / W if W.ndim == 1 else np.linalg.solve(W.T, path)
    length = np.linalg.norm(along)
    return np.asarray(along / length) if 0 < length < np.inf else None
