"""Conjugate exponential families, by which blocks of latents are updated in closed form.

The log density of a conjugate block x is ``<eta, t(x)> + const``. Its derivatives at any one point
determine eta, so sufficient statistics of a user's graph need no pattern matching. First what a
family is, then the families, one after the other, and last the draws of a block whose natural
parameters were released with noise.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from pytensor.gradient import grad
from scipy.special import digamma, softmax

from pymc_dp.model.graphs import AnyVariable, Tensor, pt

Natural = tuple[np.ndarray, ...]


def _unchanged(eta: Natural, reference: np.ndarray, unit: np.ndarray) -> Natural:
    return eta


def uniform(
    *ranges: tuple[float, float],
) -> Callable[[tuple[int, ...], np.random.Generator], Natural]:
    """Draw natural parameters evenly from one range each."""
    return lambda shape, rng: tuple(rng.uniform(*ends, shape) for ends in ranges)


class ExponentialFamily(NamedTuple):
    """One conjugate family; all functions work entry by entry (Dirichlet: row by row)."""

    name: str
    # (log density, x) -> eta: compute eta from the derivatives of a graph in the tensor x
    statistics: Callable[[AnyVariable, Tensor], tuple[Tensor, ...]]
    # eta -> tuple of points x: their average reproduces the expectation of every sufficient
    # statistic, exactly
    rule: Callable[[Natural], tuple[np.ndarray, ...]]
    # eta -> x: a point of the support where derivatives are taken
    reference: Callable[[Natural], np.ndarray]
    # the least value that each natural parameter of the likelihood may have
    lower_bounds: tuple[float, ...]
    # whether a parameter is also raised to the noise on it: at 0 the variance is infinite
    raised_to_noise: tuple[bool, ...]
    # (eta, draws, rng) -> (draws, ...)
    sample: Callable[[Natural, int, np.random.Generator], np.ndarray]
    moments: Callable[[Natural], tuple[np.ndarray, np.ndarray]]  # eta -> (mean, standard deviation)
    parameters: tuple[str, ...]  # names of the natural parameters in a result
    # (shape, rng) -> eta: a random proper eta, for probe points
    random_parameters: Callable[[tuple[int, ...], np.random.Generator], Natural]
    # (eta, x, times) -> eta: the density around a point x, which weighs so many times as much
    around: Callable[[Natural, np.ndarray, float], Natural]
    # whiten, restore ((eta, reference, unit) -> eta): to and from coordinates in which one
    # record's statistics have a norm near 1: around the reference, in units of ``unit``, the
    # curvature of one record. Linear in eta.
    whiten: Callable[[Natural, np.ndarray, np.ndarray], Natural] = _unchanged
    restore: Callable[[Natural, np.ndarray, np.ndarray], Natural] = _unchanged


def gradients(value: AnyVariable, wrt: Iterable[AnyVariable]) -> list[Tensor]:
    """Gradients of a scalar, zero in the variables that it does not depend on."""
    slopes: Any = grad(value, list(wrt), disconnected_inputs="ignore", return_disconnected="zero")
    return list(slopes)


def two_derivatives(log_density: AnyVariable, x: AnyVariable) -> tuple[Tensor, Tensor]:
    """First and second derivative of a scalar; the second is right where entries do not mix."""
    [first] = gradients(log_density, [x])
    [second] = gradients(first.sum(), [x])
    return first, second


def flat_gradient(value: AnyVariable, wrt: Iterable[AnyVariable]) -> Tensor:
    """Gradient of a scalar in several variables, as one vector."""
    return pt.concatenate([slope.ravel() for slope in gradients(value, wrt)])


def _normal_statistics(log_density: AnyVariable, x: Tensor) -> tuple[Tensor, ...]:
    """Eta x - Lambda x^2 / 2, as (eta, Lambda)."""
    first, second = two_derivatives(log_density, x)
    return first - x * second, -second


NORMAL = ExponentialFamily(
    name="Gaussian",
    statistics=_normal_statistics,
    rule=lambda eta: (eta[0] / eta[1] + eta[1] ** -0.5, eta[0] / eta[1] - eta[1] ** -0.5),
    reference=lambda eta: eta[0] / eta[1],
    lower_bounds=(-np.inf, 0.0),
    whiten=lambda eta, mean, unit: ((eta[0] - eta[1] * mean) / unit**0.5, eta[1] / unit),
    restore=lambda eta, mean, unit: (eta[0] * unit**0.5 + eta[1] * unit * mean, eta[1] * unit),
    raised_to_noise=(False, True),
    sample=lambda eta, draws, rng: rng.normal(
        eta[0] / eta[1], eta[1] ** -0.5, (draws, *eta[0].shape)
    ),
    moments=lambda eta: (eta[0] / eta[1], eta[1] ** -0.5),
    parameters=("precision_mean", "precision"),
    random_parameters=lambda shape, rng: (rng.normal(size=shape), rng.uniform(0.5, 2.0, shape)),
    around=lambda eta, x, times: (x * times * eta[1], times * eta[1]),
)


def _gamma_statistics(log_density: AnyVariable, x: Tensor) -> tuple[Tensor, ...]:
    """A log x - b x, as (a, b); a density has a - 1."""
    first, second = two_derivatives(log_density, x)
    return -(x**2) * second, -(first + x * second)


def _gamma_rule(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    """The two points with the mean of x and the mean of log x."""
    shape, rate = eta[0] + 1, eta[1]
    mean, geometric = shape / rate, np.exp(digamma(shape)) / rate
    upper = mean + np.sqrt(np.maximum(mean**2 - geometric**2, 0.0))
    return upper, geometric * (geometric / upper)


def _gamma_around(eta: Natural, x: np.ndarray, times: float) -> Natural:
    # a shape below 1 has its mode at 0: draws of it would be there
    shape = times * np.maximum(eta[0] + 1, 1.0)
    return shape - 1, shape / x


GAMMA = ExponentialFamily(
    name="Gamma",
    statistics=_gamma_statistics,
    rule=_gamma_rule,
    reference=lambda eta: (eta[0] + 1) / eta[1],
    lower_bounds=(0.0, 0.0),
    whiten=lambda eta, mean, unit: (eta[0], eta[1] * mean),
    restore=lambda eta, mean, unit: (eta[0], eta[1] / mean),
    raised_to_noise=(False, True),
    sample=lambda eta, draws, rng: rng.gamma(eta[0] + 1, 1 / eta[1], (draws, *eta[0].shape)),
    moments=lambda eta: ((eta[0] + 1) / eta[1], np.sqrt(eta[0] + 1) / eta[1]),
    parameters=("log_coefficient", "rate"),
    random_parameters=uniform((0.5, 3.0), (0.5, 2.0)),
    around=_gamma_around,
)


def _beta_statistics(log_density: AnyVariable, p: Tensor) -> tuple[Tensor, ...]:
    """A log p + b log(1 - p), as (a, b); a density has a - 1 and b - 1."""
    first, second = two_derivatives(log_density, p)
    odds = p / (1 - p)
    b = -(p * first + p**2 * second) / (odds * (1 + odds))
    return p * first + odds * b, b


def _beta_rule(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    """The two points with the mean of log p and the mean of log(1 - p)."""
    a, b = eta[0] + 1, eta[1] + 1
    yes, no = np.exp(digamma(a) - digamma(a + b)), np.exp(digamma(b) - digamma(a + b))
    half = (1 + yes**2 - no**2) / 2
    upper = half + np.sqrt(np.maximum(half**2 - yes**2, 0.0))
    return upper, yes * (yes / upper)


def _beta_moments(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    a, b = eta[0] + 1, eta[1] + 1
    mean = a / (a + b)
    return mean, np.sqrt(mean * (1 - mean) / (a + b + 1))


def _beta_around(eta: Natural, p: np.ndarray, times: float) -> Natural:
    count = times * np.maximum(eta[0] + eta[1] + 2, 2.0)
    return count * p - 1, count * (1 - p) - 1


BETA = ExponentialFamily(
    name="Beta",
    statistics=_beta_statistics,
    rule=_beta_rule,
    reference=lambda eta: _beta_moments(eta)[0],
    lower_bounds=(0.0, 0.0),
    raised_to_noise=(False, False),
    sample=lambda eta, draws, rng: rng.beta(eta[0] + 1, eta[1] + 1, (draws, *eta[0].shape)),
    moments=_beta_moments,
    parameters=("log_coefficient", "log_complement_coefficient"),
    random_parameters=uniform((0.5, 3.0), (0.5, 3.0)),
    around=_beta_around,
)


def _dirichlet_statistics(log_density: AnyVariable, p: Tensor) -> tuple[Tensor, ...]:
    """Sum a log p, as (a,); a density has a - 1."""
    [slope] = gradients(log_density, [p])
    return (p * slope,)


def geometric_mean(concentration: np.ndarray) -> np.ndarray:
    """exp(E log p) of Dirichlet rows: the point at which log p has its expectation."""
    total = concentration.sum(axis=-1, keepdims=True)
    return np.asarray(np.exp(digamma(concentration) - digamma(total)))


def _dirichlet_moments(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    concentration = eta[0] + 1
    total = concentration.sum(axis=-1, keepdims=True)
    mean = concentration / total
    return mean, np.sqrt(mean * (1 - mean) / (total + 1))


def _dirichlet_sample(eta: Natural, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw by the logarithms of gamma variables, which do not underflow; one draw at a time."""
    concentration = eta[0] + 1
    values = np.empty((draws, *concentration.shape))
    for value in values:
        log = np.log(rng.standard_gamma(concentration + 1))
        log -= rng.standard_exponential(concentration.shape) / concentration
        value[...] = softmax(log, axis=-1)
    return values


