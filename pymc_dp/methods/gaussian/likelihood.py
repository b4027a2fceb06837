"""What the releases of rounds say of the likelihood alone."""

import numpy as np

from pymc_dp.methods.gaussian.belief import symmetric
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.hyperpriors import NormalPrior
from pymc_dp.methods.gaussian.integrated import NormalLikelihood
from pymc_dp.methods.gaussian.local_posterior import bend_along, squared_change
from pymc_dp.methods.gaussian.state import Scored, State

# directions of which records say so little, as a share of what they say of others, are those of
# which they say nothing: rounding alone tells them apart
UNKNOWN = 1e-10


def likelihood(state: State, prior: NormalPrior, noise: float) -> NormalLikelihood:
    """Return what the rounds say of the likelihood, without the prior that they had.

    A score s at a point p says s + H p = H z + noise of the mode z of the likelihood. The mode of
    the rounds does not: steps are damped, and may not be at their end. As wide as records and noise
    make it, the precision is H (v H + S)^-1 H, with S the noise of all these scores together;
    ``noise`` is 1, or 0 to leave S out. v has no margin as a posterior's width has: the spread of
    groups is the variance of their estimates beyond v and S, and margins would take from it.

    Where the posterior's mean lies beyond its mode, z and H are those of the mean.
    """
    if not state.learnt.scored:
        return _nothing(prior)
    try:
        return _of_scores(state, prior, noise)
    except (np.linalg.LinAlgError, ArithmeticError):  # it tells nothing that numbers can hold
        return _nothing(prior)


def _nothing(prior: NormalPrior) -> NormalLikelihood:
    return NormalLikelihood(np.zeros(len(prior.precision)), np.zeros_like(prior.precision))


def _of_scores(state: State, prior: NormalPrior, noise: float) -> NormalLikelihood:
    learnt, H = state.learnt, state.learnt.likelihood_curvature
    if state.scale is None:
        pooled, S = _pooled(state, H)
    else:
        H = _alone(H, state.scale.latent)
        pooled, S = _with_scale(state, H, state.scale.latent)
    left = learnt.reported.curvature_left
    pooled = left * (pooled + H @ (learnt.reported.mean - learnt.mode.mean))
    H = left * H
    of_scores = learnt.score_variance(H, learnt.variance_share.mean)
    variance = symmetric(of_scores + noise * (S + np.outer(state.bias, state.bias) * H))
    if not np.isfinite(variance).all():
        return _nothing(prior)
    unit = np.sqrt(np.maximum(np.diag(variance), np.finfo(float).tiny))
    correlation = variance / np.outer(unit, unit)
    inverse = np.linalg.pinv(correlation, rcond=UNKNOWN, hermitian=True)
    gain = H @ (inverse / np.outer(unit, unit))
    h, Lambda = gain @ pooled, symmetric(gain @ H)
    # what the prior all but fixes is where it is fixed: there rounding hides the records
    free = np.diag(prior.precision) < DEFAULTS.fixed_precision * np.diag(H)
    return NormalLikelihood(free * h, np.outer(free, free) * Lambda)


def _pooled(state: State, H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average s + H p over rounds, (d,), by precision; return the covariance of its noise, too."""
    scored = state.learnt.scored
    precisions = [np.linalg.inv(one.noise + _bend(one, state, H)) for one in scored]
    S = np.linalg.inv(np.sum(precisions, axis=0))
    sums = [J @ (s + H @ p) for J, (p, s, _) in zip(precisions, scored, strict=True)]
    return S @ np.sum(sums, axis=0), S


def _bend(one: Scored, state: State, H: np.ndarray) -> np.ndarray:
    """Return the covariance of what a score lacks where it bends towards the mode, (d, d)."""
    path = state.learnt.mode.mean - one.point
    return squared_change(float(path @ H @ path), state.number) * bend_along(H, path)


def _with_scale(state: State, H: np.ndarray, latent: int) -> tuple[np.ndarray, np.ndarray]:
    """Take the scale of outcomes from the mode: rounds step in it by more than its score."""
    mode, (pooled, S) = state.learnt.mode, _pooled(state, H)
    S = _alone(S, latent)
    S[latent, latent] = H[latent, latent] ** 2 * mode.covariance[latent, latent]
    pooled[latent] = H[latent, latent] * mode.mean[latent]
    return pooled, S


def _alone(matrix: np.ndarray, latent: int) -> np.ndarray:
    """Part a latent from all others, as location and scale of normal outcomes are in curvatures."""
    found = matrix.copy()
    found[latent], found[:, latent] = 0.0, 0.0
    found[latent, latent] = matrix[latent, latent]
    return found
