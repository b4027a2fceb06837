"""Generalised inverse Gaussian blocks: a variance with a Gamma prior, as in shrinkage priors.

The log density is p log x - a x - b / x. Its moments are ratios of Bessel functions.
"""

import numpy as np
from scipy.special import kve

from pymc_dp.methods.conjugate.exponential import (
    GAMMA,
    ExponentialFamily,
    Natural,
    gradients,
    two_derivatives,
    uniform,
)
from pymc_dp.model.graph_types import AnyVariable, Tensor

SMALLEST = 1e-12  # a or b below this are taken as it: the density would not be proper


def _statistics(log_density: AnyVariable, x: Tensor) -> tuple[Tensor, ...]:
    """P log x - a x - b / x, as (p, a, b), from three derivatives."""
    first, second = two_derivatives(log_density, x)
    [third] = gradients(second.sum(), [x])
    b = x * (x**3 * third + 2 * x**2 * second) / 2
    p = -(x**2) * second - 2 * b / x
    return p, p / x + b / x**2 - first, b


def _expected_power(eta: Natural, power: int) -> np.ndarray:
    """E x^power: (b / a)^(power / 2) K_(order + power)(omega) / K_order(omega)."""
    order, scale, omega = _canonical(eta)
    return np.asarray(scale**power * kve(order + power, omega) / kve(order, omega))


def _canonical(eta: Natural) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order, scale and omega: the log density of y = x / scale has -omega (y + 1 / y) / 2."""
    a, b = np.maximum(eta[1], SMALLEST), np.maximum(eta[2], SMALLEST)
    return eta[0] + 1, np.sqrt(b / a), 2 * np.sqrt(a * b)


def _rule(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    """The two points with the mean of x and the mean of 1 / x."""
    mean, inverse = _expected_power(eta, 1), _expected_power(eta, -1)
    upper = mean + np.sqrt(np.maximum(mean**2 - mean / inverse, 0.0))
    return upper, (mean / inverse) / upper


def _moments(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    mean = _expected_power(eta, 1)
    return mean, np.sqrt(np.maximum(_expected_power(eta, 2) - mean**2, 0.0))


def _sample(eta: Natural, draws: int, rng: np.random.Generator) -> np.ndarray:
    from scipy.stats import geninvgauss  # slow to import

    order, scale, omega = _canonical(eta)
    with np.errstate(divide="ignore"):  # of a bound that is infinite where omega is nearly 0
        shape = (draws, *omega.shape)
        values: np.ndarray = scale * geninvgauss.rvs(order, omega, size=shape, random_state=rng)
    return values


GENERALISED_INVERSE_GAUSSIAN = ExponentialFamily(
    name="generalised inverse Gaussian",
    statistics=_statistics,
    rule=_rule,
    reference=lambda eta: _expected_power(eta, 1),
    lower_bounds=(-np.inf, 0.0, 0.0),
    raised_to_noise=(False, False, False),
    sample=_sample,
    moments=_moments,
    parameters=("log_coefficient", "rate", "inverse_coefficient"),
    random_parameters=uniform((-0.5, 1.0), (0.5, 2.0), (0.5, 2.0)),
    around=lambda eta, x, times: (*GAMMA.around(eta[:2], x, times), eta[2]),
)
