"""What a caller may choose about a VIPS fit, and the release that follows from it."""

import math
from typing import NamedTuple

from pymc_dp.methods.settings import check_numbers, one_release
from pymc_dp.release import Release, check_count

# how fast released sums are averaged, where a kind of model has no default of its own
KAPPA = 0.7
# numbers that may be None
OPTIONAL = ("clip_norm", "sample_rate", "kappa")


class Settings(NamedTuple):
    """The options of `vips`; None stands for the default of the model's kind.

    Attributes
    ----------
    sampling, num_records, noise, n, clip_norm, sample_rate, form, noise_aware, iterations,
    feature_bound, tau0, kappa
        As in `pymc_dp.methods.vips.vips`.
    """

    sampling: str
    num_records: int | None
    noise: float
    n: int | None
    clip_norm: float | None
    sample_rate: float | None
    form: str | None
    noise_aware: bool
    iterations: int | None = None
    feature_bound: float = math.inf
    tau0: float = 1.0
    kappa: float | None = None

    def rate(self, t: int) -> float:
        """Step size rho_t = (tau0 + t)^-kappa of release t = 0, 1, ...; the first is at most 1."""
        kappa = KAPPA if self.kappa is None else self.kappa
        return min(1.0, (self.tau0 + t) ** -kappa)

    def as_release(self, count: int, clip_norm: float, sample_rate: float = 1.0) -> Release:
        """Describe the releases of one fit, given what its kind of model takes by default."""
        return one_release("statistics", self, count, clip_norm, sample_rate)


def check(settings: Settings) -> None:
    """Refuse options outside their range.

    Raises
    ------
    ValueError
        With the option's name.
    """
    if settings.iterations is not None:
        check_count("iterations", settings.iterations)
    check_numbers(settings, ("feature_bound", "tau0"), OPTIONAL)
    if not 1 <= settings.tau0 < math.inf:
        raise ValueError(f"tau0={settings.tau0!r} must be finite and at least 1.")
    if settings.kappa is not None and not 0 <= settings.kappa <= 1:
        raise ValueError(f"kappa={settings.kappa!r} must lie between 0 and 1.")
