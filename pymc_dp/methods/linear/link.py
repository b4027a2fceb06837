"""The form of a log likelihood in its predictor, decided at probe points; Pólya-Gamma means."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from pymc_dp.methods.conjugate.exponential import GAMMA, two_derivatives
from pymc_dp.methods.conjugate.families import precision_family
from pymc_dp.methods.conjugate.inverse_gamma import INVERSE_GAMMA
from pymc_dp.methods.conjugate.probe_points import nearly_equal, probe_rows
from pymc_dp.model import Records
from pymc_dp.model.compile import function
from pymc_dp.model.graph_types import AnyVariable

GAUSSIAN, LOGISTIC, PROBIT, OTHER = "Gaussian", "logistic", "probit", "other"
# slope of log Phi(psi) at psi = 0
PROBIT_SLOPE = (2 / np.pi) ** 0.5
# absolute slope, and second derivative, of the log likelihood of one outcome, yes or no, at psi = 0
BINARY_SLOPES = {
    LOGISTIC: (np.array(0.5), np.array(-0.25)),
    PROBIT: (np.array(PROBIT_SLOPE), np.array(-(PROBIT_SLOPE**2))),
}
# random values of psi at which a likelihood is compared with a form
POINTS = 4
# below it tanh(c/2) / c is its limit
SMALL = 1e-6


class Link(NamedTuple):
    """How a log likelihood depends on psi."""

    form: str  # `GAUSSIAN`, `LOGISTIC`, `PROBIT` or `OTHER`
    # whether it is that of one number: a Normal outcome, or a Bernoulli one of which psi is the
    # logit or probit
    single: bool


class _At(NamedTuple):
    """Derivatives in psi at a point, and statistics (shape, rate) of the noise precision."""

    psi: np.ndarray
    first: np.ndarray
    second: np.ndarray
    statistics: list[np.ndarray]


class _Probe(NamedTuple):
    """A likelihood at one probe row: at psi = 0, and at random points.

    ``pairs`` hold each point twice: at a random noise precision, and at 1.
    """

    zero: _At
    pairs: list[tuple[_At, _At]]


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


def link_of(
    records: Records,
    log_likelihood: AnyVariable,
    psi: AnyVariable,
    precision: str | None,
    shape: tuple[int, ...],
) -> Link:
    """Compare the likelihood of one record, a scalar, with the known forms at probe rows.

    It is a function of ``psi``, which has this shape, and of the latent ``precision``, which may
    multiply it, or divide it where it is a variance. The rows' whole numbers are 0 or 1.
    """
    probes = _probes(records, log_likelihood, psi, precision, shape)
    for form in SLOPES if precision is None else (GAUSSIAN,):
        if all(_has_form(form, probe) for probe in probes):
            return Link(form, all(_is_single(form, probe) for probe in probes))
    return Link(OTHER, single=False)


def _probes(
    records: Records,
    log_likelihood: AnyVariable,
    psi: AnyVariable,
    precision: str | None,
    shape: tuple[int, ...],
) -> list[_Probe]:
    """Evaluate a likelihood at two probe rows; derivatives are divided by the noise precision."""
    tau = [records.latents[precision]] if precision else []
    family = precision_family(records, precision) if precision else GAMMA
    statistics = family.statistics(log_likelihood, tau[0]) if tau else ()
    inputs = [psi, *tau, *records.single.inputs.values()]
    fn = function(inputs, [*two_derivatives(log_likelihood, psi), *statistics], "python")
    of_tau = records.point[precision].shape if precision else ()

    def probe(whole: int) -> _Probe:
        rng = np.random.default_rng(whole)
        rows = list(probe_rows(records, rng, [whole]).values())

        def at(psi: np.ndarray, value: float) -> _At:
            first, second, *noise = fn(psi, *[np.full(of_tau, value) for _ in tau], *rows)
            scale = 1.0 if not tau else 1 / value if family is INVERSE_GAMMA else value
            return _At(psi, first / scale, second / scale, noise)

        zero, pairs = at(np.zeros(shape), 1.0), []
        for _ in range(POINTS):
            psi, value = 3 * rng.normal(size=shape), rng.uniform(0.5, 2.0)
            pairs.append((at(psi, value), at(psi, 1.0)))
        return _Probe(zero, pairs)

    with np.errstate(all="ignore"):
        return [probe(whole) for whole in (0, 1)]


def _has_form(form: str, probe: _Probe) -> bool:
    """Whether slopes follow from those at psi = 0, and statistics do not depend on precisions."""
    zero = probe.zero
    with np.errstate(all="ignore"):
        return all(
            nearly_equal(at.first, SLOPES[form](at.psi, zero.first, zero.second))
            and all(map(nearly_equal, at.statistics, at_one.statistics))
            for at, at_one in probe.pairs
        )


def _is_single(form: str, probe: _Probe) -> bool:
    """Whether slopes are those of one Normal or Bernoulli outcome."""
    zero = probe.zero
    if zero.psi.size > 1:
        return False
    if form != GAUSSIAN:
        first, second = BINARY_SLOPES[form]
        return nearly_equal(np.abs(zero.first), first) and nearly_equal(zero.second, second)
    return bool((zero.second < 0).all()) and all(
        _of_normal(probe.zero, at) for at, _ in probe.pairs if at.statistics
    )


def _of_normal(zero: _At, at: _At) -> bool:
    """Whether the noise precision has the statistics 1/2 and (y - psi)^2 / 2."""
    shape, rate = at.statistics
    energy = (zero.first + zero.second * at.psi) ** 2 / (-2 * zero.second)
    return nearly_equal(shape, np.full_like(shape, 0.5)) and nearly_equal(rate, energy)


def pg_weight(c: np.ndarray) -> np.ndarray:
    """Mean of a Pólya-Gamma variable PG(1, c) over its largest value 1/4, at c = 0.

    Source: Polson, Scott and Windle (2013).

    >>> import numpy as np
    >>> pg_weight(np.array([0.0, 2.0])).round(4)
    array([1.    , 0.7616])
    """
    c = np.maximum(np.abs(c), SMALL)
    return np.asarray(2 * np.tanh(c / 2) / c)
