"""What the releases of a plan, or a search among plans, cost, and what there is a proof for.

First epsilon from the distribution of the privacy loss itself; then Rényi divergences, which add
up, and the epsilon that they mean; the accountants that a caller can name; last, a search.

``"pld"``
    Privacy loss distributions (dp-accounting): the tightest.
``"rdp"``
    Rényi divergences (autodp). Its routes through characteristic functions ("phi", AFA) are
    never taken: with today's SciPy they return a negative epsilon and no error.
``"rdp_dp_accounting"``
    Rényi divergences (dp-accounting), as a second opinion.
"""

import dataclasses
import functools
import json
import logging
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dp_accounting import get_epsilon_gaussian, rdp
from dp_accounting.pld import privacy_loss_distribution as losses
from scipy.optimize import brentq

from pymc_dp.accounting.plan import Accountant, Deltas, Full, Neighbours, Plan, Poisson, event_of

# The PLD accountant rounds privacy losses up to a grid; long plans need a finer one, and plans of
# many kinds of releases, each with a distribution of its own, would take minutes on it.
FINE_GRID, GRID, COARSE_GRID = 2e-5, 1e-4, 1e-3
LONG_PLAN, MANY_KINDS = 100_000, 16

SMALLEST_PLD_DELTA = 1e-10  # the PLD accountant understated epsilon at delta = 1e-13


def by_losses(sums: Plan, deltas: Deltas, grid: float | None = None) -> Sequence[float]:
    """Compose privacy loss distributions by dp-accounting; ``grid`` is the step of the losses."""
    if sums.all_full:
        noise = sum(r.count / sums.noise(r) ** 2 for r in sums.releases) ** -0.5
        return [get_epsilon_gaussian(noise, delta) for delta in deltas]
    if grid is None:
        grid = GRID if len(sums.releases) <= MANY_KINDS else COARSE_GRID
        grid = FINE_GRID if sums.total >= LONG_PLAN else grid
    loss = _loss(sums, grid)
    return [loss.get_epsilon_for_delta(delta) for delta in deltas]


# A result asks for it at its own delta and at others, and for that of the first releases.
@functools.lru_cache(maxsize=MANY_KINDS)
def _loss(sums: Plan, grid: float) -> Any:
    """Compose the privacy loss of all releases, as dp-accounting's own accountant does."""
    kinds = len(sums.releases)
    before = sums.releases[:-1] if kinds <= MANY_KINDS else ()
    total = losses.identity(grid)
    if before:
        total = _loss(dataclasses.replace(sums, releases=before), grid)
    of_one = _of_few_kinds if kinds <= MANY_KINDS else _of_many_kinds
    for release in sums.releases[len(before) :]:
        noise, rate, times = release.noise_multiplier, release.sampler.rate, release.count
        if rate == 1:  # the sum of Gaussian releases is one of them
            one = of_one(noise / math.sqrt(times), rate, sums.neighbours, grid)
        else:
            one = of_one(noise, rate, sums.neighbours, grid).self_compose(times)
        total = total.compose(one)
    return total


def _loss_of_one(noise: float, rate: float, neighbours: Neighbours, grid: float) -> Any:
    return losses.from_gaussian_mechanism(
        noise,
        value_discretization_interval=grid,
        sampling_prob=rate,
        neighboring_relation=neighbours.relation,
    )


# Of many kinds, for which the grid is coarse, a distribution is small.
_of_few_kinds = functools.lru_cache(maxsize=MANY_KINDS)(_loss_of_one)
_of_many_kinds = functools.lru_cache(maxsize=256)(_loss_of_one)


ORDERS = (
    *(order / 10 for order in range(11, 110)),
    *range(11, 64),
    *np.unique(np.geomspace(64, 2048, 31).round()),
)


def by_autodp(sums: Plan, deltas: Deltas) -> Sequence[float]:
    """Add up Rényi divergences by autodp."""
    path = sys.path.copy()
    from autodp import mechanism_zoo, transformer_zoo

    sys.path[:] = path  # autodp puts ".." on it
    amplify = transformer_zoo.AmplificationBySampling(PoissonSampling=True)
    compose = transformer_zoo.ComposeGaussian if sums.all_full else transformer_zoo.Composition
    # autodp searches over orders from an infinite value on, and raises floating-point noise.
    with np.errstate(all="ignore"):
        mechanisms = []
        for release in sums.releases:
            one, rate = mechanism_zoo.GaussianMechanism(sums.noise(release)), release.sampler.rate
            mechanisms.append(one if rate == 1 else amplify(one, rate, improved_bound_flag=True))
        whole = compose()(mechanisms, [release.count for release in sums.releases])
        return [whole.get_approxDP(delta) for delta in deltas]


