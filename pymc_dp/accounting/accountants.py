"""What the releases of a plan cost: accountants, with the proofs that they rest on.

In the order of this file: what an accountant is, what its proofs cover, and the event that it is
given; epsilon from the distribution of the privacy loss itself; Rényi divergences, which add up,
and the epsilon that they mean; last, the accountants that a caller can name:

``"pld"``
    Privacy loss distributions (dp-accounting): the tightest.
``"rdp"``
    Rényi divergences (autodp). Its routes through characteristic functions ("phi", AFA) are
    never taken: with today's SciPy they return a negative epsilon and no error.
``"rdp_dp_accounting"``
    Rényi divergences (dp-accounting), as a second opinion.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pymc_dp.accounting.plan import GAUSSIAN, Neighbours, Plan, Release
from pymc_dp.errors import PrivacyWarning
from pymc_dp.sampling.samplers import Full, Poisson, Sampler

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Deltas = tuple[float, ...]
Pairs = frozenset[tuple[type[Sampler], Neighbours]]

# noise over sensitivity below which no accountant was checked: where batches are sampled, and where
# all of them hold all records, so that releases cost what one Gaussian mechanism does (closed form)
NOISE_FLOOR, FULL_FLOOR = 0.3, 1e-4

FULL: Pairs = frozenset((Full, neighbours) for neighbours in Neighbours)
POISSON: Pairs = frozenset({(Poisson, Neighbours.ADD_REMOVE), (Poisson, Neighbours.ZERO_OUT)})
POISSON_REPLACED: Pairs = frozenset({(Poisson, Neighbours.REPLACE_ONE)})


def no_warning(plan: Plan, deltas: Deltas) -> None:
    """Warn of nothing."""


class Accountant(NamedTuple):
    """What turns a plan into epsilon."""

    name: str
    of_sums: Callable[[Plan, Deltas], Sequence[float]]  # of Gaussian releases, at each delta
    proved: Pairs = frozenset()  # what there is a proof for
    package: str = "dp-accounting"
    smallest_delta: float = 0.0
    # whether the library itself doubles the sensitivity under replace-one neighbours
    doubles: bool = False
    # warns where a better choice of settings would find a smaller number
    warn_if_loose: Callable[[Plan, Deltas], None] = no_warning

    def __repr__(self) -> str:
        return f"Accountant({self.name!r})"

    def check(self, plan: Plan) -> None:
        """Refuse a plan that no proof covers, and say what one does."""
        floor = FULL_FLOOR if plan.all_full else NOISE_FLOOR
        for release in plan.releases:
            if (type(release.sampler), plan.neighbours) not in self.proved:
                raise ValueError(
                    f"No proof covers sampling={release.sampler.name!r} under neighbours="
                    f"{plan.neighbours.value!r} with accountant={self.name!r}: use "
                    "accountant='pld', which has one for each pair of them, or sampling='full'."
                )
            _check_noise(release, plan.neighbours, floor)
        self.check_delta(plan.delta)

    def check_delta(self, delta: float) -> None:
        """Refuse a delta at which the accountant's number would not be a guarantee."""
        if not 0 < delta < 1:
            raise ValueError(f"delta={delta!r} must lie strictly between 0 and 1, such as 1e-5.")
        if delta < self.smallest_delta:
            raise ValueError(
                f"delta={delta!r} is too small for accountant={self.name!r}, which understates "
                f"epsilon below {self.smallest_delta}: give a larger delta, or accountant='rdp'."
            )

    def epsilons(self, plan: Plan, deltas: Deltas) -> np.ndarray:
        """Return the epsilon of a plan at each of several deltas; warn where it is loose."""
        self.check(plan)
        for delta in deltas:
            self.check_delta(delta)
        found = self.estimates(plan, deltas)
        if np.isfinite(found).all():
            self.warn_if_loose(plan.merged(), deltas)
        return found

    def estimates(self, plan: Plan, deltas: Deltas) -> np.ndarray:
        """Return the same without a check: it is a bound for plans that `check` lets pass alone."""
        return np.array(_cached(self, plan.merged(), deltas))

    def renyi(self, plan: Plan, orders: tuple[float, ...] | None = None) -> np.ndarray:
        """Return a plan's Rényi divergence at each order, whichever accountant this is."""
        RDP_DP_ACCOUNTING.check(plan)
        return divergences(plan, ORDERS if orders is None else orders)

    def event(self, plan: Plan) -> DpEvent:
        """Compose the releases of a plan into one event of dp-accounting."""
        return event_of(plan, self.doubles)


