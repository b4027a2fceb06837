"""What it costs to run fits of several settings and to keep the best one.

The number of runs is drawn from a fixed law and stays secret, as do the losers (Papernot and
Steinke 2022). Then the cost grows with the logarithm of the mean number of runs.
"""

import functools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from pymc_dp.accounting.accountants import ORDERS, divergences, epsilon_of_renyi
from pymc_dp.accounting.plan import Plan, ReleaseSpec

# the terms of every setting, and what its method asks for
Asked = Sequence[tuple[Plan, Sequence[ReleaseSpec]]]
# Shape of the truncated negative binomial law. At the same chance to try the best of 20 settings
# (one half), 1 costs 8% more epsilon; 0 costs 5% less, but takes 2.6 times as many runs, most of
# them in rare draws that run very long; a Poisson number costs 27% more and may be none.
ETA = 0.5
# Orders that are quick to compute. All orders together find no larger epsilon than these.
SEARCH = tuple(order for order in ORDERS if order in range(2, 12) or order % 4 == 0)


@dataclass(frozen=True)
class Selection:
    """The best of several runs, each with a setting drawn at random.

    **Privacy.** One run is a mixture over a public index, so that its Rényi divergence is at most
    the largest of the settings' at every order. The best of K runs costs as in theorem 2 of
    Papernot and Steinke (2022), with K from a negative binomial law of shape `ETA` without zero.

    >>> from pymc_dp.accounting.accountants import RDP_DP_ACCOUNTING
    >>> from pymc_dp.accounting.plan import Neighbours
    >>> from pymc_dp.sampling.samplers import Poisson
    >>> terms = Plan((), Neighbours.ADD_REMOVE, 1e-5, RDP_DP_ACCOUNTING)
    >>> plan = terms.granting([ReleaseSpec("score", Poisson(0.1), 1.0, count=200)], 10.0)
    >>> round(plan.epsilon(), 2), round(Selection((plan,), runs=20.0).epsilon(), 2)
    (0.55, 1.21)
    """

    plans: tuple[Plan, ...]  # one for every setting, the score's release included
    runs: float  # the mean number of runs, above 1
    chosen: int = 0  # the setting that won, on which the cost does not depend

    @property
    def plan(self) -> Plan:
        """The winner's plan."""
        return self.plans[self.chosen]

    @property
    def delta(self) -> float:
        """That of every plan."""
        return self.plan.delta

    @property
    def rho(self) -> float | None:
        """What it costs in zero-concentrated DP: nothing useful is known."""
        return None

    def renyi(self, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
        """Return the Rényi divergence of the whole selection at each order."""
        every = tuple(sorted({*ORDERS, *orders}))
        one_run = np.max([divergences(plan, every) for plan in self.plans], axis=0)
        found = dict(zip(every, best_of_runs(np.array(every), one_run, self.runs), strict=True))
        return np.array([found[order] for order in orders])

    def epsilon(self, delta: float | None = None) -> float:
        """Return what the whole selection costs at one delta, the plans' own by default."""
        return float(self.epsilon_profile([self.delta if delta is None else delta])[0])

    def epsilon_profile(self, deltas: Iterable[float]) -> np.ndarray:
        """Return what the whole selection costs at each of several deltas."""
        for delta in deltas:
            self.plan.accountant.check_delta(delta)
        of_selection = self.renyi()
        return np.array([epsilon_of_renyi(ORDERS, of_selection, delta) for delta in deltas])

    def prefix(self, k: int) -> "Selection":
        """Return the selection itself: it is paid for as a whole, with its first release."""
        return self

    def to_json(self) -> str:
        """Write the law of the number of runs and every setting's plan as a JSON string."""
        law = {"eta": ETA, "gamma": halting(self.runs), "mean": self.runs}
        plans = [json.loads(plan.to_json()) for plan in self.plans]
        return json.dumps({"selection": law, "plans": plans, "chosen": self.chosen})


def best_of_runs(orders: np.ndarray, one_run: np.ndarray, runs: float) -> np.ndarray:
    """Return the Rényi divergences of the best of a secret number of runs.

    Source: theorem 2 of Papernot and Steinke (2022), at its best second order; a divergence never
    falls with the order.
    """
    gamma = halting(runs)
    extra = (1 + ETA) * np.min((1 - 1 / orders) * one_run - math.log(gamma) / orders)
    found = one_run + extra + math.log(_mean_runs(gamma)) / (orders - 1)
    return np.minimum.accumulate(found[::-1])[::-1]


@functools.cache
def halting(runs: float) -> float:
    """Return the law's gamma for a mean number of runs (definition 1 of the same paper).

    >>> round(halting(20.0), 4)
    0.0293
    """
    return math.exp(brentq(lambda x: _mean_runs(math.exp(x)) - runs, -60.0, -1e-9, xtol=1e-13))


def _mean_runs(gamma: float) -> float:
    return float(ETA * (1 / gamma - 1) / (1 - gamma**ETA))


def draw_runs(runs: float, rng: np.random.Generator) -> int:
    """Draw the number of runs: negative binomial, drawn anew while it is zero."""
    while not (count := int(rng.negative_binomial(ETA, halting(runs)))):
        pass
    return count
