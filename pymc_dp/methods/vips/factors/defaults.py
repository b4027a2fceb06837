"""Tuned constants of factor models."""

from typing import NamedTuple


class Defaults(NamedTuple):
    """Public numbers, which options of the caller replace where there are any."""

    # Gaussian latents: all records, whose latents cost little
    releases: int = 20
    noiseless_releases: int = 100
    clip_norm: float = 2.5  # over the square root of psi's length: residuals near 1 times (z, 1)

    # binary latents: batches
    binary_releases: int = 40
    binary_sample_rate: float = 0.05
    binary_batch: int = 3000  # rows, where the number of records is public
    binary_clip_norm: float = 0.5  # residuals near 1/2
    sweeps: int = 8  # updates of a record's latents
    damping: float = 0.5  # share of a sweep's log odds in the new ones: all latents move at once

    # scales of the curvature and of the energy in a record's vector
    curvature_scale: float = 0.3
    energy_scale: float = 0.1

    # averages of released sums
    curvature_weight: float = 0.2  # least weight of the latest curvature
    energy_weight: float = 0.5  # and of the latest energy
    least: float = 1e-3  # eigenvalues of the curvature and energies of a record are at least this
    count_deviations: float = 2.0  # the count of records is at least this many of its noise's sd
    count_share: float = 0.05  # and at least this share of a declared number
    log_odds_share: float = 1e-4  # at least this share of the records has each value of a latent

    # steps fall like 1 / (1 + decay t) to the least one
    start_scale: float = 0.1  # of random loadings
    decay: float = 0.2
    least_step: float = 0.15
    negligible_noise: float = 0.02  # noise of a predictor below which steps stay whole
    tolerated_noise: float = 1.2  # and above which they shrink
    expansions: int = 10  # releases after which loadings are expanded; later ones settle
    largest_stretch: float = 3.0  # of a latent by one release: early moments are uncertain
    prior_rounds: int = 3  # over blocks that follow from others; the next release continues them


DEFAULTS = Defaults()
