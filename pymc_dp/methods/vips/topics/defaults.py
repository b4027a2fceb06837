"""Tuned constants of topic models."""

from typing import NamedTuple


class Schedule(NamedTuple):
    """How a budget is spent."""

    sample_rate: float
    releases: int  # how often counts by topic are released
    totals_share: float  # of the budget, for the words' totals
    kappa: float  # releases are averaged with steps (tau0 + t)^-kappa


class Defaults(NamedTuple):
    """Public numbers, which options of the caller replace where there are any."""

    # half the typical norm of a document's counts: only the proportions of words matter
    clip_norm: float = 7.0
    iterations: int = 20  # steps that fit the shares of a document's topics
    all_records: Schedule = Schedule(1.0, 20, 0.3, 0.85)
    batches: Schedule = Schedule(0.1, 50, 0.2, 0.7)
    many_records: int = 20_000  # public number of records from which batches are the default

    # gamma variables that set the topics apart at the start
    start_shape: float = 10.0
    absolute_start_shape: float = 100.0  # Hoffman et al. (2010), for the absolute form
    absolute_start_scale: float = 0.01

    # deconvolution of the words' totals, in standard deviations of their noise
    certain: float = 8.0  # totals above this are taken as they are
    grid: tuple[float, float, int] = (0.02, 10.0, 60)  # means of the others: least, largest, count
    grid_steps: int = 100  # EM steps for the weights of the grid
    least_mean: float = 1e-3

    # shrinkage of topics towards the words' overall frequencies
    frequent_share: float = 0.05  # of the vocabulary: sums over frequent words have little noise
    fewest_frequent: int = 50
    least_share: float = 1e-3  # of a topic among frequent words, times the number of topics
    least_ratio: float = 0.02  # of a topic's count to the overall frequency
    least_variance: float = 1e-3  # of these ratios


DEFAULTS = Defaults()
