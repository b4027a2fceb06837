"""Inverse gamma blocks: variances of Normal outcomes and latents.

One over such a variance is a precision with a Gamma distribution. The log density -a log x - b / x
of a variance x has the coefficients (a, b) of the same likelihood in the precision.
"""

import numpy as np

from pymc_dp.methods.conjugate.exponential import (
    GAMMA,
    ExponentialFamily,
    Natural,
    two_derivatives,
    uniform,
)
from pymc_dp.model.graph_types import AnyVariable, Tensor


def of_precision(eta: Natural) -> Natural:
    """Turn the density of a variance into that of the precision: x = 1 / tau, dx = dtau / tau^2.

    >>> of_precision((np.array(4.0), np.array(3.0)))  # inverse gamma of shape 3, Gamma of shape 3
    (array(2.), array(3.))
    """
    return np.asarray(eta[0] - 2), eta[1]


def of_variance(eta: Natural) -> Natural:
    """Undo `of_precision`."""
    return np.asarray(eta[0] + 2), eta[1]


def _statistics(log_density: AnyVariable, x: Tensor) -> tuple[Tensor, ...]:
    """-a log x - b / x, as (a, b); a density has a + 1."""
    first, second = two_derivatives(log_density, x)
    b = -(x**2) * (first + x * second)
    return b / x - x * first, b


def _rule(eta: Natural) -> tuple[np.ndarray, ...]:
    """The two points with the mean of log x and the mean of 1 / x."""
    return tuple(1 / tau for tau in GAMMA.rule(of_precision(eta)))


def _moments(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    """Infinite where the density's tail is too heavy."""
    shape, rate = eta[0] - 1, eta[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(shape > 1, rate / (shape - 1), np.inf)
        return mean, np.where(shape > 2, mean / np.sqrt(np.maximum(shape - 2, 0.0)), np.inf)


INVERSE_GAMMA = ExponentialFamily(
    name="inverse gamma",
    statistics=_statistics,
    rule=_rule,
    reference=lambda eta: 1 / GAMMA.reference(of_precision(eta)),
    lower_bounds=(0.0, 0.0),
    raised_to_noise=(False, True),
    sample=lambda eta, draws, rng: 1 / GAMMA.sample(of_precision(eta), draws, rng),
    moments=_moments,
    parameters=("log_inverse_coefficient", "inverse_coefficient"),
    random_parameters=uniform((2.5, 5.0), (0.5, 2.0)),
    around=lambda eta, x, times: of_variance(GAMMA.around(of_precision(eta), 1 / x, times)),
    whiten=lambda eta, at, unit: (eta[0], eta[1] / at),
    restore=lambda eta, at, unit: (eta[0], eta[1] * at),
)
