"""What a caller may choose about a DP-SEP fit, and the releases that follow from it."""

import math
from typing import NamedTuple

from pymc_dp.methods.settings import check_numbers, one_release
from pymc_dp.release import Release

# lambda <- (1 - h) lambda + h (sum of sites)
STEP = 0.7


class Settings(NamedTuple):
    """The options of `dp_sep`; None stands for the default of the model's kind.

    Attributes
    ----------
    sampling, num_records, noise, n, clip_norm, sample_rate, form, noise_aware, step,
    feature_bound
        As in `pymc_dp.methods.sep.sep.dp_sep`.
    """

    sampling: str
    num_records: int | None
    noise: float
    n: int | None
    clip_norm: float | None
    sample_rate: float | None
    form: str | None
    noise_aware: bool
    step: float | None = None
    feature_bound: float = math.inf

    def rate(self, t: int) -> float:
        """Weight of the sites of release t = 0, 1, ... in lambda; the first replaces the start."""
        return 1.0 if t == 0 else (STEP if self.step is None else self.step)

    def as_release(self, count: int, clip_norm: float, sample_rate: float = 1.0) -> Release:
        """Describe the releases of one fit, given what its kind of model takes by default."""
        return one_release("sites", self, count, clip_norm, sample_rate)


def check(settings: Settings) -> None:
    """Refuse options outside their range.

    Raises
    ------
    ValueError
        With the option's name.
    """
    check_numbers(settings, ("feature_bound",), ("clip_norm", "sample_rate", "step"))
    # gamma of Algorithm 3 is divided by the number of records
    literal = settings.form == "algorithm3"
    longest = (settings.num_records or math.inf) if literal else 1
    if settings.step is not None and not 0 < settings.step <= longest:
        raise ValueError(f"step={settings.step!r} must lie above 0, and be at most {longest}.")
    if settings.clip_norm is not None and math.isnan(settings.clip_norm):
        raise ValueError("clip_norm=nan is no bound.")
