"""Options that methods for linear predictors share."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from pymc_dp.methods.gaussian.schedule import ROUNDS, RoundCounts, check_length
from pymc_dp.methods.gaussian.whitened import by_rounds
from pymc_dp.methods.method import OnRealLine
from pymc_dp.methods.options import NOISE_AWARE, BatchOptions, option


@dataclass(frozen=True, kw_only=True)
class LinearOptions(BatchOptions, ABC):
    """The options of a method that fits linear predictors; None stands for its default."""

    noise_aware: bool = option(True, NOISE_AWARE)
    feature_bound: float = option(
        math.inf, "public bound on the norm of a record's features; longer ones are shortened to it"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.feature_bound > 0:
            raise ValueError(f"feature_bound={self.feature_bound!r} must be above 0.")

    @property
    def rounds(self) -> OnRealLine | None:
        """Rounds in whitened coordinates, in the place of the method's own updates.

        By default there are some. Own updates are the reference without noise, and reproduce
        papers: every option that only they have asks for them.
        """
        if not self.noise_aware or self.rules_out_rounds:
            return None
        n = ROUNDS + 1 if self.n is None else check_length(self.n)
        return by_rounds(self.num_records, RoundCounts.of(n, shifts=True))

    @abstractmethod
    def rate(self, t: int) -> float:
        """Weight of release t = 0, 1, ... in the averages of sums."""
