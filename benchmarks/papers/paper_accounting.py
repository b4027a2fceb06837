"""The papers' own accountants, for reproducing their tables and for nothing else.

Both are looser than `pymc_dp.calibrate` by factors of 2 to 600 for the same noise.
No fit uses them.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, logsumexp


def advanced_composition(
    *, sigma: float, sample_rate: float, n: int, delta: float, slack: float | None = None
) -> float:
    r"""Epsilon as DP-ADVI accounts it: advanced composition of amplified Gaussian releases.

    Parameters
    ----------
    sigma : float
        The paper's noise scale, the standard deviation over *twice* the clip norm: half the
        ``noise_multiplier`` of this package.
    sample_rate : float
        The share of records in a batch.
    n : int
        The number of releases.
    delta : float
        The total delta.
    slack : float, optional
        The part of ``delta`` that composition itself takes; half of it by default.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        ``slack`` does not lie between 0 and ``delta``.

    Notes
    -----
    With :math:`\delta_0 = (\delta - \delta') / (T q)` for each of the T releases,

    .. math::

        s &= \log(1 + q (\exp(\sqrt{2 \log(1.25 / \delta_0)} / \sigma) - 1)) \\
        \epsilon &= \sqrt{2 T \log(1 / \delta')} s + T s (e^s - 1).

    **Privacy.** For reproduction only: the Gaussian step is proved for an epsilon of at most 1
    per release, and the paper uses it beyond.

    References
    ----------
    Jälkö, Dikmen and Honkela (2017), Differentially private variational inference for
    non-conjugate models.

    Examples
    --------
    >>> round(advanced_composition(sigma=4, sample_rate=0.02, n=1000, delta=1e-3), 3)
    7.201
    """
    slack = delta / 2 if slack is None else slack
    if not 0 < slack < delta:
        raise ValueError(f"slack={slack!r} must lie strictly between 0 and delta={delta!r}.")
    delta_0 = (delta - slack) / (n * sample_rate)
    per_release = math.sqrt(2 * math.log(1.25 / delta_0)) / sigma
    s = math.log1p(sample_rate * math.expm1(per_release))
    return math.sqrt(2 * n * math.log(1 / slack)) * s + n * s * math.expm1(s)


def moments_accountant(*, sigma: float, sample_rate: float, n: int, delta: float) -> float:
    r"""Epsilon as VIPS accounts it: the moments accountant at integer orders.

    Parameters
    ----------
    sigma : float
        The noise's standard deviation over the sensitivity.
    sample_rate : float
        The probability of a record to be in a batch.
    n : int
        The number of releases.
    delta : float
        Where to read epsilon.

    Returns
    -------
    float
        Infinite if not even order 1 is allowed.

    Notes
    -----
    Orders go up to :math:`\lfloor \sigma^2 \log(1 / (q \sigma)) \rfloor`, and
    :math:`\epsilon = \min_\lambda (T \alpha(\lambda) + \log(1 / \delta)) / \lambda`.

    **Privacy.** For reproduction only. The paper's code draws batches of a fixed size, which
    this Poisson accountant does not cover.

    References
    ----------
    Abadi et al. (2016), Deep learning with differential privacy, theorem 2; Park et al. (2020),
    Variational Bayes in private settings.

    Examples
    --------
    >>> round(moments_accountant(sigma=1.24, sample_rate=0.05, n=20, delta=1e-4), 4)
    2.4411
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
