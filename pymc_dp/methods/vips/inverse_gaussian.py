"""Generalised inverse Gaussian blocks: a variance with a Gamma prior, as in shrinkage priors.

The log density is p log x - a x - b / x. Its moments are ratios of Bessel functions.
"""

import numpy as np
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from scipy.special import kve

from pymc_dp.methods.blocks.exponential import ExponentialFamily, Natural, slopes

# a or b below this are taken as it: the density would not be proper
SMALLEST = 1e-12
# tries after which a rejection sampler would be wrong, not unlucky: each succeeds with 2 in 5
TRIES = 500


def _statistics(log_density: Variable, x: Variable) -> tuple[Variable, ...]:
    """P log x - a x - b / x, as (p, a, b), from three derivatives."""
    first, second = slopes(log_density, x)
    third = grad(second.sum(), x, disconnected_inputs="ignore", return_disconnected="zero")
    b = x * (x**3 * third + 2 * x**2 * second) / 2
    p = -(x**2) * second - 2 * b / x
    return p, p / x + b / x**2 - first, b


def _ratio(eta: Natural, power: int) -> np.ndarray:
    """E x^power: (b / a)^(power / 2) K_(order + power)(omega) / K_order(omega)."""
    order, scale, omega = _canonical(eta)
    return scale**power * kve(order + power, omega) / kve(order, omega)


def _canonical(eta: Natural) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The order, the scale and omega: x / scale has log density (order - 1) log x - omega cosh."""
    a, b = np.maximum(eta[1], SMALLEST), np.maximum(eta[2], SMALLEST)
    return eta[0] + 1, np.sqrt(b / a), 2 * np.sqrt(a * b)


def _rule(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    """The two points with the mean of x and the mean of 1 / x."""
    mean, inverse = _ratio(eta, 1), _ratio(eta, -1)
    upper = mean + np.sqrt(np.maximum(mean**2 - mean / inverse, 0.0))
    return upper, (mean / inverse) / upper


def _moments(eta: Natural) -> tuple[np.ndarray, np.ndarray]:
    mean = _ratio(eta, 1)
    return mean, np.sqrt(np.maximum(_ratio(eta, 2) - mean**2, 0.0))


def _sample(eta: Natural, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw by rejection under three pieces: flat in the middle, exponential to both sides.

    The log of x has a log-concave density (Devroye 2014, Random variate generation for the
    generalized inverse Gaussian distribution).
    """
    order, scale, omega = (np.broadcast_to(x, (draws, *x.shape)).ravel() for x in _canonical(eta))
    logs = _log_draws(np.abs(order), omega, rng)
    return (scale * np.exp(np.where(order < 0, -logs, logs))).reshape(draws, *eta[0].shape)


def _log_draws(order: np.ndarray, omega: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw log x for orders of at least 0 and scale 1."""
    mode = np.arcsinh(order / omega)
    # exp(-height) is the density at mode + y over that at the mode
    alpha = np.hypot(omega, order) - order

    def height(y: np.ndarray, alpha: np.ndarray, order: np.ndarray) -> np.ndarray:
        return alpha * (np.cosh(y) - 1) + order * (np.expm1(y) - y)

    def slope(y: np.ndarray) -> np.ndarray:
        return alpha * np.sinh(y) + order * np.expm1(y)

    right, left = _ends(alpha, order)
    at_right, at_left = height(right, alpha, order), height(-left, alpha, order)
    tail_right, tail_left = 1 / slope(right), -1 / slope(-left)
    end, start = right - tail_right * at_right, left - tail_left * at_left
    middle = end + start
    total = middle + tail_right + tail_left
    y = np.zeros(len(order))
    left_over = np.arange(len(order))
    for _ in range(TRIES):
        i = left_over
        which, along, level = rng.random((3, len(i)))
        which *= total[i]
        along = -np.log1p(-along)
        over_right, over_left = end[i] + tail_right[i] * along, -start[i] - tail_left[i] * along
        in_middle, in_right = which < middle[i], which < middle[i] + tail_right[i]
        tried = np.where(in_middle, which - start[i], np.where(in_right, over_right, over_left))
        bound = np.where(in_middle, 0.0, along)
        taken = np.log1p(-level) - bound <= -height(tried, alpha[i], order[i])
        y[i[taken]] = tried[taken]
        left_over = i[~taken]
        if not left_over.size:
            break
    return mode + y


def _ends(alpha: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Devroye's ends of the flat piece, to the right and to the left of the mode."""
    falls = alpha * (np.cosh(1.0) - 1) + order * np.expm1(1.0) - order
    near = np.log(4 / (alpha + 2 * order))
    right = np.where(falls > 2, np.sqrt(2 / (alpha + order)), np.where(falls < 0.5, near, 1.0))
    falls = alpha * (np.cosh(1.0) - 1) + order * np.exp(-1.0)
    tail = np.log1p(1 / alpha + np.sqrt(1 / alpha**2 + 2 / alpha))
    near = np.fmin(1 / np.maximum(order, SMALLEST), tail)
    steep = np.sqrt(4 / (alpha * np.cosh(1.0) + order))
    return right, np.where(falls > 2, steep, np.where(falls < 0.5, near, 1.0))


GENERALISED_INVERSE_GAUSSIAN = ExponentialFamily(
    name="generalised inverse Gaussian",
    statistics=_statistics,
    rule=_rule,
    reference=lambda eta: _ratio(eta, 1),
    limits=(-np.inf, 0.0, 0.0),
    whiten=lambda eta, mean, unit: eta,
    restore=lambda eta, mean, unit: eta,
    floored=(False, False, False),
    sample=_sample,
    moments=_moments,
    parameters=("log_coefficient", "rate", "inverse_coefficient"),
    spread=lambda shape, rng: (
        rng.uniform(-0.5, 1.0, shape),
        rng.uniform(0.5, 2.0, shape),
        rng.uniform(0.5, 2.0, shape),
    ),
)
