"""What one release is: a noisy sum, or something else that a method accounts for by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from pymc_dp.accounting.release import Release


class Mechanism(NamedTuple):
    """One mechanism; its noise is over the sensitivity of what it releases."""

    name: str
    event: Callable[[float], DpEvent]  # noise -> one release, as dp-accounting describes it
    # noise -> epsilon of one release without a delta; infinite where there is none
    pure_epsilon: Callable[[float], float]
    # release -> what a result says of it in place of sums and noise
    about: Callable[[Release], dict[str, Any]]


def _gaussian_event(noise: float) -> DpEvent:
    import dp_accounting as dp

    return dp.GaussianDpEvent(noise)


# a sum of clipped contributions plus Gaussian noise: the one mechanism with a proof. A plan that
# holds another claims no epsilon
GAUSSIAN = Mechanism("gaussian", _gaussian_event, lambda noise: math.inf, lambda release: {})
