"""What the releases of rounds say of the likelihood alone."""

import numpy as np

from pymc_dp.methods.gaussian.belief import symmetric
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.hyperpriors import NormalPrior
from pymc_dp.methods.gaussian.integrated import NormalLikelihood
from pymc_dp.methods.gaussian.state import Learnt


def likelihood(learnt: Learnt, prior: NormalPrior, noise: float) -> NormalLikelihood:
    """Return what the releases say of the likelihood, without the prior that the rounds had.

    The likelihood's score at the mode m is minus the prior's, with an error of covariance S. As
    wide as records and noise make it, its precision is H (v H + S)^-1 H; ``noise`` is 1, or 0 to
    leave S out. Neither m nor S holds what was believed at the start, which no record told.
    v has no margin, and S no long last steps, as a posterior's width has: the spread of groups is
    the variance of their estimates beyond v and S, and margins would take from it.

    Where the posterior's mean lies beyond its mode, m and H are those of the mean.
    """
    found = learnt.mode.without(learnt.start)
    H, P = learnt.likelihood_curvature, prior.precision
    S = noise * (H + P) @ found.covariance @ (H + P)
    H, m = learnt.reported.curvature_left * H, found.mean + learnt.reported.mean - learnt.mode.mean
    variance = symmetric(learnt.variance_share.mean * H + S)
    if not np.isfinite(variance).all():  # the records tell nothing that numbers can hold
        return NormalLikelihood(np.zeros(len(m)), np.zeros_like(P))
    unit = np.sqrt(np.maximum(np.diag(variance), np.finfo(float).tiny))
    inverse = np.linalg.pinv(variance / np.outer(unit, unit), hermitian=True)
    gain = H @ (inverse / np.outer(unit, unit))
    h, Lambda = gain @ (H @ m - prior.gradient(m)), symmetric(gain @ H)
    # what the prior all but fixes is where it is fixed: there rounding hides the records
    free = np.diag(P) < DEFAULTS.fixed_by_prior * np.diag(H)
    return NormalLikelihood(free * h, np.outer(free, free) * Lambda)
