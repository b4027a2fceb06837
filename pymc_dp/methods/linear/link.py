"""How a likelihood depends on its linear predictor psi, decided at made-up rows and points."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Variable
from scipy.special import log_ndtr

from pymc_dp.compile import function
from pymc_dp.methods.blocks.exponential import GAMMA, slopes
from pymc_dp.methods.blocks.made_up import agree, made_up_rows
from pymc_dp.records import Records

GAUSSIAN, LOGISTIC, PROBIT, OTHER = "Gaussian", "logistic", "probit", "other"
# slope of log Phi(psi) at psi = 0
PROBIT_SLOPE = (2 / np.pi) ** 0.5
# made-up points at which a likelihood is compared with a form
TRIALS = 4


def _of_probit(psi: np.ndarray, slope: np.ndarray, second: np.ndarray) -> np.ndarray:
    # log Phi(c psi): PyMC's inverse link scales psi by 1 / sqrt 2
    c = slope / PROBIT_SLOPE
    z = c * psi
    return c * np.exp(-(z**2) / 2 - log_ndtr(z)) / np.sqrt(2 * np.pi)


# the slope of a log likelihood at psi, given slope and second derivative at psi = 0
SLOPES = {
    GAUSSIAN: lambda psi, slope, second: slope + second * psi,
    LOGISTIC: lambda psi, slope, second: slope + 2 * second * np.tanh(psi / 2),
    PROBIT: _of_probit,
}


class Likelihood(NamedTuple):
    """The log likelihood of one record as a function of psi.

    Attributes
    ----------
    graph, psi : Variable
        A scalar, and what it is a function of.
    precision : str or None
        Name of the Gamma block that may multiply it.
    shape : tuple of int
        The shape of psi.
    """

    graph: Variable
    psi: Variable
    precision: str | None
    shape: tuple[int, ...]


def form_of(records: Records, likelihood: Likelihood) -> str:
    """Compare a likelihood with its possible forms, at made-up rows and points."""
    graph, psi, precision, _ = likelihood
    tau = [records.latents[precision]] if precision else []
    energy = GAMMA.statistics(graph, tau[0]) if tau else ()
    leaves = list(records.single.inputs.values())
    fn = function([psi, *tau, *leaves], [*slopes(graph, psi), *energy], "python")
    for form, slope in SLOPES.items():
        if (form == GAUSSIAN or not tau) and all(
            _has_slope(records, likelihood, fn, slope, whole) for whole in (0, 1)
        ):
            return form
    return OTHER


def _has_slope(
    records: Records, likelihood: Likelihood, fn: Callable, expected: Callable, whole: int
) -> bool:
    """Whether the slope in psi is the expected one, and statistics of the noise constant."""
    rng = np.random.default_rng(whole)
    rows = list(made_up_rows(records, rng, [whole]).values())
    noise = records.point[likelihood.precision].shape if likelihood.precision else None

    def at(psi: np.ndarray, precision: float) -> list[np.ndarray]:
        tau = [] if noise is None else [np.full(noise, precision)]
        return fn(psi, *tau, *rows)

    slope, second, *_ = at(np.zeros(likelihood.shape), 1.0)
    for _ in range(TRIALS):
        psi, precision = 3 * rng.normal(size=likelihood.shape), rng.uniform(0.5, 2.0)
        got, _, *statistics = at(psi, precision)
        scale = 1.0 if noise is None else precision
        if not agree(got, scale * expected(psi, slope, second)):
            return False
        if not all(map(agree, statistics, at(psi, 1.0)[2:])):
            return False
    return True