def _dirichlet_around(eta: Natural, p: np.ndarray, times: float) -> Natural:
    total = (eta[0] + 1).sum(axis=-1, keepdims=True)
    return (times * np.maximum(total, p.shape[-1]) * p - 1,)


DIRICHLET = ExponentialFamily(
    name="Dirichlet",
    statistics=_dirichlet_statistics,
    rule=lambda eta: (geometric_mean(eta[0] + 1),),
    reference=lambda eta: _dirichlet_moments(eta)[0],
    lower_bounds=(0.0,),
    raised_to_noise=(False,),
    sample=_dirichlet_sample,
    moments=_dirichlet_moments,
    parameters=("log_coefficient",),
    random_parameters=uniform((0.5, 3.0)),
    around=_dirichlet_around,
)


# Inverse gamma blocks: variances of Normal outcomes and latents. One over such a variance is a
# precision with a Gamma distribution. The log density -a log x - b / x of a variance x has the
# coefficients (a, b) of the same likelihood in the precision.


def of_precision(eta: Natural) -> Natural:
    """Turn the density of a variance into that of the precision: x = 1 / tau, dx = dtau / tau^2.

    >>> of_precision((np.array(4.0), np.array(3.0)))  # inverse gamma of shape 3, Gamma of shape 3
    (array(2.), array(3.))
    """
    return np.asarray(eta[0] - 2), eta[1]


