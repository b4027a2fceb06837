"""Stochastic expectation propagation for likelihoods of one linear predictor.

The options of `dp_sep` stand first, since other classes of models read them too. Then regressions:
the model is recognised; a record's site comes from the moments of its tilted distribution, in
closed form or by quadrature; the mean moves by damped averages of released sums
(`pymc_dp.methods.linear.regression`).

With psi ~ N(mu, s^2) under the cavity, g and beta are the first and second derivative of
log Z = log E p(y | psi) in mu, and a record's site has the natural parameters
tau = -beta / (1 + s^2 beta) and nu = tau mu + g / (1 + s^2 beta) (Minka 2001, section 3.2).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from scipy.special import erfcx

from pymc_dp.compiling.compile import function
from pymc_dp.contributions.estimating import SITES
from pymc_dp.contributions.gradients import by_record
from pymc_dp.methods.conjugate.exponential import two_derivatives
from pymc_dp.methods.linear.predictor import (
    GAUSSIAN,
    PROBIT,
    PROBIT_SLOPE,
    Features,
    Predictor,
    linear_predictor,
)
from pymc_dp.methods.linear.predictor import recognise as recognise_predictors
from pymc_dp.methods.linear.quadratic import Expect, Quadratic, scaled, variational
from pymc_dp.methods.linear.regression import Form, LinearOptions, Solved, Structure, roles_of
from pymc_dp.methods.linear.regression import build as build_regression
from pymc_dp.methods.method import EXPECTATION_PROPAGATION, Method, OnRealLine
from pymc_dp.methods.normal import Cavity, cavity, gaussian_prior
from pymc_dp.methods.options import SAMPLE_RATE, NotConjugateError, Options, option
from pymc_dp.model import Records
from pymc_dp.model.graphs import Tensor
from pymc_dp.privacy.contribution import Batch


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    step: float = 0.7  # h in lambda <- (1 - h) lambda + h (sum of sites)
    # Gauss-Hermite nodes, Newton steps towards the mode of a tilted density, and how far in psi
    # one of them may go
    nodes: int = 20
    newton_steps: int = 10
    longest_newton_step: float = 3.0
    # standard deviations of a cavity below which derivatives of the likelihood are averaged
    narrow: float = 0.1
    least_tilted: float = 1e-6  # a tilted variance is at least this share of the cavity's


DEFAULTS = Defaults()
STEP_DOC = "damping h in ``lambda <- (1 - h) lambda + h (sum of sites)``"


@dataclass(frozen=True, kw_only=True)
class Settings(LinearOptions):
    """The options of `dp_sep`; None stands for the default of the model's class."""

    released = "sites"

    form: str | None = option(None, "``damped``, or the paper's ``algorithm3`` for reproduction")
    step: float | None = option(None, STEP_DOC)

    def __post_init__(self) -> None:
        super().__post_init__()
        # gamma of Algorithm 3 is divided by the number of records
        literal = self.form == "algorithm3"
        longest = (self.num_records or math.inf) if literal else 1
        if self.step is not None and not 0 < self.step <= longest:
            raise ValueError(f"step={self.step!r} must lie above 0, and be at most {longest}.")
        if self.clip_norm is not None and math.isnan(self.clip_norm):
            raise ValueError("clip_norm=nan is no bound.")

    def rate(self, t: int) -> float:
        """Weight of the sites of release t = 0, 1, ... in lambda; the first replaces the start."""
        return 1.0 if t == 0 else (DEFAULTS.step if self.step is None else self.step)


@dataclass(frozen=True, kw_only=True)
class PlainSettings(Options):
    """The options of `sep`, which neither clips nor adds noise."""

    sample_rate: float | None = option(None, SAMPLE_RATE)
    step: float | None = option(None, STEP_DOC)


UNLIKELY = -1e4  # standard normal quantile below which z + phi(z) / Phi(z) is -1/z, to rounding

