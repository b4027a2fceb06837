"""Sites of a network: one record's factors on each weight and on the noise's precision.

With log Z of cavity times likelihood, g and c its derivatives in a weight's mean and variance,
moments m + v g and v - v^2 (g^2 - 2 c) are matched (Hernandez-Lobato and Adams 2015, section 2),
then divided by the cavity's.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.conjugate.exponential import flat_gradient, two_derivatives
from pymc_dp.methods.conjugate.probe_points import for_each_row
from pymc_dp.methods.linear.link import GAUSSIAN, PROBIT
from pymc_dp.methods.normal import NoisyAverage
from pymc_dp.methods.sep.network.defaults import DEFAULTS
from pymc_dp.methods.sep.network.model import Network
from pymc_dp.methods.sep.network.moments import PROBIT_SCALE, log_cdf
from pymc_dp.model import Records
from pymc_dp.model.graph_types import Tensor
from pymc_dp.privacy.contribution import Batch, RowContribution
from pymc_dp.privacy.norms import clip_factors, row_norms
from pymc_dp.privacy.query import Noisy


class Context(NamedTuple):
    """The cavity at which sites of a batch are taken: public values."""

    mean: np.ndarray  # mean, variance: of all weights
    variance: np.ndarray
    shape: float  # shape, rate: of the Gamma noise precision; shape is above 1
    rate: float

    @property
    def precision(self) -> float:
        """One over the expected variance of the noise."""
        return (self.shape - 1) / self.rate


class Sites(NamedTuple):
    """Sites or sums of sites, or one number for each of their parts."""

    score: Any  # nu - tau m, with m the cavity's mean
    precision: Any  # tau, in units of the noise's precision
    noise: Any  # of shape and rate of the noise's precision
    number: Any  # the number of records


class BoundedLayout(NamedTuple):
    """The layout of a record's vector, and norms that its parts do not exceed."""

    layout: Layout
    bounds: Sites


class Derivatives(NamedTuple):
    """Derivatives of log Z for a batch."""

    in_mean: np.ndarray  # in_mean, in_variance
    in_variance: np.ndarray
    # error, variance, noise: y - E f, var f and the noise's variance, where the likelihood is
    # Normal
    error: np.ndarray
    variance: np.ndarray
    noise: np.ndarray


def layout_of(d: int, scales: Sites) -> Layout:
    """Lay out the `Sites` of a record, for d weights."""
    parts = map(Part, Sites((d,), (d,), (2,), (1,)), scales)
    return Layout(dict(zip(Sites._fields, parts, strict=True)))


def read(noisy: Noisy, layout: Layout, precision: float) -> NoisyAverage[Sites]:
    """Estimate sums from a release, without scales and the expected noise precision."""
    sums = Sites(**layout.unpack(noisy.value / noisy.sample_rate))
    variance = Sites(**layout.noise_variance(noisy.sd / noisy.sample_rate))
    units = np.array([1.0, precision])
    return NoisyAverage(
        sums._replace(score=sums.score * precision**0.5, noise=sums.noise / units),
        variance._replace(score=variance.score * precision, noise=variance.noise / units**2),
    )


def contribution(
    records: Records, network: Network, bounded: BoundedLayout, backend: str
) -> RowContribution:
    """Contribute sites of weights and of the noise, and a one; the context is a `Context`.

    Each part is shortened to a norm of its own, so that a record whose score is long still
    informs the noise precision; together they stay below the clip norm.
    """
    compute, (layout, bounds) = derivatives(records, network, backend), bounded
    known = network.output.precision is None

    def prepare(batch: Batch, context: Context) -> np.ndarray:
        rows = layout.pack(sites_of(compute(batch, context), context, known)._asdict())
        with np.errstate(divide="ignore", invalid="ignore"):
            for part, bound in zip(layout.slices.values(), bounds, strict=True):
                rows[:, part] *= clip_factors(row_norms(rows[:, part]), bound)[:, None]
        return rows

    return RowContribution(layout.size, 8 * network.prior.d, lambda rows, context: rows, prepare)