def divergences(plan: Plan, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    """Return a plan's Rényi divergence at each order, shape (orders,); infinite without noise."""
    RDP_DP_ACCOUNTING.check(plan)
    if any(release.noise_multiplier == 0 for release in plan.releases):
        return np.full(len(orders), np.inf)
    found: np.ndarray = _rdp_accountant(plan.merged(), orders).rdp
    if not (found >= 0).all():
        raise ArithmeticError(
            f"dp-accounting returned Rényi divergences {found}, which cannot be: report this plan."
        )
    return found


def by_dp_accounting(sums: Plan, deltas: Deltas) -> Sequence[float]:
    """Add up Rényi divergences by dp-accounting."""
    accountant = _rdp_accountant(sums)
    return [accountant.get_epsilon(delta) for delta in deltas]


@functools.lru_cache(maxsize=128)
def _rdp_accountant(plan: Plan, orders: tuple[float, ...] = ORDERS) -> Any:
    accountant = rdp.RdpAccountant(orders, plan.neighbours.relation)
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)  # it would name every order that it leaves out, which is harmless
    try:
        return accountant.compose(event_of(plan, doubles=False))
    finally:
        log.setLevel(level)


def epsilon_of_renyi(
    orders: Sequence[float], divergences: Sequence[float] | np.ndarray, delta: float
) -> float:
    """Convert Rényi divergences to epsilon at one delta, by the best of the orders."""
    return float(rdp.compute_epsilon(orders, divergences, delta)[0])


# what there is a proof for
OF_LOSSES = frozenset((sampler, relation) for sampler in (Full, Poisson) for relation in Neighbours)
OF_RENYI = OF_LOSSES - {(Poisson, Neighbours.REPLACE_ONE)}

PLD = Accountant("pld", by_losses, OF_LOSSES, smallest_delta=SMALLEST_PLD_DELTA, doubles=True)
RDP = Accountant("rdp", by_autodp, OF_RENYI, package="autodp")
RDP_DP_ACCOUNTING = Accountant("rdp_dp_accounting", by_dp_accounting, OF_RENYI)
# what a caller's accountant= names, the tightest first
ACCOUNTANTS: dict[str, Accountant] = {each.name: each for each in (PLD, RDP_DP_ACCOUNTING, RDP)}


def accountant_named(name: str) -> Accountant:
    """Return the accountant that a caller's ``accountant=`` names."""
    if name not in ACCOUNTANTS:
        raise ValueError(f"accountant={name!r} is unknown: use one of {sorted(ACCOUNTANTS)}.")
    return ACCOUNTANTS[name]


# --- a search among settings ------------------------------------------------------------------

# Shape of the truncated negative binomial law. At the same chance to try the best of 20 settings
# (one half), 1 costs 8% more epsilon; 0 costs 5% less, but takes 2.6 times as many runs.
ETA = 0.5


@dataclass(frozen=True)
class Selection:
    """The best of several runs, each with a setting drawn at random.

    **Privacy.** One run is a mixture over a public index, so that its Rényi divergence is at most
    the largest of the settings' at every order. The best of K runs costs as in theorem 2 of
    Papernot and Steinke (2022), with K from a negative binomial law of shape `ETA` without zero.

    >>> from pymc_dp.accounting.plan import Release
    >>> score = Release("score", Poisson(0.1), 1.0, noise_multiplier=10.0, count=200)
    >>> plan = Plan((score,), Neighbours.ADD_REMOVE, 1e-5, RDP_DP_ACCOUNTING)
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
    """Return the law's gamma for a mean number of runs (definition 1 of the same paper)."""
    return math.exp(brentq(lambda x: _mean_runs(math.exp(x)) - runs, -60.0, -1e-9, xtol=1e-13))


def _mean_runs(gamma: float) -> float:
    return float(ETA * (1 / gamma - 1) / (1 - gamma**ETA))


def draw_runs(runs: float, rng: np.random.Generator) -> int:
    """Draw the number of runs: negative binomial, drawn anew while it is zero."""
    while not (count := int(rng.negative_binomial(ETA, halting(runs)))):
        pass
    return count
