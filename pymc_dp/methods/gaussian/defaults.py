"""Tuned constants of rounds in whitened coordinates."""

from typing import NamedTuple


class Defaults(NamedTuple):
    """Tuned constants of whitened rounds; none of them is fitted to data."""

    # the least and the most share of the budget that the first release has. Between them it brings
    # the noise on counts to a share of the records; if their number is not declared, of so many
    scales_share: tuple[float, float] = (0.04, 0.2)
    noise_of_scales: float = 0.03
    undeclared_number: int = 5000
    # shares of the budget of each round's curvature and score. The first rounds go to a mode that
    # is far away: they need to be many, and not exact
    curvature_shares: tuple[float, ...] = (
        *(0.01, 0.01, 0.015, 0.03, 0.03, 0.04),
        *(0.05, 0.05, 0.06, 0.06, 0.04, 0.02, 0.01),
    )
    score_shares: tuple[float, ...] = (
        *(0.004, 0.004, 0.006, 0.01, 0.01, 0.015),
        *(0.02, 0.03, 0.04, 0.06, 0.09, 0.15, 0.2),
    )
    # the size of the test of whether outcomes are distributed as the model says
    size_of_test: float = 1e-3
    # groups of an array shift together in so many of the first rounds, if there are at most so many
    # shifts for each latent; these rounds have the shares of the first so many
    shift_rounds: int = 7
    most_shifts: float = 0.5
    shares_of_shifts: int = 3
    # the relative standard deviation of what a group's curvature is taken to be beforehand, and of
    # how many numbers least squares find a curvature that is 0 between groups
    doubt_of_shares: float = 0.5
    most_free_entries: int = 2500
    # the relative standard deviation of the size of the curvature of shifts, which is taken to be 1
    # beforehand, and the least that it may be
    doubt_of_size: float = 0.3
    least_size: float = 0.1
    # the least share of the curvature of groups that are alike which is left where they are not,
    # and of its diagonal that a latent has for itself, beside factors
    least_of_model: float = 0.01
    # for more latents groups are not looked for: it takes that many made-up records
    most_with_shifts: int = 3000
    # counts of a bin, or of three together, above so many standard deviations of their noise are of
    # records: of a hundred latents that noise hides one is taken to be seen in 1 of 80,000 fits.
    # Chains have not mixed where correlations are above so many of those by chance
    visible_count: float = 6.0
    # norm bounds in whitened coordinates grow with this share of the records over the noise: for
    # curvatures, over the number of latents, from a least one, and for scores, over its root, in a
    # range
    norm_over_noise: float = 0.2
    least_curvature_norm: float = 1.5
    score_range: tuple[float, float] = (1.6, 5.0)
    # eigenvalues of the curvature that noise hides become this share of the noise's edge: on
    # average, and as a least value in the coordinates of the next round
    floor_on_average: float = 0.15
    floor_in_coordinates: float = 0.7
    # a curvature of a diagonal and a few factors: the fewest latents, and the fewest where it is
    # the same at all points; and steps of its fit
    fewest_with_factors: int = 20
    fewest_if_constant: int = 8
    factor_steps: int = 12
    # how far beyond the noise's edge is what departs from a model of groups
    visible_departure: float = 1.15
    # how much the curvature changes over one whitened unit; and the precision of a method's own
    # posterior from one release of it to the next
    nonlinearity: float = 0.5
    # a latent's curvature is known where it is so many standard deviations of its noise; a model of
    # many latents is so far above the edge of its noise
    visible_scale: float = 3.0
    # what differs by more than so many standard deviations of its noise is taken to differ, and so
    # many are added to a share that is not to be too low; curvatures of so many edges of noise are
    # none
    sure: float = 2.0
    # how far eigenvalues of the curvature are from what independent latents would have, at first:
    # where all latents are correlated, one eigenvalue has a share of the sum of them all
    correlation: float = 3.0
    correlation_by_latent: float = 0.3
    # units of steps are at most one sd of the prior, and so many of latents that are nearly the
    # same
    prior_sds_together: float = 5.0
    # so many times as precise as the records is as good as fixed: latents of the shape of outcomes
    # while the location is far, and those that the prior fixes. So many times less precise is as
    # good as hidden: what a round does not say
    fixed_precision: float = 1e6
    # the mode is far away where the slope is so many whitened units and standard deviations of its
    # noise long (for the scale of outcomes the latter is enough), and where a step has left it as
    # long as this share of what it was
    far: float = 0.3
    far_in_noise: float = 4.0
    still_as_long: float = 0.8
    # the longest doubled step, in units: the coordinates follow it
    longest_doubled: float = 1.25
    # latents whose variance the others inflate at most so many times are limited, and rescaled, one
    # by one
    most_inflation: float = 5.0
    # the relative standard deviation of curvatures that a model expects
    doubt_of_model: float = 0.15
    # the share of the budget that is left to these curvatures of what others have
    share_if_expected: float = 0.2
    # how far the logarithm of the squared scale of outcomes may be expected to move in a round, as
    # a standard deviation; of the curvature in it, clipping leaves this share at least, and no
    # outcome is clipped where it is to fall by more than this share
    longest_scale_step: float = 1.2
    least_scale_curvature: float = 0.5
    short_residuals: float = 0.3
    # the relative standard deviation of what residuals are believed to owe to the location, beside
    # that of its error
    doubt_of_location: float = 0.5
    # the posterior's mean is at most so many times as far from the start as its mode; and the mode
    # as a round's point, where the curvature along the path to it is averaged
    longest_beyond: float = 2.0
    # every so many rounds release the precision of a method's own posterior in place of the slope
    rounds_of_precision: int = 5
    # what ends by itself is computed anew at most so often: the distance to the mode, the curvature
    # along the next steps, and Newton's steps of the prior before the first release
    most_iterations: int = 100
    # the belief about the mode starts this many times as wide as the prior, in variance; and
    # once as wide as a normal prior in place of the model's, which is as many times wider already:
    # that of groups has their average spread, and draws with a larger one would be pulled to its
    # mean
    start_width: float = 4.0
    # the precision of priors without an end, as a share of what one record says of a latent; as a
    # number where that is more than 1, or not known. Also the least eigenvalue of the precision of
    # all latents, in units of their own, and the least sd of a drawn prior; one over it is the most
    least_prior_precision: float = 1e-10
    # the least share that clipping is taken to leave of the variance of scores, and of their
    # curvature; and that one direction has of the ratio of both, on average, of weighted scores
    least_left: float = 0.4
    # how much of the earlier rounds' weight stays in the average of the variance of scores over
    # their curvature; what is expected of that share: 1 less so many times the mean squared length
    # of scores over that which they are clipped to, with this standard deviation
    kept_share: float = 0.25
    clipped_variance: float = 0.36
    variance_sd: float = 0.08
    # the curvature loses so many times as much as that share
    clipped_curvature: float = 1.5
    # draws of a prior that has latents behind latents, and four more for each coordinate; they are
    # cut off so many median deviations from the middle
    prior_draws: int = 500
    tail: float = 8.0
    # the least eigenvalue of a covariance or a curvature that is estimated from draws, and the
    # least curvature of a group, as shares of what they are on average; and the variance of
    # weighted scores, as a share of their curvature
    least_share: float = 1e-6
    # Hamiltonian Monte Carlo: the number of chains, the trajectories of the phases that warm it up,
    # how many times as many there are at first, and if chains are still near where they began (one
    # of them is kept of so many), the most leapfrog steps of a trajectory, the size of the first
    # steps, how fast sizes follow the rate of acceptance, and the rate that they seek
    chains: int = 100
    warm_up: tuple[int, ...] = (5, 10, 15)
    lengths: tuple[int, ...] = (1, 4)
    most_steps: int = 9
    first_step: float = 0.3
    step_rate: float = 0.2
    accepted: float = 0.8
    # the share of the budget of rounds that follow gradient steps
    share_after_steps: float = 0.8


DEFAULTS = Defaults()