def sites_of(at: Derivatives, context: Context, known: bool) -> Sites:
    """Match moments, divide by the cavity, and bring sites to units of the noise's precision.

    A variance that a record would make larger stays, as v_new <= v.
    """
    curvature = np.maximum(at.in_mean**2 - 2 * at.in_variance, 0.0)
    share = np.maximum(1 - context.variance * curvature, DEFAULTS.least_tilted)
    noise = np.zeros((len(at.error), 2)) if known else noise_sites(at, context)
    return Sites(
        at.in_mean / share / context.precision**0.5,
        curvature / share / context.precision,
        noise * [1.0, context.precision],
        np.ones((len(at.error), 1)),
    )


def noise_sites(at: Derivatives, context: Context) -> np.ndarray:
    """Sites of shape and rate of the noise's precision, (rows, 2).

    Z, Z1 and Z2 are those of Gammas of shapes a, a + 1 and a + 2, each by the variance that it
    expects of the noise (Hernandez-Lobato and Adams 2015, section 2).
    """
    a, b = context.shape, context.rate
    variances = [at.variance + at.noise * (a - 1) / (a - 1 + k) for k in range(3)]
    z, z1, z2 = (-np.log(s) / 2 - at.error**2 / (2 * s) for s in variances)
    # 1 / (Z Z2 / Z1^2 (a + 1) / a - 1), and 1 / (Z2 / Z1 (a + 1) / b - Z1 / Z a / b)
    shape = 1 / np.maximum(np.expm1(z + z2 - 2 * z1) * (1 + 1 / a) + 1 / a, 1 / (2 * a))
    rate = b / np.maximum(np.exp(z2 - z1) * (a + 1) - np.exp(z1 - z) * a, 1 / DEFAULTS.longest_rate)
    return np.stack([shape - a, rate - b], axis=1)


def log_z(network: Network) -> tuple[Tensor, ...]:
    """Graphs of log Z, y - E f, var f and the noise's variance, for one record."""
    mean, variance = network.moments.pair
    both = two_derivatives(network.output.log_likelihood, network.output.cut)
    first, minus_curvature = at_zero(network, both)
    if network.output.form == GAUSSIAN:  # the log likelihood is first f - curvature f^2 / 2
        noise = -1 / minus_curvature
        error, spread = noise * first - mean, variance + noise
        return -pt.log(spread) / 2 - error**2 / (2 * spread), error, variance, noise
    sign = pt.sign(first)
    if network.output.form == PROBIT:
        value = log_cdf(sign * mean / pt.sqrt(1 + variance))
    else:  # the probit approximation of MacKay (1992), which is exact without variance
        value = -pt.softplus(-sign * mean / pt.sqrt(1 + PROBIT_SCALE**2 * variance))
    return value, sign - mean, variance, variance.ones_like()


def at_zero(network: Network, graphs: Sequence[Tensor]) -> list[Tensor]:
    """Evaluate graphs of the output where it is 0."""
    cut = network.output.cut
    zero: Tensor = pt.constant(np.zeros(cut.type.shape))
    return clone_replace(list(graphs), {cut: zero}, rebuild_strict=False)


def derivatives(
    records: Records, network: Network, backend: str
) -> Callable[[Batch, Context], Derivatives]:
    """Compile the derivatives of log Z in means and variances of all weights."""
    prior, variances = network.prior, list(network.variances.values())
    means = [records.latents[name] for name in prior.shapes]
    value, *others = (graph.sum() for graph in log_z(network))
    in_mean, in_variance = (flat_gradient(value, wrt) for wrt in (means, variances))
    # a record outside the likelihood's support must not contribute
    [log_likelihood] = at_zero(network, [network.output.log_likelihood])
    in_mean = pt.switch(abs(log_likelihood) < np.inf, in_mean, np.nan)
    evaluate = for_each_row(records, [in_mean, in_variance, *others], backend, variances)

    def compute(batch: Batch, context: Context) -> Derivatives:
        precisions = {
            name: prior.values(name, np.full(shape, context.precision))
            for name, shape in prior.gamma_shapes.items()
        }
        point = precisions | prior.point(context.mean)
        return Derivatives(*evaluate(batch, point, *prior.point(context.variance).values()))

    return compute
