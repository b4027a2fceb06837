"""Tilted moments along one linear predictor: log Z of a Gaussian cavity times a likelihood.

With psi ~ N(mu, s^2) under the cavity, g and beta are the first and second derivative of
log Z = log E p(y | psi) in mu, and a record's site has the natural parameters
tau = -beta / (1 + s^2 beta) and nu = tau mu + g / (1 + s^2 beta) (Minka 2001, section 3.2).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from scipy.special import erfcx

from pymc_dp.compile import function
from pymc_dp.contributions.contribution import Batch
from pymc_dp.contributions.gradients import by_record
from pymc_dp.methods.blocks.exponential import slopes
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.records import Records

NODES = 20
# steps towards the mode of the tilted density, and how far in psi one of them may go
NEWTON_STEPS, REACH = 10, 3.0
# standard deviations of a cavity below which derivatives of the likelihood are averaged
NARROW = 0.1
# standard normal quantile below which z + phi(z) / Phi(z) is -1/z, to rounding
UNLIKELY = -1e4
# a tilted variance is at least this share of the cavity's, and a site not ever more certain
LEAST_SHARE = 1e-6

# (batch, psi of shape (rows, K)) -> log likelihood and its two derivatives in psi, (rows, K) each
Along = Callable[[Batch, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


class LogZ(NamedTuple):
    """Derivatives of log Z in the cavity's mean: g and beta, shape (rows,) each."""

    slope: np.ndarray
    curvature: np.ndarray


class Site(NamedTuple):
    """A site around the cavity's mean: nu - tau mu, and tau, shape (rows,) each."""

    residual: np.ndarray
    precision: np.ndarray


def site(log_z: LogZ, variance: np.ndarray) -> Site:
    """Divide the tilted density's Gaussian by the cavity, of variance s^2.

    >>> import numpy as np
    >>> y, mu, variance = 2.0, 0.5, 3.0  # a Gaussian likelihood with noise of variance 1
    >>> known = LogZ(np.array([(y - mu) / (1 + variance)]), np.array([-1 / (1 + variance)]))
    >>> site(known, np.array([variance]))
    Site(residual=array([1.5]), precision=array([1.]))
    """
    share = np.maximum(1 + variance * log_z.curvature, LEAST_SHARE)
    return Site(log_z.slope / share, -log_z.curvature / share)


def probit(mean: np.ndarray, variance: np.ndarray) -> LogZ:
    """Closed form for p(y | psi) = Phi(psi).

    >>> import numpy as np
    >>> probit(np.array([0.0, -1e9, 1e9]), np.zeros(3))
    LogZ(slope=array([7.97884561e-01, 1.00000000e+09, 0.00000000e+00]),
         curvature=array([-0.63661977, -1.        , -0.        ]))
    """
    scale = np.sqrt(1 + variance)
    z = mean / scale
    # the density over the distribution function, which both underflow for an unlikely outcome
    ratio = (2 / np.pi) ** 0.5 / erfcx(-z / 2**0.5)
    # where z + ratio is lost in rounding, it is 1 / ratio
    curvature = np.where(z < UNLIKELY, 1.0, ratio * (z + ratio))
    return LogZ(ratio / scale, -curvature / scale**2)


def quadrature(along: Along, batch: Batch, mean: np.ndarray, variance: np.ndarray) -> LogZ:
    """Gauss-Hermite quadrature around the mode of each record's tilted density.

    Moments of u = (psi - mu) / s say the same as derivatives of the likelihood. They are better
    where the cavity is wide, and say nothing where it has no width.
    """
    scale = np.sqrt(variance)
    mode, width = _laplace(along, batch, mean, scale)
    x, weights = np.polynomial.hermite.hermgauss(NODES)
    u = mode[:, None] + 2**0.5 * width[:, None] * x
    value, slope, second = along(batch, mean[:, None] + scale[:, None] * u)
    log_mass = value - u**2 / 2 + x**2 + np.log(weights)
    mass = np.exp(log_mass - log_mass.max(axis=1, keepdims=True))
    mass /= mass.sum(axis=1, keepdims=True)
    # outside the support derivatives mean nothing, and there is no mass either
    slope, second = (np.where(mass > 0, values, 0.0) for values in (slope, second))
    first = np.vecdot(mass, slope)
    narrow = LogZ(first, np.vecdot(mass, second + slope**2) - first**2)
    centre, safe = np.vecdot(mass, u), np.maximum(scale, NARROW)
    wide = LogZ(centre / safe, (np.vecdot(mass, (u - centre[:, None]) ** 2) - 1) / safe**2)
    return LogZ(*(np.where(scale > NARROW, *both) for both in zip(wide, narrow, strict=True)))


def _laplace(
    along: Along, batch: Batch, mean: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mode and width of the tilted density of u = (psi - mu) / s, by a fixed number of steps."""
    u = np.zeros(len(mean))
    farthest = REACH / np.maximum(scale, 1e-300)
    for _ in range(NEWTON_STEPS):
        _, slope, second = (x[:, 0] for x in along(batch, (mean + scale * u)[:, None]))
        precision = 1 + scale**2 * np.maximum(-second, 0.0)
        u = u + np.clip((scale * slope - u) / precision, -farthest, farthest)
    return u, precision**-0.5


def likelihood_along(records: Records, predictor: Predictor, backend: str) -> Along:
    """Compile a record's log likelihood as a function of its linear predictor alone."""
    cut = predictor.cut
    graphs = [x.sum() for x in (predictor.log_likelihood, *slopes(predictor.log_likelihood, cut))]
    points = pt.vector("points", dtype="float64")
    each = vectorize_graph(graphs, {cut: points.reshape((-1, *(1,) * cut.ndim))})
    psi = pt.matrix("psi", dtype="float64")
    inputs = records.batch.inputs
    # psi is nan where an index points nowhere, see `features`
    rows = by_record(records, each, {points: psi})
    fn = function([psi, *inputs.values()], rows, backend)
    return lambda batch, psi: tuple(fn(psi, *[batch[name] for name in inputs]))
