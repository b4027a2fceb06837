"""The options of `dp_sep` and `sep`, and the releases that follow from them."""

import math
from dataclasses import dataclass

from pymc_dp.methods.linear.regression import LinearOptions
from pymc_dp.methods.options import SAMPLE_RATE, Options, option
from pymc_dp.methods.sep.regression.defaults import DEFAULTS

STEP_DOC = "damping h in ``lambda <- (1 - h) lambda + h (sum of sites)``"


@dataclass(frozen=True, kw_only=True)
class Settings(LinearOptions):
    """The options of `dp_sep`; None stands for the default of the model's class."""

    released = "sites"

    form: str | None = option(None, "``damped``, or the paper's ``algorithm3`` for reproduction")
    step: float | None = option(None, STEP_DOC)

    def __post_init__(self) -> None:
        super().__post_init__()
        # gamma of Algorithm 3 is divided by the number of records
        literal = self.form == "algorithm3"
        longest = (self.num_records or math.inf) if literal else 1
        if self.step is not None and not 0 < self.step <= longest:
            raise ValueError(f"step={self.step!r} must lie above 0, and be at most {longest}.")
        if self.clip_norm is not None and math.isnan(self.clip_norm):
            raise ValueError("clip_norm=nan is no bound.")

    def rate(self, t: int) -> float:
        """Weight of the sites of release t = 0, 1, ... in lambda; the first replaces the start."""
        return 1.0 if t == 0 else (DEFAULTS.step if self.step is None else self.step)


@dataclass(frozen=True, kw_only=True)
class PlainSettings(Options):
    """The options of `sep`, which neither clips nor adds noise."""

    sample_rate: float | None = option(None, SAMPLE_RATE)
    step: float | None = option(None, STEP_DOC)
