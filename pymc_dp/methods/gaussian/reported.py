"""The posterior that a round reports: at its mean, with all that is not known of it."""

import numpy as np

from pymc_dp.methods.gaussian.belief import Curvature, no_wider, sds_of, symmetric
from pymc_dp.methods.gaussian.local_posterior import LocalPosterior
from pymc_dp.methods.gaussian.long_steps import LatestStep
from pymc_dp.methods.gaussian.noise_floor import Spectrum
from pymc_dp.methods.gaussian.posterior_mean import CurvatureFall, mean_beyond_mode
from pymc_dp.methods.gaussian.state import Known, Learnt, Reported

LEFT = 1e-9  # share of a covariance that keeps another one positive definite


def reported(learnt: Learnt, first: Curvature, local: LocalPosterior, known: Known) -> Reported:
    """Bring the posterior from its mode to its mean, which differ where curvatures have fallen."""
    at_mode = Reported(learnt.mode.mean, learnt.covariance, learnt.noise)
    # the curvature of normal outcomes is taken to change with their scale alone
    of_normal = local.hidden_scale is not None or not local.unknown_change.all()
    if learnt.curvature is None or of_normal:
        return at_mode
    fall = CurvatureFall.between(first, learnt.curvature.estimate)
    if fall.power == 0:
        return at_mode
    prior, start, mode = local.prior_precision, learnt.start, learnt.mode.mean
    H = learnt.likelihood_curvature
    # scores that are averaged over the posterior of the records vanish at its mean: what is left is
    # what noise adds to its width
    of_records = LEFT if known.estimating else 1.0
    of_scores = learnt.score_variance(H, learnt.variance_share.upper)
    width = learnt.noise + of_records * covariance_of(H, prior, of_scores)
    of_prior = np.trace((learnt.covariance + learnt.noise) @ prior)
    visible = max(0.0, len(mode) - float(of_prior))
    mean = mean_beyond_mode(mode, start, width, fall, visible)
    left = fall.left(mode - start, mean - start)
    # V is inverse to H, and what S adds to the posterior is V S V
    covariance = no_wider(learnt.covariance / left, prior)
    return Reported(mean, covariance, added(covariance, learnt.noise / left**2, prior), left)


def covariance_of(H: np.ndarray, prior: np.ndarray, of_scores: np.ndarray) -> np.ndarray:
    """Return the covariance from the records alone: V (J + P) V with V = (H + P)^-1.

    J is the variance of the sum of scores. Without weights it is v H: v is that of clipped scores
    over the slope of their mean, 1 without clipping, as large as its own noise may hide.
    """
    V = np.linalg.inv(H + prior)
    return no_wider(symmetric(V @ (of_scores + prior) @ V), prior)


def added_by_noise(
    covariance: np.ndarray, of_mode: np.ndarray, latest: LatestStep, prior: np.ndarray
) -> np.ndarray:
    """What not knowing the mode adds to the posterior's covariance; never wider than the prior."""
    return added(covariance, of_mode + np.diag(latest.unfinished**2), prior)


def added(covariance: np.ndarray, more: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return what of more may be added to a covariance that is to be no wider than the prior."""
    unit = sds_of(covariance, prior)
    units = np.outer(unit, unit)  # rounding would hide latents whose own units are small
    allowed = symmetric(no_wider(symmetric(covariance + more), prior) - covariance)
    return symmetric(units * Spectrum.of(allowed / units).floored(0.0))
