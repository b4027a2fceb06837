"""The papers' own accountants, for reproducing their tables and for nothing else.

Both are looser than `pymc_dp.calibrate` by factors of 2 to 600 for the same noise.
No fit uses them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

import pymc_dp

# --- one noise, three epsilons: strong composition, the moments accountant, and today's accountant

DELTA = 1e-4
STRONG, MOMENTS, TODAY = "strong", "moments", "today"
# of noise multipliers, between which the one of an epsilon is looked for
RANGE = 0.5, 1e3
LABELS = {STRONG: "strong composition", MOMENTS: "moments accountant", TODAY: "today's accountant"}


class Schedule(NamedTuple):
    """How often sums over random batches are released, and the expected share of a batch."""

    sample_rate: float
    n: int


def column(accountant: str) -> str:
    """Name the column of what an accountant says."""
    return f"epsilon_{accountant}"


def epsilons(noise: float, schedule: Schedule) -> dict[str, float]:
    """Read one noise multiplier with every accountant."""
    if noise == 0:
        return {column(accountant): math.inf for accountant in LABELS}
    by_accountant = {
        STRONG: strong_composition(noise, schedule),
        MOMENTS: moments(noise, schedule),
        TODAY: pymc_dp.epsilon(noise_multiplier=noise, delta=DELTA, **schedule._asdict()),
    }
    return {column(accountant): value for accountant, value in by_accountant.items()}


def noises(epsilon: float, schedule: Schedule) -> dict[str, float]:
    """Noise multipliers that strong composition and today's accountant ask for."""

    def excess(noise: float) -> float:
        return strong_composition(noise, schedule) - epsilon

    return {
        STRONG: round(brentq(excess, *RANGE), 4),
        TODAY: pymc_dp.calibrate(epsilon=epsilon, delta=DELTA, **schedule._asdict()),
    }


def strong_composition(noise: float, schedule: Schedule) -> float:
    """Epsilon of theorem 3.20 of Dwork and Roth (2014), each release amplified by its sampling."""
    return advanced_composition(sigma=noise, delta=DELTA, **schedule._asdict())


def moments(noise: float, schedule: Schedule) -> float:
    """Epsilon of the moments accountant at integer orders."""
    if noise == 0:
        return math.inf
    return moments_accountant(sigma=noise, delta=DELTA, **schedule._asdict())


def advanced_composition(
    *, sigma: float, sample_rate: float, n: int, delta: float, slack: float | None = None
) -> float:
    r"""Epsilon as DP-ADVI accounts it (Jälkö, Dikmen and Honkela 2017): advanced composition.

    ``sigma`` is the paper's noise scale, half the ``noise_multiplier`` of this package, and
    ``slack`` the part of ``delta`` that composition itself takes; half of it by default. With
    :math:`\delta_0 = (\delta - \delta') / (T q)` for each of the T releases,
    :math:`s = \log(1 + q (\exp(\sqrt{2 \log(1.25 / \delta_0)} / \sigma) - 1))` and
    :math:`\epsilon = \sqrt{2 T \log(1 / \delta')} s + T s (e^s - 1)`.

    **Privacy.** For reproduction only: the Gaussian step is proved for an epsilon of at most 1
    per release, and the paper uses it beyond.
    """
    slack = delta / 2 if slack is None else slack
    if not 0 < slack < delta:
        raise ValueError(f"slack={slack!r} must lie strictly between 0 and delta={delta!r}.")
    delta_0 = (delta - slack) / (n * sample_rate)
    per_release = math.sqrt(2 * math.log(1.25 / delta_0)) / sigma
    s = math.log1p(sample_rate * math.expm1(per_release))
    return math.sqrt(2 * n * math.log(1 / slack)) * s + n * s * math.expm1(s)


def moments_accountant(*, sigma: float, sample_rate: float, n: int, delta: float) -> float:
    r"""Epsilon as VIPS accounts it: the moments accountant (Abadi et al. 2016, theorem 2).

    Orders are integers up to :math:`\lfloor \sigma^2 \log(1 / (q \sigma)) \rfloor`; epsilon is
    infinite if not even order 1 is allowed.

    **Privacy.** For reproduction only. The paper's code draws batches of a fixed size, which
    this Poisson accountant does not cover.
    """
    highest = math.floor(sigma**2 * math.log(1 / (sample_rate * sigma)))
    bounds = [
        (n * _log_moment(order, sigma, sample_rate) + math.log(1 / delta)) / order
        for order in range(1, highest + 1)
    ]
    return min(bounds, default=math.inf)


def _log_moment(order: int, sigma: float, sample_rate: float) -> float:
    """Log moment of the privacy loss: E[(mixture / base)^(order + 1)] under the base."""
    a = order + 1
    k = np.arange(a + 1)
    log_choose = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
    log_weight = k * math.log(sample_rate) + (a - k) * math.log1p(-sample_rate)
    return float(logsumexp(log_choose + log_weight + k * (k - 1) / (2 * sigma**2)))
