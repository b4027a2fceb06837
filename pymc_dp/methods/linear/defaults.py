"""Tuned constants of the Gaussian posteriors of linear predictors."""

from typing import NamedTuple


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    releases: int = 10
    noiseless_releases: int = 100  # without noise, more steps have no cost
    # the first clip norm, in typical lengths of a score, and its range
    first_clip: float = 1.2
    first_clip_range: tuple[float, float] = (1.0, 10.0)
    # later clip norms, in typical lengths: the least if noise alone counts, the least if noise is
    # accounted for and bias is not, and the largest
    least_clip: float = 1.5
    noise_aware_clip: float = 2.2
    largest_clip: float = 10.0
    # noise of the mean, in posterior standard deviations, that may come from clip norms up to
    # ``noise_aware_clip``, and from larger ones
    noise_of_aware_clip: float = 0.55
    noise_of_larger_clip: float = 0.2
    # the least share of the curvature in a record's vector, where clip norms are loose
    curvature_share: float = 0.5
    # shares of the clip norm that the energies of residuals and their coefficients take, and of the
    # typical length that the count takes
    energy_share: float = 0.3
    shape_share: float = 0.15
    count_share: float = 0.1
    # weights of energies in their average grow like this power of a release's number
    energy_power: int = 4
    # share of the records whose energies are cut off, where the model is right
    clipped_energies: float = 0.05
    least_shape: float = 0.25  # coefficients below this are taken as it: half a Normal outcome's
    # how far the first release may move the public guess of a length, and the standard deviations
    # of noise that its interval has on each side
    largest_change: float = 10.0
    interval: float = 2.0
    first_step: float = 1.0
    # eigenvalues of a curvature below this share of the noise's edge are raised to it
    step_floor: float = 0.5
    # rounds of updates over precisions and the Gaussian latents; they read no data
    rounds: int = 30
    # where a likelihood is no parabola, a step moves the latents by at most this many prior
    # standard deviations, as a root mean square
    trust_radius: float = 1.0


DEFAULTS = Defaults()