def of_variance(eta: Natural) -> Natural:
    """Undo `of_precision`."""
    return np.asarray(eta[0] + 2), eta[1]


def _inverse_gamma_statistics(log_density: AnyVariable, x: Tensor) -> tuple[Tensor, ...]:
    """-a log x - b / x, as (a, b); a density has a + 1."""
    first, second = two_derivatives(log_density, x)
    b = -(x**2) * (first + x * second)
    return b / x - x * first, b


def _inverse_gamma_moments(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    """Infinite where the density's tail is too heavy."""
    shape, rate = eta[0] - 1, eta[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(shape > 1, rate / (shape - 1), np.inf)
        return mean, np.where(shape > 2, mean / np.sqrt(np.maximum(shape - 2, 0.0)), np.inf)


INVERSE_GAMMA = ExponentialFamily(
    name="inverse gamma",
    statistics=_inverse_gamma_statistics,
    # the two points with the mean of log x and the mean of 1 / x
    rule=lambda eta: tuple(1 / tau for tau in GAMMA.rule(of_precision(eta))),
    reference=lambda eta: 1 / GAMMA.reference(of_precision(eta)),
    lower_bounds=(0.0, 0.0),
    raised_to_noise=(False, True),
    sample=lambda eta, draws, rng: 1 / GAMMA.sample(of_precision(eta), draws, rng),
    moments=_inverse_gamma_moments,
    parameters=("log_inverse_coefficient", "inverse_coefficient"),
    random_parameters=uniform((2.5, 5.0), (0.5, 2.0)),
    around=lambda eta, x, times: of_variance(GAMMA.around(of_precision(eta), 1 / x, times)),
    whiten=lambda eta, at, unit: (eta[0], eta[1] / at),
    restore=lambda eta, at, unit: (eta[0], eta[1] * at),
)

# Draws that include the privacy noise. A block's natural parameters are those of its prior, plus
# what was released about the records: the true sums plus noise of a known size. Every draw first
# puts that much noise on the released part, which is the posterior of the true sums where nothing
# else is known about them.


class NoisyBlock(NamedTuple):
    """Natural parameters of one block, with noise on the part that was released."""

    prior: Natural  # the prior's part
    likelihood: Natural  # the likelihood's part, as released
    variances: Natural  # of the noise on every entry of it


def within_bounds(family: ExponentialFamily, likelihood: Natural, variances: Natural) -> Natural:
    """Raise natural parameters of the likelihood to their lower bounds."""
    return tuple(
        np.maximum(part, bound + raised * variance**0.5)
        for part, variance, bound, raised in zip(
            likelihood, variances, family.lower_bounds, family.raised_to_noise, strict=True
        )
    )


def draw(
    family: ExponentialFamily, block: NoisyBlock, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw a block, each draw with its own noise on what was released."""
    values = []
    for _ in range(draws):
        noise = tuple(v**0.5 * rng.standard_normal(v.shape) for v in block.variances)
        if family is NORMAL:
            noise = _noise_of_normal(block, noise[1], rng)
        likelihood = tuple(a + b for a, b in zip(block.likelihood, noise, strict=True))
        likelihood = within_bounds(family, likelihood, block.variances)
        eta = tuple(a + b for a, b in zip(block.prior, likelihood, strict=True))
        values.append(family.sample(eta, 1, rng)[0])
    return np.stack(values)


def _noise_of_normal(block: NoisyBlock, precision: np.ndarray, rng: np.random.Generator) -> Natural:
    """Noise of eta = score + mean * precision: the two parts are released with noise each."""
    bounded = within_bounds(NORMAL, block.likelihood, block.variances)
    mean = (block.prior[0] + bounded[0]) / (block.prior[1] + bounded[1])
    of_score = np.maximum(block.variances[0] - mean**2 * block.variances[1], 0.0)
    score = of_score**0.5 * rng.standard_normal(precision.shape)
    return score + mean * precision, precision
