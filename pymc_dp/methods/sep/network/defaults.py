"""Tuned constants of stochastic expectation propagation for networks."""

from typing import NamedTuple


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    releases: int = 400
    noiseless_releases: int = 1000
    # records in a batch, and the range of sample rates that follows where their number is declared
    batch: int = 500
    sample_rate: float = 0.05
    sample_rate_range: tuple[float, float] = (0.02, 0.5)
    clip_norm: float = 0.5  # clip norm over the typical norm of a score
    # shares of the clip norm
    score_share: float = 0.85
    precision_share: float = 0.4
    noise_share: float = 0.3
    number_share: float = 0.1
    # longest precisions and noise sites of a record, in typical ones
    longest_precision: float = 2.0
    longest_noise: float = 4.5
    # probe records that are measured, and the cavity's standard deviation then, in weights' scales
    probes: int = 200
    start_sd: float = 0.1
    nodes: int = 10  # Gauss-Legendre nodes of the integral behind the variance of Phi(x)
    least_tilted: float = 0.1  # a tilted variance is at least this share of the cavity's
    # a record makes the rate of the noise precision at most this many times as large
    longest_rate: float = 1e6
    # the longest step, also where clipping shortens the scores, and its share at the end of a fit
    step: float = 1.0
    clipped_step: float = 3.0
    last_step: float = 0.1
    # the noise of all steps together moves weights by about this many of their scales
    noise_walk: float = 2.5
    # one step moves them by at most this many, as a root mean square: a fit that crosses a steep
    # direction must not throw its units where none of them is active
    trust_radius: float = 0.2
    # scores are averaged over this share of the releases, at least over so many: the longer, the
    # steeper a direction may be, as one along which many features move together
    memory: float = 1 / 30
    shortest_memory: int = 10
    # weight of a release in the averages of sites; that of the noise precision's sites is smaller
    # if the share of noise in their average would exceed ``noise_in_average``
    averaging: float = 0.05
    noise_in_average: float = 0.2
    # shares of the records that inform every weight at least: in the cavity, and in steps
    least_share: float = 0.1
    least_share_in_steps: float = 0.3
    nominal_records: int = 1000  # number of records where it is neither released nor declared
    # range of the shape of a record's site, near 1/2, in their noisy sum
    shape_range: tuple[float, float] = (0.4, 0.5)
    least_shape: float = 2.5  # least shape of the cavity of the noise precision


DEFAULTS = Defaults()
