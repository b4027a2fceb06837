"""Sites of a network: what one record says about each weight, and about the noise's precision.

With log Z of cavity times likelihood, g and c its derivatives in a weight's mean and variance,
moments m + v g and v - v^2 (g^2 - 2 c) are matched (Hernandez-Lobato and Adams 2015, section 2),
then divided by the cavity's.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pymc_dp.compile import function
from pymc_dp.contributions import Contribution
from pymc_dp.contributions.contribution import Batch, row_norms
from pymc_dp.contributions.gradients import by_record, checked
from pymc_dp.methods.blocks.exponential import flat_slopes, slopes
from pymc_dp.methods.sep.activations import PROBIT, log_cdf
from pymc_dp.methods.sep.network_model import Network
from pymc_dp.records import Records

# a tilted variance is at least this share of the cavity's
LEAST_SHARE = 0.1
# a record makes the rate of the noise precision at most this many times as large
MOST = 1e6


class Asked(NamedTuple):
    """The cavity at which a batch is asked: public values.

    Attributes
    ----------
    mean, variance : (d,)
        Of all weights.
    shape, rate : float
        Of the Gamma noise precision; shape is above 1.
    """

    mean: np.ndarray
    variance: np.ndarray
    shape: float
    rate: float

    @property
    def precision(self) -> float:
        """One over the expected variance of the noise."""
        return (self.shape - 1) / self.rate


class Sums(NamedTuple):
    """Sums of sites, or one number for each of their parts.

    Attributes
    ----------
    score : (d,)
        nu - tau m, with m the cavity's mean.
    precision : (d,)
        tau, in units of the noise's precision.
    noise : (2,)
        Of shape and rate of the noise's precision.
    number : (1,)
        The number of records.
    """

    score: Any
    precision: Any
    noise: Any
    number: Any


class Scales(NamedTuple):
    """Public factors of the parts of a record's vector, and norms that no part exceeds."""

    factors: Sums
    bounds: Sums


class Derivatives(NamedTuple):
    """What log Z says of a batch.

    Attributes
    ----------
    in_mean, in_variance : (rows, d)
    error, variance, noise : (rows,)
        y - E f, var f and the noise's variance, where the likelihood is Normal.
    """

    in_mean: np.ndarray
    in_variance: np.ndarray
    error: np.ndarray
    variance: np.ndarray
    noise: np.ndarray


def lengths(d: int) -> Sums:
    """Return the lengths of the parts of a record's vector, for d weights."""
    return Sums(d, d, 2, 1)


