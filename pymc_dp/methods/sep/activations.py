"""Mean and variance of activations of a Gaussian variable, as graphs of its own."""

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

# sigmoid(x) is near Phi(PROBIT x): MacKay (1992)
PROBIT = (np.pi / 8) ** 0.5
# nodes of the integral behind the variance of Phi(x)
NODES = 10
# added to variances where their roots are differentiated
TINY = 1e-12


def cdf(x: Variable) -> Variable:
    """Phi(x), the standard normal distribution function."""
    return pt.erfc(-x / 2**0.5) / 2


def log_cdf(x: Variable) -> Variable:
    """Logarithm of Phi(x), with derivatives that are finite on both sides."""
    low, high = pt.minimum(x, -1.0), pt.maximum(x, -1.0)
    return pt.switch(
        x < -1,
        pt.log(pt.erfcx(-low / 2**0.5) / 2) - low**2 / 2,
        pt.log(pt.erfc(-high / 2**0.5) / 2),
    )


def step(mean: Variable, variance: Variable) -> tuple[Variable, Variable]:
    """Moments of the event x > 0."""
    above = cdf(mean / pt.sqrt(variance + TINY))
    return above, above * (1 - above)


def relu(mean: Variable, variance: Variable) -> tuple[Variable, Variable]:
    """Moments of max(0, x): Hernandez-Lobato and Adams (2015), section 3."""
    sd = pt.sqrt(variance + TINY)
    alpha = mean / sd
    above, density = cdf(alpha), sd * pt.exp(-(alpha**2) / 2) / (2 * np.pi) ** 0.5
    first = mean * above + density
    second = (mean**2 + variance) * above + mean * density
    return first, pt.maximum(second - first**2, 0.0)


def phi(scale: float, mean: Variable, variance: Variable) -> tuple[Variable, Variable]:
    """Moments of Phi(scale x), exact but for the quadrature.

    The variance is the covariance of two events of probability Phi(a) whose correlation is rho,
    the integral of exp(-a^2 / (1 + sin t)) / 2 pi over t from 0 to arcsin rho.
    """
    inflated = 1 + scale**2 * variance
    a = scale * mean / pt.sqrt(inflated)
    end = pt.arcsin(1 - 1 / inflated)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    t = pt.expand_dims(end, -1) * (1 + nodes) / 2
    values = pt.exp(-pt.expand_dims(a**2, -1) / (1 + pt.sin(t)))
    return cdf(a), (values * weights).sum(axis=-1) * end / (4 * np.pi)


def sigmoid(mean: Variable, variance: Variable) -> tuple[Variable, Variable]:
    """Moments of 1 / (1 + exp(-x)): the mean is exact where x is known, the variance Phi's."""
    centre = pt.sigmoid(mean / pt.sqrt(1 + PROBIT**2 * variance))
    return centre, phi(PROBIT, mean, variance)[1]


def tanh(mean: Variable, variance: Variable) -> tuple[Variable, Variable]:
    """Moments of tanh x = 2 sigmoid(2 x) - 1."""
    centre, spread = sigmoid(2 * mean, 4 * variance)
    return 2 * centre - 1, 4 * spread