# (batch, psi of shape (rows, K)) -> log likelihood and its two derivatives in psi, (rows, K) each
Along = Callable[[Batch, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


class LogZ(NamedTuple):
    """Derivatives of log Z in the cavity's mean: g and beta, shape (rows,) each."""

    slope: np.ndarray
    curvature: np.ndarray


def recognise(records: Records) -> Structure:
    """Prove, at probe points, that every likelihood has one linear predictor."""
    predictors = recognise_predictors(records, linear_predictor)
    for name, each in zip(records.term_names, predictors, strict=True):
        if each.form != GAUSSIAN and np.prod(each.shape) != 1:
            raise NotConjugateError(
                f"the likelihood of `{name}` has several predictors, and is not Gaussian"
            )
    return Structure(predictors, gaussian_prior(records))


def roles(records: Records, structure: Structure) -> dict[str, str]:
    """Describe the role of each latent and each term in the updates."""
    how = {GAUSSIAN: "exact sites", PROBIT: "tilted moments in closed form"}
    return roles_of(
        records, structure, lambda each: how.get(each.form, "tilted moments by quadrature")
    )


def sites(records: Records, predictor: Predictor, backend: str) -> Expect:
    """Compile a record's site in psi from the cavity's mean and variance."""
    if predictor.form == GAUSSIAN:
        return variational(predictor)
    if predictor.form == PROBIT:
        return _closed
    along = likelihood_of_psi(records, predictor, backend)

    def expect(batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray) -> Quadratic:
        log_z = quadrature(along, batch, mean[:, 0], variance[:, 0])
        return Quadratic(*(x[:, None] for x in site(log_z, variance[:, 0])))

    return expect


def _closed(batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray) -> Quadratic:
    # log Phi(c psi), with c from its slope at psi = 0
    c = part.slope / PROBIT_SLOPE
    mean, variance = c * mean, c**2 * variance
    residual, precision = site(probit(mean, variance), variance)
    return Quadratic(c * residual, c**2 * precision)


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
    # where z + ratio is rounded off, it is 1 / ratio
    curvature = np.where(z < UNLIKELY, 1.0, ratio * (z + ratio))
    return LogZ(ratio / scale, -curvature / scale**2)


def likelihood_of_psi(records: Records, predictor: Predictor, backend: str) -> Along:
    """Compile a record's log likelihood as a function of its linear predictor alone."""
    value, cut = predictor.log_likelihood, predictor.cut
    graphs: list[Tensor] = [value, *two_derivatives(value, cut)]
    points: Tensor = pt.vector("points", dtype="float64")
    along = {cut: points.reshape((-1, *(1,) * cut.ndim))}
    each = vectorize_graph([graph.sum() for graph in graphs], along)
    psi = pt.matrix("psi", dtype="float64")
    inputs = records.batch.inputs
    # psi is nan where an index is out of bounds, see `features`
    rows = by_record(records, each, {points: psi})
    fn = function([psi, *inputs.values()], rows, backend)
    return lambda batch, psi: tuple(fn(psi, *[batch[name] for name in inputs]))


def quadrature(along: Along, batch: Batch, mean: np.ndarray, variance: np.ndarray) -> LogZ:
    """Gauss-Hermite quadrature around the mode of each record's tilted density.

    Moments of u = (psi - mu) / s and derivatives of the likelihood are equivalent. Moments are
    more accurate where the cavity is wide, and undefined where it has no width.
    """
    scale = np.sqrt(variance)
    mode, width = _laplace(along, batch, mean, scale)
    x, weights = np.polynomial.hermite.hermgauss(DEFAULTS.nodes)
    u = mode[:, None] + 2**0.5 * width[:, None] * x
    value, slope, second = along(batch, mean[:, None] + scale[:, None] * u)
    log_mass = value - u**2 / 2 + x**2 + np.log(weights)
    mass = np.exp(log_mass - log_mass.max(axis=1, keepdims=True))
    mass /= mass.sum(axis=1, keepdims=True)
    # outside the support there is no mass, and derivatives are undefined
    slope, second = (np.where(mass > 0, values, 0.0) for values in (slope, second))
    first = np.vecdot(mass, slope)
    narrow = LogZ(first, np.vecdot(mass, second + slope**2) - first**2)
    centre, safe = np.vecdot(mass, u), np.maximum(scale, DEFAULTS.narrow)
    wide = LogZ(centre / safe, (np.vecdot(mass, (u - centre[:, None]) ** 2) - 1) / safe**2)
    return LogZ(
        *(np.where(scale > DEFAULTS.narrow, *both) for both in zip(wide, narrow, strict=True))
    )


def _laplace(
    along: Along, batch: Batch, mean: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mode and width of the tilted density of u = (psi - mu) / s, by a fixed number of steps."""
    u = np.zeros(len(mean))
    farthest = DEFAULTS.longest_newton_step / np.maximum(scale, 1e-300)
    for _ in range(DEFAULTS.newton_steps):
        _, slope, second = (x[:, 0] for x in along(batch, (mean + scale * u)[:, None]))
        precision = 1 + scale**2 * np.maximum(-second, 0.0)
        u = u + np.clip((scale * slope - u) / precision, -farthest, farthest)
    return u, precision**-0.5


def site(log_z: LogZ, variance: np.ndarray) -> Quadratic:
    """Divide the tilted density's Gaussian by the cavity, of variance s^2: nu - tau mu, and tau.

    >>> import numpy as np
    >>> y, mu, variance = 2.0, 0.5, 3.0  # a Gaussian likelihood with noise of variance 1
    >>> known = LogZ(np.array([(y - mu) / (1 + variance)]), np.array([-1 / (1 + variance)]))
    >>> site(known, np.array([variance]))
    Quadratic(residual=array([1.5]), weight=array([1.]))
    """
    share = np.maximum(1 + variance * log_z.curvature, DEFAULTS.least_tilted)
    return Quadratic(log_z.slope / share, -log_z.curvature / share)


def cavity_of(solved: Solved, mean: np.ndarray, number: float) -> Cavity:
    """Take one of N equal sites out of the posterior."""
    sites = np.linalg.inv(solved.step_covariance) - solved.precision
    return cavity(solved.linear, solved.precision, sites, mean, number)


DAMPED = Form(
    title="damped",
    algorithm=EXPECTATION_PROPAGATION,
    expect=sites,
    next_context=cavity_of,
    scaled=scaled,
    step=DEFAULTS.step,
    defaults=(DEFAULTS,),
)


def build(records: Records, structure: Structure, settings: Settings) -> Method | OnRealLine:
    """Build a method for linear predictors: by default rounds, else damped updates of sites."""
    if rounds := settings.rounds_from(estimating=SITES):
        return rounds
    form = DAMPED if settings.step is None else DAMPED._replace(step=settings.step)
    return build_regression(records, structure, settings, form)
