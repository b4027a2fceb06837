"""What a round releases, in the coordinates of the latents."""

from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.joint_vector import At, split
from pymc_dp.methods.gaussian.belief import Curvature, symmetric
from pymc_dp.methods.gaussian.path import Path
from pymc_dp.methods.gaussian.state import State
from pymc_dp.privacy.query import Noisy


class Release(NamedTuple):
    """A round's release in the coordinates of the latents."""

    score: np.ndarray  # sum of the records' clipped scores, (d,)
    score_noise: np.ndarray  # covariance of its privacy noise, (d, d)
    curvature: Curvature  # of the log likelihood: minus the slope of the score
    path: Path | None  # from where rounds began, with the same along it; None at the first
    whitening: np.ndarray  # W, (d, d)
    scales: np.ndarray  # by which whitened scores were multiplied, (d,)
    whitened_variance: float  # of the clipped scores, and the sd of its privacy noise
    variance_noise_sd: float
    squared_bound: float  # what the squared norms of all records are clipped to, in total
    counts: np.ndarray  # of lengths of scores, (parts, SIZE), and the sd of its privacy noise
    counts_noise_sd: float
    # sum of products of weighted scores, (d, d); of many latents that of their squared norms, as
    # they are in the vector, (1, 1); None without survey weights
    products: Curvature | None

    def length(self, gradient: np.ndarray, number: float) -> float:
        """Return the largest entry of the whitened gradient, (d,), of the average record."""
        return float(np.abs(self.whitening @ gradient).max()) / number


def unwhitened(noisy: Noisy, state: State) -> Release:
    """Bring a release from whitened coordinates back to those of the latents."""
    at, sums = state.at, split(noisy.value, state.at)
    W = np.diag(at.whitening) if at.whitening.ndim == 1 else at.whitening
    back = np.linalg.inv(W)
    spread = symmetric(back @ back.T)
    least = 1e-7 * state.number**0.5  # without noise: keeps covariances regular
    curvature_noise = max(noisy.sd / at.curvature_scale, least) * spread
    # units of latents that keep still are a thousandth: their curvature drowns in its noise
    still = np.logical_or.outer(state.held, state.held)
    curvature = np.where(still, 0.0, symmetric(back @ sums.curvature @ back.T))
    path = None
    if at.direction is not None:
        path = _path(at, sums.along, max(noisy.sd / at.along_scale, least), state.learnt.start)
    return Release(
        score=back @ sums.score,
        score_noise=symmetric((back * (max(noisy.sd, least) / at.score_scales) ** 2) @ back.T),
        curvature=Curvature(curvature, curvature_noise),
        path=path,
        whitening=W,
        scales=at.score_scales,
        whitened_variance=sums.variance,
        variance_noise_sd=noisy.sd / at.variance_scale,
        squared_bound=state.number * at.score_norm**2,
        counts=sums.counts,
        counts_noise_sd=noisy.sd / at.counts_scale,
        products=_products(sums.products, noisy.sd, back / at.score_scales, at),
    )


def _path(at: At, released: float, noise_sd: float, start: np.ndarray) -> Path:
    """Bring a curvature along a whitened direction to the path that this is the direction of."""
    W = at.whitening
    unit = at.direction * W if W.ndim == 1 else at.direction @ W
    # in the trial before a fit a direction is released at the start, where the path has no length
    length = float(np.linalg.norm(at.point - start) / np.linalg.norm(unit)) or 1.0
    return Path(length * unit, length**2 * released, length**2 * noise_sd)


def _products(found: np.ndarray, sd: float, back: np.ndarray, at: At) -> Curvature | None:
    """Bring products of scores back to latents, unless noise and traces leave nothing to bring."""
    if at.products == 0:
        return None
    noise = max(sd / at.products_scale, 1e-12 * float(np.trace(found)), np.finfo(float).tiny)
    if len(found) < at.point.size:
        return Curvature(found, np.full((1, 1), noise))
    return Curvature(symmetric(back @ found @ back.T), noise * symmetric(back @ back.T))