@functools.lru_cache(maxsize=1024)
def _cached(accountant: Accountant, plan: Plan, deltas: Deltas) -> Sequence[float]:
    if any(release.noise_multiplier == 0 for release in plan.releases):
        return (math.inf,) * len(deltas)
    others = [release for release in plan.releases if release.mechanism != GAUSSIAN]
    pure = sum(release.count * release.pure_epsilon(plan.neighbours) for release in others)
    sums = gaussian_part(plan)
    found: Sequence[float] = [0.0] * len(deltas)
    if sums.releases:
        found = accountant.of_sums(sums, deltas)
    # accountants have returned such numbers without an exception: fail closed
    if any(not value >= 0 for value in found):
        raise ArithmeticError(
            f"accountant={accountant.name!r} returned epsilon={found}, which cannot be: give "
            "another accountant, and report this plan."
        )
    return tuple(float(pure + value) for value in found)


def event_of(plan: Plan, doubles: bool) -> DpEvent:
    """Compose the releases of a plan into one event of dp-accounting."""
    import dp_accounting as dp

    events = []
    for release in plan.releases:
        of_library = doubles and release.mechanism == GAUSSIAN
        noise = release.noise_multiplier if of_library else plan.noise(release)
        of_all = release.mechanism.event(noise)
        event = event_of_batch(release.sampler, of_all)
        events.append(dp.SelfComposedDpEvent(event, int(release.count)))
    return dp.ComposedDpEvent(events)


def event_of_batch(sampler: Sampler, release: DpEvent) -> DpEvent:
    """Describe a release of one batch; a batch of every row is not amplified."""
    import dp_accounting as dp

    if sampler.rate == 1:
        return release
    if isinstance(sampler, Poisson):
        return dp.PoissonSampledDpEvent(sampler.rate, release)
    raise ValueError(f"No event is known for batches drawn by {type(sampler).__name__}.")


def gaussian_part(plan: Plan) -> Plan:
    """Leave out what is no noisy sum."""
    sums = (release for release in plan.releases if release.mechanism == GAUSSIAN)
    return dataclasses.replace(plan, releases=tuple(sums))


def _check_noise(release: Release, neighbours: Neighbours, floor: float) -> None:
    """Refuse noise that is lower than any for which the accountants were checked."""
    noise = release.unit_noise(neighbours)
    if release.mechanism == GAUSSIAN and 0 < noise < floor * (1 - 1e-9):
        raise ValueError(
            f"Release {release.name!r} has noise_multiplier={release.noise_multiplier:.4g}, which "
            f"is {noise:.4g} of its sensitivity under neighbours={neighbours.value!r}: accountants "
            f"are not reliable below {NOISE_FLOOR} if batches are sampled, {FULL_FLOOR} if full: "
            "give more noise (a smaller epsilon), or noise_multiplier=0 for a fit without privacy."
        )


# The PLD accountant rounds privacy losses up to a grid; long plans need a finer one, and plans of
# many kinds of releases, each with a distribution of its own, would take minutes on it.
_GRID, _FINE_GRID, _LONG_PLAN = 1e-4, 2e-5, 100_000
COARSE_GRID, MANY_KINDS = 1e-3, 16

SMALLEST_PLD_DELTA = 1e-10  # the PLD accountant understated epsilon at delta = 1e-13


def by_losses(sums: Plan, deltas: Deltas, grid: float | None = None) -> Sequence[float]:
    """Compose privacy loss distributions by dp-accounting; ``grid`` is the step of the losses."""
    from dp_accounting import get_epsilon_gaussian

    if sums.all_full:
        noise = sum(r.count / sums.noise(r) ** 2 for r in sums.releases) ** -0.5
        return [get_epsilon_gaussian(noise, delta) for delta in deltas]
    loss = _loss(sums, grid or _grid(sums.releases))
    return [loss.get_epsilon_for_delta(delta) for delta in deltas]


# A result asks for it at its own delta and at others, and for that of the first releases.
@functools.lru_cache(maxsize=MANY_KINDS)
def _loss(sums: Plan, grid: float) -> Any:
    """Compose the privacy loss of all releases, as dp-accounting's own accountant does."""
    from dp_accounting.pld.privacy_loss_distribution import identity

    kinds = len(sums.releases)
    before = sums.releases[:-1] if kinds <= MANY_KINDS else ()
    total = _loss(dataclasses.replace(sums, releases=before), grid) if before else identity(grid)
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
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(
        noise,
        value_discretization_interval=grid,
        sampling_prob=rate,
        neighboring_relation=neighbours.relation,
    )


# Of many kinds, for which the grid is coarse, a distribution is small.
_of_few_kinds = functools.lru_cache(maxsize=MANY_KINDS)(_loss_of_one)
_of_many_kinds = functools.lru_cache(maxsize=256)(_loss_of_one)