def split(value: np.ndarray, scales: Scales, precision: float) -> Sums:
    """Cut a released vector into sums, scales and the expected noise precision undone."""
    parts = np.split(value, np.cumsum(lengths((len(value) - 3) // 2))[:-1])
    score, tau, noise, number = (x / by for x, by in zip(parts, scales.factors, strict=True))
    return Sums(score * precision**0.5, tau, noise / [1.0, precision], number)


def contribution(records: Records, network: Network, scales: Scales, backend: str) -> Contribution:
    """Contribute sites of weights and of the noise, and a one; the context is an `Asked`.

    Each part is shortened to a norm of its own, so that a record whose score is long still tells
    its noise; together they stay below the clip norm.
    """
    compute, d = derivatives(records, network, backend), network.prior.d

    def prepare(batch: Batch, asked: Asked) -> np.ndarray:
        sites = sites_of(compute(batch, asked), asked, known=network.output.precision is None)
        zipped = zip(sites, *scales, strict=True)
        return np.concatenate([shortened(by * part, bound) for part, by, bound in zipped], axis=1)

    return Contribution(
        sum(lengths(d)),
        8 * d,
        norms=lambda rows, asked: row_norms(rows),
        weighted_sum=lambda rows, asked, weights: weights @ rows,
        prepare=prepare,
    )


def shortened(rows: np.ndarray, bound: float) -> np.ndarray:
    """Bring the norm of each row to at most ``bound``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return rows * np.fmin(1.0, bound / row_norms(rows))[:, None]


def sites_of(at: Derivatives, asked: Asked, known: bool) -> Sums:
    """Match moments, divide by the cavity, and bring sites to units of the noise's precision.

    A variance that a record would make larger stays, as v_new <= v.
    """
    curvature = np.maximum(at.in_mean**2 - 2 * at.in_variance, 0.0)
    share = np.maximum(1 - asked.variance * curvature, LEAST_SHARE)
    noise = np.zeros((len(at.error), 2)) if known else noise_sites(at, asked)
    return Sums(
        at.in_mean / share / asked.precision**0.5,
        curvature / share / asked.precision,
        noise * [1.0, asked.precision],
        np.ones((len(at.error), 1)),
    )


def noise_sites(at: Derivatives, asked: Asked) -> np.ndarray:
    """Sites of shape and rate of the noise's precision, (rows, 2).

    Z, Z1 and Z2 are those of Gammas of shapes a, a + 1 and a + 2, each by the variance that it
    expects of the noise (Hernandez-Lobato and Adams 2015, section 2).
    """
    a, b = asked.shape, asked.rate
    variances = [at.variance + at.noise * (a - 1) / (a - 1 + k) for k in range(3)]
    z, z1, z2 = (-np.log(s) / 2 - at.error**2 / (2 * s) for s in variances)
    # 1 / (Z Z2 / Z1^2 (a + 1) / a - 1), and 1 / (Z2 / Z1 (a + 1) / b - Z1 / Z a / b)
    shape = 1 / np.maximum(np.expm1(z + z2 - 2 * z1) * (1 + 1 / a) + 1 / a, 1 / (2 * a))
    rate = b / np.maximum(np.exp(z2 - z1) * (a + 1) - np.exp(z1 - z) * a, 1 / MOST)
    return np.stack([shape - a, rate - b], axis=1)


def log_z(network: Network) -> tuple[Variable, ...]:
    """Graphs of log Z, y - E f, var f and the noise's variance, for one record."""
    mean, variance = network.moments.pair
    both = slopes(network.output.log_likelihood, network.output.cut)
    first, minus_curvature = at_zero(network, both)
    if network.output.link == "normal":  # the log likelihood is first f - curvature f^2 / 2
        noise = -1 / minus_curvature
        error, spread = noise * first - mean, variance + noise
        return -pt.log(spread) / 2 - error**2 / (2 * spread), error, variance, noise
    sign = pt.sign(first)
    if network.output.link == "probit":
        value = log_cdf(sign * mean / pt.sqrt(1 + variance))
    else:  # the probit approximation of MacKay (1992), which is exact without variance
        value = -pt.softplus(-sign * mean / pt.sqrt(1 + PROBIT**2 * variance))
    return value, sign - mean, variance, pt.ones_like(variance)


def at_zero(network: Network, graphs: Sequence[Variable]) -> list[Variable]:
    """Evaluate graphs of the output where it is 0."""
    cut = network.output.cut
    nothing = pt.constant(np.zeros(cut.type.shape))
    return clone_replace(list(graphs), {cut: nothing}, rebuild_strict=False)


def derivatives(
    records: Records, network: Network, backend: str
) -> Callable[[Batch, Asked], Derivatives]:
    """Compile the derivatives of log Z in means and variances of all weights."""
    prior, inputs = network.prior, records.batch.inputs
    means = [records.latents[name] for name in prior.shapes]
    variances = list(network.variances.values())
    value, *others = (graph.sum() for graph in log_z(network))
    in_mean, in_variance = (flat_slopes(value, wrt) for wrt in (means, variances))
    # a record outside the likelihood's support must not contribute
    [log_likelihood] = at_zero(network, [network.output.log_likelihood])
    in_mean = pt.switch(pt.isfinite(log_likelihood), in_mean, np.nan)
    rows = by_record(records, [in_mean, in_variance, *others])
    rest = [v for name, v in records.latents.items() if name not in prior.shapes]
    leaves = list(inputs.values())
    given = [*means, *variances, *rest, *leaves]
    fn = function(given, [checked(records, row) for row in rows], backend)

    def compute(batch: Batch, asked: Asked) -> Derivatives:
        points = [*prior.point(asked.mean).values(), *prior.point(asked.variance).values()]
        taus = [np.full(records.point[v.name].shape, asked.precision) for v in rest]
        return Derivatives(*fn(*points, *taus, *[batch[name] for name in inputs]))

    return compute
