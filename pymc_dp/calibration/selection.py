"""The noise with which a private selection among settings keeps to a budget."""

from collections.abc import Sequence

import numpy as np

from pymc_dp.accounting.accountants import RDP_DP_ACCOUNTING
from pymc_dp.accounting.plan import Plan
from pymc_dp.accounting.renyi import epsilon_of_renyi
from pymc_dp.accounting.selection import SEARCH, Asked, Selection, best_of_runs
from pymc_dp.calibration.noise_search import least_noise, smallest_noise


def calibrate_selection(asked: Asked, runs: float, epsilon: float) -> Selection:
    """Find each setting's noise, so that the whole selection costs at most ``epsilon``.

    Every setting is brought to the target alone; one more factor for all covers what their
    divergences, each the largest at other orders, cost together.
    """
    alone = [_noise([one], [1.0], runs, epsilon) for one in asked]
    factor = max(1.0, _noise(asked, alone, runs, epsilon))
    return Selection(_granted(asked, alone, factor), runs)


def _granted(asked: Asked, noise: Sequence[float], factor: float) -> tuple[Plan, ...]:
    each = zip(asked, noise, strict=True)
    return tuple(terms.granting(specs, factor * own) for (terms, specs), own in each)


def _noise(asked: Asked, noise: Sequence[float], runs: float, epsilon: float) -> float:
    """Find the factor on the noise of all settings with which their selection is affordable."""
    delta = asked[0][0].delta

    def epsilon_at(factor: float) -> float:
        plans = _granted(asked, noise, factor)
        one_run = np.max([RDP_DP_ACCOUNTING.divergences(plan, SEARCH) for plan in plans], axis=0)
        return epsilon_of_renyi(SEARCH, best_of_runs(np.array(SEARCH), one_run, runs), delta)

    each = zip(asked, noise, strict=True)
    return smallest_noise(epsilon_at, epsilon, max(least_noise(*one) / own for one, own in each))
