"""The form of a log likelihood in its predictor, decided at probe points; Pólya-Gamma means."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from pymc_dp.methods.conjugate.blocks import (
    at_few_points,
    nearly_equal,
    ones,
    precision_family,
    probe_rows,
)
from pymc_dp.methods.conjugate.exponential import GAMMA, INVERSE_GAMMA, two_derivatives
from pymc_dp.model import Records
from pymc_dp.model.graph_types import AnyVariable

GAUSSIAN, LOGISTIC, PROBIT, OTHER = "Gaussian", "logistic", "probit", "other"
PROBIT_SLOPE = (2 / np.pi) ** 0.5  # slope of log Phi(psi) at psi = 0
# absolute slope, and second derivative, of the log likelihood of one outcome, yes or no, at psi = 0
BINARY_SLOPES = {
    LOGISTIC: (np.array(0.5), np.array(-0.25)),
    PROBIT: (np.array(PROBIT_SLOPE), np.array(-(PROBIT_SLOPE**2))),
}
POINTS = 4  # random values of psi at which a likelihood is compared with a form
SMALL = 1e-6  # below it tanh(c/2) / c is its limit


class _Probe(NamedTuple):
    """A likelihood at one probe row and a random psi; slopes are over the noise precision."""

    psi: np.ndarray
    slope: np.ndarray  # at psi
    slope_at_0: np.ndarray
    second_at_0: np.ndarray  # the second derivative
    statistics: list[np.ndarray]  # shape and rate of the noise precision, at a random one
    statistics_at_1: list[np.ndarray]  # the same at a noise precision of 1


def _probit_slope(psi: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    # log Phi(c psi): PyMC's inverse link scales psi by 1 / sqrt 2
    c = first / PROBIT_SLOPE
    z = c * psi
    return np.asarray(c * np.exp(-(z**2) / 2 - log_ndtr(z)) / np.sqrt(2 * np.pi))


# the slope of a log likelihood at psi, given slope and second derivative at psi = 0
SLOPES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    GAUSSIAN: lambda psi, first, second: first + second * psi,
    LOGISTIC: lambda psi, first, second: first + 2 * second * np.tanh(psi / 2),
    PROBIT: _probit_slope,
}


def form_of(
    records: Records,
    log_likelihood: AnyVariable,
    psi: AnyVariable,
    precision: str | None,
    shape: tuple[int, ...],
) -> tuple[str, bool]:
    """Compare the likelihood of one record, a scalar, with the known forms at probe rows.

    It is a function of ``psi``, which has this shape, and of the latent ``precision``, which may
    multiply it, or divide it where it is a variance. The rows' whole numbers are 0 or 1. Return
    also whether it is that of one number: a Normal outcome, or a Bernoulli one of which psi is the
    logit or probit.
    """
    with np.errstate(all="ignore"):
        probes = list(_probes(records, log_likelihood, psi, precision, shape))
        for form in SLOPES if precision is None else (GAUSSIAN,):
            if all(_has_form(form, probe) for probe in probes):
                return form, all(_is_single(form, probe) for probe in probes)
    return OTHER, False


def _probes(
    records: Records,
    log_likelihood: AnyVariable,
    psi: AnyVariable,
    precision: str | None,
    shape: tuple[int, ...],
) -> Iterator[_Probe]:
    tau = [records.latents[precision]] if precision else []
    family = precision_family(records, precision) if precision else GAMMA
    statistics = family.statistics(log_likelihood, tau[0]) if tau else ()
    graphs, one = [*two_derivatives(log_likelihood, psi), *statistics], ones(records)
    evaluate = at_few_points(records, graphs, [psi])
    for whole in (0, 1):
        rng = np.random.default_rng(whole)
        rows = probe_rows(records, rng, [whole])
        slope_at_0, second_at_0, *_ = evaluate(rows, one, np.zeros(shape))
        for _ in range(POINTS):
            at, value = 3 * rng.normal(size=shape), rng.uniform(0.5, 2.0)
            slope, _, *found = evaluate(rows, {name: value * x for name, x in one.items()}, at)
            _, _, *at_1 = evaluate(rows, one, at)
            scale = 1.0 if not tau else 1 / value if family is INVERSE_GAMMA else value
            yield _Probe(at, slope / scale, slope_at_0, second_at_0, found, at_1)


def _has_form(form: str, probe: _Probe) -> bool:
    """Whether slopes follow from those at psi = 0, and statistics do not depend on precisions."""
    expected = SLOPES[form](probe.psi, probe.slope_at_0, probe.second_at_0)
    return nearly_equal(probe.slope, expected) and all(
        map(nearly_equal, probe.statistics, probe.statistics_at_1)
    )


def _is_single(form: str, probe: _Probe) -> bool:
    """Whether the slope is that of one Normal or Bernoulli outcome."""
    slope, second = probe.slope_at_0, probe.second_at_0
    if probe.psi.size > 1:
        return False
    if form != GAUSSIAN:
        of_one = BINARY_SLOPES[form]
        return nearly_equal(np.abs(slope), of_one[0]) and nearly_equal(second, of_one[1])
    if not (second < 0).all():
        return False
    # the noise precision then has the statistics 1/2 and (y - psi)^2 / 2
    energy = (slope + second * probe.psi) ** 2 / (-2 * second)
    return all(map(nearly_equal, probe.statistics, (np.full_like(energy, 0.5), energy)))


def pg_weight(c: np.ndarray) -> np.ndarray:
    """Mean of a Pólya-Gamma variable PG(1, c) over its largest value 1/4, at c = 0.

    Source: Polson, Scott and Windle (2013).

    >>> import numpy as np
    >>> pg_weight(np.array([0.0, 2.0])).round(4)
    array([1.    , 0.7616])
    """
    c = np.maximum(np.abs(c), SMALL)
    return np.asarray(2 * np.tanh(c / 2) / c)
