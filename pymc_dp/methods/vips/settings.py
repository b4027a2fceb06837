"""The options of `vips`, and the releases that follow from them."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from pymc_dp.methods.linear.regression import LinearOptions
from pymc_dp.methods.options import option


class Defaults(NamedTuple):
    """Tuned constants of VIPS; public numbers."""

    # how fast released sums are averaged, where a class of models has no default of its own
    kappa: float = 0.7


DEFAULTS = Defaults()


@dataclass(frozen=True, kw_only=True)
class Settings(LinearOptions):
    """The options of `vips`; None stands for the default of the model's class."""

    released = "statistics"

    form: str | None = option(
        None,
        "``residual``, ``absolute`` or ``paper`` for linear predictors, ``shrunk`` or ``absolute`` "
        "for topics",
    )
    iterations: int | None = option(
        None, "updates of the latents of single records before a release"
    )
    tau0: float = option(1.0, "released sums are averaged with steps (tau0 + t)^-kappa")
    kappa: float | None = option(None, "see ``tau0``")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.tau0 < math.inf:
            raise ValueError(f"tau0={self.tau0!r} must be finite and at least 1.")
        if self.kappa is not None and not 0 <= self.kappa <= 1:
            raise ValueError(f"kappa={self.kappa!r} must lie between 0 and 1.")

    def rate(self, t: int) -> float:
        """Step size rho_t = (tau0 + t)^-kappa of release t = 0, 1, ...; the first is at most 1."""
        kappa = DEFAULTS.kappa if self.kappa is None else self.kappa
        return min(1.0, float((self.tau0 + t) ** -kappa))
