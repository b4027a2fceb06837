"""Coordinates of the next round, and the norms that its parts are clipped to in them."""

from typing import Any

import numpy as np

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.methods.gaussian.belief import CurvatureSpectrum, whitening_of
from pymc_dp.methods.gaussian.clipped_share import VarianceShare, with_diagonal_at_least
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.schedule import Shares


def unclipped_curvature(
    spectrum: CurvatureSpectrum, share: VarianceShare, diagonal: np.ndarray
) -> np.ndarray:
    """Return the curvature as unclipped scores would show it, of this diagonal at least."""
    clipped = spectrum.matrix_at_least(DEFAULTS.floor_in_coordinates)
    return with_diagonal_at_least(clipped / share.curvature_share, diagonal)


def visible_directions(spectrum: CurvatureSpectrum, prior_precision: np.ndarray) -> float:
    """Return in how many directions the records' curvature is visible, of some at least.

    That is about the mean squared norm of whitened scores: where noise hides the curvature, they
    are shorter than its floor says. What clipping takes away of it does not make them shorter.
    """
    d = len(prior_precision)
    floored = spectrum.matrix_at_least(DEFAULTS.floor_in_coordinates) + prior_precision
    curvature = spectrum.matrix(DEFAULTS.floor_on_average)
    visible = float(np.trace(np.linalg.solve(floored, curvature)))
    return float(np.clip(visible, np.clip(d / 4, 1.0, DEFAULTS.least_visible), d))


def norm_bounds(
    d: int, number: float, noise_unit: float, shares: list[Shares], visible: float
) -> tuple[float, float]:
    """Return the norms that scores and curvatures are clipped to: larger where noise is less.

    Both are in units of a whitened score without outliers, whose squared norm is ``visible``.
    """
    if noise_unit == 0:
        return np.inf, np.inf
    # signal over noise, if all rounds were one
    score = (number * sum(s.score for s in shares) / d) ** 0.5 / noise_unit
    score = np.clip(DEFAULTS.score_bound * score, *DEFAULTS.score_range)
    curvature = _curvature_bound(d, number, noise_unit, shares, DEFAULTS.curvature_range[1])
    return float(score * visible**0.5), float(curvature * visible)


def _curvature_bound(
    d: int, number: float, noise_unit: float, shares: list[Shares], most: float
) -> float:
    curvature = number * sum(s.curvature for s in shares) ** 0.5
    curvature = curvature / ((2 * d) ** 0.5 * noise_unit * d)
    return float(np.clip(DEFAULTS.curvature_bound * curvature, DEFAULTS.curvature_range[0], most))


def uncentred_bounds(
    d: int, number: float, noise_unit: float, shares: list[Shares], visible: float, decay: float
) -> tuple[float, float, float]:
    """Return the same norms for scores that no draws centre, and the bias that clipping leaves.

    The bias is in posterior standard deviations, as it is of scores whose tail falls exponentially
    at the rate ``decay``. The norms balance it, which falls exponentially with them, and the noise
    of all rounds, which grows with them. They are for points near the mode: elsewhere a few records
    have most of the scores' variance, and coordinates that follow them make steps of next to
    nothing.

    >>> one = [Shares(curvature=0.4, score=0.6)]
    >>> np.round([uncentred_bounds(1, n, 4.0, one, 1.0, decay=1.0) for n in (500, 50_000)], 1)
    array([[ 3. ,  8.9,  0.4],
           [ 7.1, 51.1,  0.1]])
    """
    if noise_unit == 0:
        return np.inf, np.inf, 0.0
    least = DEFAULTS.score_range[0]
    norms = np.linspace(least, DEFAULTS.no_bias / decay, 200)
    bias = bias_of_clipping(norms, number, decay)
    noise = noise_unit * (visible / (number * sum(s.score for s in shares))) ** 0.5 * norms
    best = np.argmin(bias**2 + noise**2)
    score = norms[best]
    most = max(DEFAULTS.curvature_range[1], score**2)
    curvature = _curvature_bound(d, number, noise_unit, shares, most)
    return float(score * visible**0.5), float(curvature * visible), float(bias[best])


def bias_of_clipping(norm: Any, number: float, decay: float) -> Any:
    """Return the bias of scores that are clipped to a norm, in posterior standard deviations."""
    return number**0.5 * np.exp(-1 - decay * norm)


def whitening(precision: np.ndarray, number: float) -> np.ndarray:
    """Return W with W precision W' = number I; by the diagonal alone, (d,), for many latents."""
    if len(precision) > MANY_LATENTS:
        return np.asarray((number / np.diag(precision)) ** 0.5)
    return whitening_of(precision, number)


def whitened_direction(W: np.ndarray, way: np.ndarray) -> np.ndarray | None:
    """Return the unit vector c, (d,), with c' W H W' c proportional to way' H way for every H.

    None for a way of length 0.

    >>> whitened_direction(np.diag([1.0, 2.0]), np.array([3.0, 8.0]))
    array([0.6, 0.8])
    """
    along = way / W if W.ndim == 1 else np.linalg.solve(W.T, way)
    length = np.linalg.norm(along)
    return np.asarray(along / length) if 0 < length < np.inf else None
