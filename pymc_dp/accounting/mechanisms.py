"""What one release is: a noisy sum, or a draw from a tempered posterior."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dp_accounting import DpEvent


class Mechanism(NamedTuple):
    """One mechanism; its noise is over the sensitivity of what it releases."""

    name: str
    event: Callable[[float], DpEvent]  # noise -> one release, as dp-accounting describes it
    # noise -> epsilon of one release without a delta; infinite where there is none
    pure_epsilon: Callable[[float], float]


def _gaussian_event(noise: float) -> DpEvent:
    import dp_accounting as dp

    return dp.GaussianDpEvent(noise)


def _no_pure_epsilon(noise: float) -> float:
    return math.inf


def exact_draw(noise: float) -> float:
    """Epsilon of one exact draw from a posterior of clipped, tempered log likelihoods.

    **Privacy.** Private without delta (McSherry and Talwar 2007), as far as its draws are exact: a
    record moves density and normaliser by ``clip_norm / temperature`` each in log, and by twice
    that under replace-one.

    >>> exact_draw(2.0)
    1.0
    """
    return 2 / noise if noise else math.inf


def _draw_event(noise: float) -> DpEvent:
    """Describe one release: no pure mechanism says more than randomised response."""
    import dp_accounting as dp

    share = 2 / (1 + math.exp(min(exact_draw(noise), 700.0)))
    return dp.RandomizedResponseDpEvent(share, 2)


# a sum of clipped contributions plus Gaussian noise
GAUSSIAN = Mechanism("gaussian", _gaussian_event, _no_pure_epsilon)
EXPONENTIAL = Mechanism("exponential", _draw_event, exact_draw)
MECHANISMS: dict[str, Mechanism] = {each.name: each for each in (GAUSSIAN, EXPONENTIAL)}
