"""Conjugate exponential families: what a block's log density says about its natural parameters.

Of a conjugate block x, every log density is ``<eta, t(x)> + const``. Its derivatives at any one
point give eta back, so a user's graph needs no pattern matching to yield sufficient statistics.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.tensor import concatenate
from scipy.special import digamma, softmax

Natural = tuple[np.ndarray, ...]


class ExponentialFamily(NamedTuple):
    """One conjugate family; all functions work entry by entry (Dirichlet: row by row).

    Attributes
    ----------
    name : str
    statistics : (log density, x) -> eta
        Read eta off the derivatives of a graph.
    rule : eta -> tuple of points x
        Their average reproduces the expectation of every sufficient statistic, exactly.
    reference : eta -> x
        A point of the support where derivatives are taken.
    limits : tuple of float
        The least value that each natural parameter of the likelihood may have.
    whiten, restore : (eta, reference, unit) -> eta
        To and from coordinates in which one record's statistics have a norm near 1: around the
        reference, in units of ``unit``, the curvature of one record. Linear in eta.
    floored : tuple of bool
        Whether a parameter must also stay above the noise: at 0 its block would explode.
    sample : (eta, draws, rng) -> (draws, ...)
    moments : eta -> (mean, standard deviation)
    parameters : tuple of str
        Names of the natural parameters, as a result shows them.
    spread : (size, rng) -> eta
        A random proper eta, to try a graph on.
    """

    name: str
    statistics: Callable[[Variable, Variable], tuple[Variable, ...]]
    rule: Callable[[Natural], tuple[np.ndarray, ...]]
    reference: Callable[[Natural], np.ndarray]
    limits: tuple[float, ...]
    whiten: Callable[[Natural, np.ndarray, np.ndarray], Natural]
    restore: Callable[[Natural, np.ndarray, np.ndarray], Natural]
    floored: tuple[bool, ...]
    sample: Callable[[Natural, int, np.random.Generator], np.ndarray]
    moments: Callable[[Natural], tuple[np.ndarray, np.ndarray]]
    parameters: tuple[str, ...]
    spread: Callable[[tuple[int, ...], np.random.Generator], Natural]


def slopes(log_density: Variable, x: Variable) -> tuple[Variable, Variable]:
    """First and second derivative of a scalar; the second is right where entries do not mix."""
    first = grad(log_density, x, disconnected_inputs="ignore", return_disconnected="zero")
    second = grad(first.sum(), x, disconnected_inputs="ignore", return_disconnected="zero")
    return first, second


def flat_slopes(value: Variable, wrt: Sequence[Variable]) -> Variable:
    """Gradient of a scalar in several variables, as one vector."""
    found = grad(value, list(wrt), disconnected_inputs="ignore", return_disconnected="zero")
    return concatenate([slope.ravel() for slope in found])


def _unchanged(eta: Natural, reference: np.ndarray, unit: np.ndarray) -> Natural:
    return eta


def _normal_restore(eta, mean, unit):
    precision = eta[1] * unit
    return eta[0] * unit**0.5 + precision * mean, precision


def _normal_statistics(log_density, x):
    """Eta x - Lambda x^2 / 2, as (eta, Lambda)."""
    first, second = slopes(log_density, x)
    return first - x * second, -second


NORMAL = ExponentialFamily(
    name="Gaussian",
    statistics=_normal_statistics,
    rule=lambda eta: (eta[0] / eta[1] + eta[1] ** -0.5, eta[0] / eta[1] - eta[1] ** -0.5),
    reference=lambda eta: eta[0] / eta[1],
    limits=(-np.inf, 0.0),
    whiten=lambda eta, mean, unit: ((eta[0] - eta[1] * mean) / unit**0.5, eta[1] / unit),
    restore=_normal_restore,
    floored=(False, True),
    sample=lambda eta, draws, rng: rng.normal(
        eta[0] / eta[1], eta[1] ** -0.5, (draws, *eta[0].shape)
    ),
    moments=lambda eta: (eta[0] / eta[1], eta[1] ** -0.5),
    parameters=("precision_mean", "precision"),
    spread=lambda shape, rng: (rng.normal(size=shape), rng.uniform(0.5, 2.0, shape)),
)


def _gamma_statistics(log_density, x):
    """A log x - b x, as (a, b); a density has a - 1."""
    first, second = slopes(log_density, x)
    return -(x**2) * second, -(first + x * second)


def _gamma_rule(eta):
    """The two points with the mean of x and the mean of log x."""
    shape, rate = eta[0] + 1, eta[1]
    mean, geometric = shape / rate, np.exp(digamma(shape)) / rate
    upper = mean + np.sqrt(np.maximum(mean**2 - geometric**2, 0.0))
    return upper, geometric * (geometric / upper)


GAMMA = ExponentialFamily(
    name="Gamma",
    statistics=_gamma_statistics,
    rule=_gamma_rule,
    reference=lambda eta: (eta[0] + 1) / eta[1],
    limits=(0.0, 0.0),
    whiten=lambda eta, mean, unit: (eta[0], eta[1] * mean),
    restore=lambda eta, mean, unit: (eta[0], eta[1] / mean),
    floored=(False, True),
    sample=lambda eta, draws, rng: rng.gamma(eta[0] + 1, 1 / eta[1], (draws, *eta[0].shape)),
    moments=lambda eta: ((eta[0] + 1) / eta[1], np.sqrt(eta[0] + 1) / eta[1]),
    parameters=("log_coefficient", "rate"),
    spread=lambda shape, rng: (rng.uniform(0.5, 3.0, shape), rng.uniform(0.5, 2.0, shape)),
)


def _beta_statistics(log_density, p):
    """A log p + b log(1 - p), as (a, b); a density has a - 1 and b - 1."""
    first, second = slopes(log_density, p)
    odds = p / (1 - p)
    b = -(p * first + p**2 * second) / (odds * (1 + odds))
    return p * first + odds * b, b


def _beta_rule(eta):
    """The two points with the mean of log p and the mean of log(1 - p)."""
    a, b = eta[0] + 1, eta[1] + 1
    yes, no = np.exp(digamma(a) - digamma(a + b)), np.exp(digamma(b) - digamma(a + b))
    half = (1 + yes**2 - no**2) / 2
    upper = half + np.sqrt(np.maximum(half**2 - yes**2, 0.0))
    return upper, yes * (yes / upper)


def _beta_moments(eta):
    a, b = eta[0] + 1, eta[1] + 1
    mean = a / (a + b)
    return mean, np.sqrt(mean * (1 - mean) / (a + b + 1))


BETA = ExponentialFamily(
    name="Beta",
    statistics=_beta_statistics,
    rule=_beta_rule,
    reference=lambda eta: _beta_moments(eta)[0],
    limits=(0.0, 0.0),
    whiten=_unchanged,
    restore=_unchanged,
    floored=(False, False),
    sample=lambda eta, draws, rng: rng.beta(eta[0] + 1, eta[1] + 1, (draws, *eta[0].shape)),
    moments=_beta_moments,
    parameters=("log_coefficient", "log_complement_coefficient"),
    spread=lambda shape, rng: (rng.uniform(0.5, 3.0, shape), rng.uniform(0.5, 3.0, shape)),
)


def _dirichlet_statistics(log_density, p):
    """Sum a log p, as (a,); a density has a - 1."""
    return (p * grad(log_density, p, disconnected_inputs="ignore", return_disconnected="zero"),)


def geometric_mean(concentration: np.ndarray) -> np.ndarray:
    """exp(E log p) of Dirichlet rows: the point at which log p has its expectation."""
    total = concentration.sum(axis=-1, keepdims=True)
    return np.exp(digamma(concentration) - digamma(total))


def _dirichlet_moments(eta):
    concentration = eta[0] + 1
    total = concentration.sum(axis=-1, keepdims=True)
    mean = concentration / total
    return mean, np.sqrt(mean * (1 - mean) / (total + 1))


def _dirichlet_sample(eta, draws, rng):
    """Draw by the logarithms of gamma variables, which do not underflow; one draw at a time."""
    concentration = eta[0] + 1
    values = np.empty((draws, *concentration.shape))
    for value in values:
        log = np.log(rng.standard_gamma(concentration + 1))
        log -= rng.standard_exponential(concentration.shape) / concentration
        value[...] = softmax(log, axis=-1)
    return values


DIRICHLET = ExponentialFamily(
    name="Dirichlet",
    statistics=_dirichlet_statistics,
    rule=lambda eta: (geometric_mean(eta[0] + 1),),
    reference=lambda eta: _dirichlet_moments(eta)[0],
    limits=(0.0,),
    whiten=_unchanged,
    restore=_unchanged,
    floored=(False,),
    sample=_dirichlet_sample,
    moments=_dirichlet_moments,
    parameters=("log_coefficient",),
    spread=lambda shape, rng: (rng.uniform(0.5, 3.0, shape),),
)
