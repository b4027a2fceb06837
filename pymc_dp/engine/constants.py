"""The tuned constants of rounds, each with its unit and its reason; none is fitted to data."""

from typing import NamedTuple


class Constants(NamedTuple):
    """Tuned constants of rounds. docs/ablation.md says what a fit loses with other values."""

    # rounds of scores after the release of scales; without noise there are twice as many
    rounds: int = 13
    # the budget of a round over that of the one before: each lands within the noise of the next
    growth: float = 1.2
    # share of the budget of the release of scales: they are found to a factor of about two
    share_of_scales: float = 0.05
    # share of the budget of rounds that follow gradient steps
    share_after_steps: float = 0.8
    # the least clip norm, over sqrt(d): Huber's estimate has 95% efficiency at 1.35
    clip: float = 1.6
    # share of the squared norm of scores that scores of the dispersion of outcomes have
    dispersion_share: float = 0.2
    # records are weighed down from a squared score of this times the number d of latents on; from
    # a larger one, where the noise on eigenvalues of the curvature still is below ``steady`` of
    # them: weights bias where the model is wrong
    leverage: float = 2.0
    steady: float = 0.05
    # bits: sd of the logarithms of latents' scales before any release; and the least precision,
    # in latents, of the priors that scales are relative to
    scale_bits: float = 2.0
    least_root_precision: float = 1e-3
    # relative change of a curvature over one white unit: logistic .3, Poisson and scales 1
    bend: float = 1.0
    # white units: counts of lengths farther from the mode say nothing of outcomes
    near: float = 0.3
    # the least share that clipping is taken to leave of curvatures
    least_kept: float = 0.4
    # the least share that residuals fall to in one step of the scale of outcomes
    least_fall: float = 0.1
    # every so many rounds release the precision of a method's own posterior
    rounds_of_precision: int = 4
    # size of the test of whether outcomes are distributed as the model says
    size_of_test: float = 1e-3
    # relative noise on eigenvalues of the curvature from which on scores correct it and the fit
    # says so, and the share of a prior's sd that hidden directions may have without a warning
    hidden: float = 1.0
    most_of_prior: float = 0.3
    # the share of a curvature that is left over three rounds below which the fit says so:
    # most right fits keep .35 and more in every direction, and ridges fall to .1
    settled: float = 0.25
    # the variance of the rounds' normal prior over that of draws of a prior that is not normal, how
    # many draws there are, and the precision of a flat prior
    prior_width: float = 4.0
    prior_draws: int = 500
    flat_precision: float = 1e-20
    # the most latents that are drawn by importance sampling; of more, Markov chains: their number,
    # and how many of their leapfrog steps are accepted
    importance_latents: int = 8
    chains: int = 100
    accepted: float = 0.8


CONSTANTS = Constants()
