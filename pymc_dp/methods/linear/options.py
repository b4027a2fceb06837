"""Options that methods for linear predictors share."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from pymc_dp.contributions.estimating import AVERAGED, Estimating
from pymc_dp.engine.method import RoundTerms, by_rounds, check_length, default_length
from pymc_dp.methods.method import OnRealLine
from pymc_dp.methods.options import NOISE_AWARE, BatchOptions, option
from pymc_dp.methods.private_start import FindStart


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

    def rounds_from(
        self, find_start: FindStart = lambda: None, estimating: Estimating = AVERAGED
    ) -> OnRealLine | None:
        """Return rounds in whitened coordinates, in the place of the method's own updates.

        By default there are some. Own updates are the reference without noise, and reproduce
        papers: every option that only they have asks for them. Rounds begin where ``find_start``
        says, and ``estimating`` is what a record adds.
        """
        if not self.noise_aware or self.rules_out_rounds:
            return None
        return self._rounds(find_start, estimating)

    def rounds_without_noise(self, estimating: Estimating) -> OnRealLine | None:
        """Return rounds of a fit without noise, which has none by default."""
        if self.noisy or self.rules_out_rounds:
            return None
        return self._rounds(lambda: None, estimating)

    def _rounds(self, find_start: FindStart, estimating: Estimating) -> OnRealLine:
        n = default_length(self.noisy) if self.n is None else check_length(self.n)
        terms = RoundTerms.of(self, n)
        return by_rounds(terms._replace(estimating=estimating), find_start)

    @abstractmethod
    def rate(self, t: int) -> float:
        """Weight of release t = 0, 1, ... in the averages of sums."""