def _grid(releases: Sequence[Release]) -> float:
    if sum(release.count for release in releases) >= _LONG_PLAN:
        return _FINE_GRID
    return _GRID if len(releases) <= MANY_KINDS else COARSE_GRID


def by_central_limit(sums: Plan, deltas: Deltas) -> Sequence[float]:
    """Take the limit of long compositions (Bu et al. 2020): a first guess, and no upper bound."""
    from dp_accounting import get_epsilon_gaussian

    squares = sum(
        r.count * r.sampler.rate**2 * math.expm1(min(sums.noise(r) ** -2, 50.0))
        for r in sums.releases
    )
    return [get_epsilon_gaussian(squares**-0.5, delta) for delta in deltas]


ORDERS = (
    *(order / 10 for order in range(11, 110)),
    *range(11, 64),
    *np.unique(np.geomspace(64, 2048, 31).round()),
)


def by_autodp(sums: Plan, deltas: Deltas) -> Sequence[float]:
    """Add up Rényi divergences by autodp."""
    _, transformers = _autodp()
    composer = transformers.ComposeGaussian if sums.all_full else transformers.Composition
    # autodp searches over orders from an infinite value on, and raises floating-point noise.
    with np.errstate(all="ignore"):
        mechanisms = [_autodp_mechanism(sums, release) for release in sums.releases]
        whole = composer()(mechanisms, [release.count for release in sums.releases])
        return [whole.get_approxDP(delta) for delta in deltas]


def _autodp_mechanism(sums: Plan, release: Release) -> Any:
    mechanisms, transformers = _autodp()
    gaussian = mechanisms.GaussianMechanism(sums.noise(release))
    rate = release.sampler.rate
    if rate == 1:
        return gaussian
    amplify = transformers.AmplificationBySampling(PoissonSampling=True)
    return amplify(gaussian, rate, improved_bound_flag=True)


@functools.cache
def _autodp() -> tuple[Any, Any]:
    path = sys.path.copy()
    from autodp import mechanism_zoo, transformer_zoo

    sys.path[:] = path  # autodp puts ".." on it
    return mechanism_zoo, transformer_zoo


def divergences(plan: Plan, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    """Return a plan's Rényi divergence at each order, shape (orders,); infinite without noise."""
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


def warn_of_orders(plan: Plan, deltas: Deltas) -> None:
    """Warn where the best Rényi order is the first or the last of those tried."""
    sums = gaussian_part(plan)
    if not sums.releases:
        return
    accountant = _rdp_accountant(sums)
    for delta in deltas:
        eps, order = accountant.get_epsilon_and_optimal_order(delta)
        if eps > 0 and order in (ORDERS[0], ORDERS[-1]):
            warnings.warn(
                f"epsilon={eps:.4g} at delta={delta:g} is looser than it need be: the best "
                f"Rényi order is at an end ({order:g}) of those tried. Use accountant='pld' or "
                "'rdp'.",
                PrivacyWarning,
                stacklevel=5,
            )


@functools.lru_cache(maxsize=128)
def _rdp_accountant(plan: Plan, orders: tuple[float, ...] = ORDERS) -> Any:
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant(orders, plan.neighbours.relation)
    with _without_log():
        return accountant.compose(event_of(plan, doubles=False))


def epsilon_of_renyi(
    orders: Sequence[float], divergences: Sequence[float] | np.ndarray, delta: float
) -> float:
    """Convert Rényi divergences to epsilon at one delta, by the best of the orders."""
    from dp_accounting import rdp

    return float(rdp.compute_epsilon(orders, divergences, delta)[0])


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Keep dp-accounting from logging every order that it leaves out, which is harmless."""
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


PLD = Accountant(
    "pld",
    by_losses,
    FULL | POISSON | POISSON_REPLACED,
    smallest_delta=SMALLEST_PLD_DELTA,
    doubles=True,
)
COARSE_PLD = PLD._replace(of_sums=functools.partial(by_losses, grid=COARSE_GRID))
CENTRAL_LIMIT = Accountant("central limit", by_central_limit)
RDP = Accountant("rdp", by_autodp, FULL | POISSON, package="autodp")
RDP_DP_ACCOUNTING = Accountant(
    "rdp_dp_accounting", by_dp_accounting, RDP.proved, warn_if_loose=warn_of_orders
)
# what a caller's accountant= names, the tightest first
ACCOUNTANTS: dict[str, Accountant] = {each.name: each for each in (PLD, RDP_DP_ACCOUNTING, RDP)}


def accountant_named(name: str) -> Accountant:
    """Return the accountant that a caller's ``accountant=`` names."""
    if name not in ACCOUNTANTS:
        raise ValueError(f"accountant={name!r} is unknown: use one of {sorted(ACCOUNTANTS)}.")
    return ACCOUNTANTS[name]
