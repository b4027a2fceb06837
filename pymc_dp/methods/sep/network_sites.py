"""Sites of a network: what one record says about each weight, and about the noise's precision.

With log Z of cavity times likelihood, g and c its derivatives in a weight's mean and variance, the
moments m + v g and v - v^2 (g^2 - 2 c) are matched (Minka 2001, equations 5.12 and 5.13).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pymc_dp.compile import function
from pymc_dp.contributions import Contribution
from pymc_dp.contributions.contribution import Batch, row_norms
from pymc_dp.contributions.gradients import by_record, checked
from pymc_dp.methods.sep.activations import PROBIT, log_cdf
from pymc_dp.methods.sep.network_model import Network
from pymc_dp.methods.vips.exponential import slopes
from pymc_dp.records import Records

# a tilted variance is at least this share of the cavity's
LEAST_SHARE = 0.1


class Asked(NamedTuple):
    """The cavity at which a batch is asked: public values.

    Attributes
    ----------
    mean, variance : (d,)
        Of all weights.
    shape, rate : float
        Of the Gamma noise precision, whose density has x^(shape - 1); unused without one.
    """

    mean: np.ndarray
    variance: np.ndarray
    shape: float
    rate: float

    @property
    def precision(self) -> float:
        """Expected noise precision."""
        return self.shape / self.rate


class Sums(NamedTuple):
    """Sums of sites, at a noise precision of 1.

    Attributes
    ----------
    score : (d,)
        nu - tau m, with m the cavity's mean.
    precision : (d,)
        tau.
    noise : (2,)
        Shape and rate of the noise precision; empty without one.
    number : (1,)
    """

    score: np.ndarray
    precision: np.ndarray
    noise: np.ndarray
    number: np.ndarray


class Units(NamedTuple):
    """Public factors of a record's parts, and the norms to which each of them is shortened."""

    factors: Sums
    bounds: Sums


class Derivatives(NamedTuple):
    """What log Z says of a batch.

    Attributes
    ----------
    in_mean, in_variance : (rows, d)
    error, variance, noise : (rows,)
        y - E f, var f, and the noise's variance at a precision of 1; for a Normal likelihood.
    """

    in_mean: np.ndarray
    in_variance: np.ndarray
    error: np.ndarray
    variance: np.ndarray
    noise: np.ndarray


LogZ = Callable[[Batch, Asked], Derivatives]


def sizes(network: Network) -> Sums:
    """Return the lengths of a record's parts."""
    return Sums(network.prior.d, network.prior.d, 2 * bool(network.output.precision), 1)


def split(value: np.ndarray, network: Network, units: Units, precision: float) -> Sums:
    """Cut a released vector into sums of sites, factors and expected precision undone."""
    parts = np.split(value, np.cumsum(sizes(network))[:-1])
    score, tau, noise, number = (x / f for x, f in zip(parts, units.factors, strict=True))
    return Sums(score, tau, noise / [1.0, precision][: len(noise)], number)


def log_z(network: Network) -> tuple[Variable, ...]:
    """Graphs of log Z, y - E f, var f and the noise's variance, for one record."""
    mean, variance = network.moments.pair
    output = network.output
    first, second = slopes(output.log_likelihood, output.cut)
    first, second = clone_replace([first, second], {output.cut: pt.zeros_like(output.cut)})
    if output.link == "normal":
        noise = -1 / second
        error = noise * first - mean
        spread = variance + noise
        value = -pt.log(spread) / 2 - error**2 / (2 * spread)
        return value, error, variance, noise
    sign = pt.sign(first)
    if output.link == "probit":
        value = log_cdf(sign * mean / pt.sqrt(1 + variance))
    else:  # MacKay (1992), equation 11: exact where the variance is 0
        value = -pt.softplus(-sign * mean / pt.sqrt(1 + PROBIT**2 * variance))
    return value, first, variance, pt.ones_like(variance)


def derivatives(records: Records, network: Network, backend: str) -> LogZ:
    """Compile the derivatives of log Z, at the noise's precision in an `Asked`."""
    prior, inputs = network.prior, records.batch.inputs
    value, *others = (graph.sum() for graph in log_z(network))
    # outside the likelihood's support there is no site
    possible = pt.isfinite(network.output.log_likelihood)
    means = [records.latents[name] for name in prior.shapes]
    variances = list(network.variances.values())
    graphs = [
        pt.concatenate([slope.ravel() for slope in _slopes(value, wrt)])
        for wrt in (means, variances)
    ]
    rows = by_record(records, [*graphs, *others])
    rows = [checked(records, row) for row in rows]
    gammas = [records.latents[name] for name in prior.gammas]
    fn = function([*means, *variances, *gammas, *inputs.values()], rows, backend)
    del possible

    def compute(batch: Batch, asked: Asked) -> Derivatives:
        points = [*prior.point(asked.mean).values(), *prior.point(asked.variance).values()]
        taus = [np.full(shape, asked.precision) for shape in prior.gamma_shapes.values()]
        return Derivatives(*fn(*points, *taus, *[batch[name] for name in inputs]))

    return compute


def _slopes(value: Variable, wrt: list[Variable]) -> list[Variable]:
    return grad(value, wrt, disconnected_inputs="ignore", return_disconnected="zero")
