"""What one release is: a noisy sum, or a draw from a tempered posterior."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class Mechanism(ABC):
    """One mechanism; its noise is over the sensitivity of what it releases."""

    name: ClassVar[str]

    @abstractmethod
    def event(self, noise: float) -> DpEvent:
        """Describe one release to dp-accounting."""

    @abstractmethod
    def pure_epsilon(self, noise: float) -> float:
        """Epsilon of one release without a delta; infinite where there is none."""


class Gaussian(Mechanism):
    """A sum of clipped contributions plus Gaussian noise."""

    name = "gaussian"

    def event(self, noise: float) -> DpEvent:
        """Describe one release to dp-accounting."""
        import dp_accounting as dp

        return dp.GaussianDpEvent(noise)

    def pure_epsilon(self, noise: float) -> float:
        """There is none."""
        return math.inf


class Exponential(Mechanism):
    """A draw from the posterior whose log likelihoods, clipped, are divided by a temperature.

    **Privacy.** Private without delta (McSherry and Talwar 2007), as far as its draws are exact: a
    record moves density and normaliser by ``clip_norm / temperature`` each in log, and by twice
    that under replace-one.
    """

    name = "exponential"

    def event(self, noise: float) -> DpEvent:
        """Describe one release: no pure mechanism says more than randomised response."""
        import dp_accounting as dp

        share = 2 / (1 + math.exp(min(self.pure_epsilon(noise), 700.0)))
        return dp.RandomizedResponseDpEvent(share, 2)

    def pure_epsilon(self, noise: float) -> float:
        """Epsilon of one exact draw.

        >>> Exponential().pure_epsilon(2.0)
        1.0
        """
        return 2 / noise if noise else math.inf


GAUSSIAN, EXPONENTIAL = Gaussian(), Exponential()
MECHANISMS: dict[str, Mechanism] = {each.name: each for each in (GAUSSIAN, EXPONENTIAL)}
