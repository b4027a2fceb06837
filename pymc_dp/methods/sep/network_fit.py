"""Bayesian networks by stochastic expectation propagation: sites, start, steps and posterior.

Precision sites are averaged slowly; means move along the averaged scores at the cavity, in the
metric of the precision. With log Z of cavity times likelihood, g and c its derivatives in a
weight's mean and variance, moments m + v g and v - v^2 (g^2 - 2 c) are matched (Hernandez-Lobato
and Adams 2015, section 2), then divided by the cavity's. Units that start equal stay equal, so
weights start at public random draws. Probe records measure how long a record's vector is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.math import Dot

from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.conjugate import (
    GAMMA,
    Natural,
    NoisyBlock,
    draw,
    for_each_row,
    ones,
    probe_rows,
)
from pymc_dp.methods.linear import GAUSSIAN, PROBIT, SepOptions, at_zero
from pymc_dp.methods.method import BACKPROPAGATION, Compiled, Method
from pymc_dp.methods.normal import (
    Average,
    Gammas,
    GaussianPosterior,
    NoisyAverage,
    cavity,
    expected_precision,
    number_of,
    site_share,
    within_trust_region,
)
from pymc_dp.methods.prior import flat_gradient
from pymc_dp.methods.sep.network import DEFAULTS, PROBIT_SCALE, Network, inner, log_cdf
from pymc_dp.model import Records
from pymc_dp.model.graphs import Tensor
from pymc_dp.privacy.contribution import Batch, Noisy, Query, RowContribution
from pymc_dp.privacy.norms import clip_factors, row_norms

# mean and standard deviation of a uniform number between 0.1 and 0.9
CENTRE, SPREAD = 0.5, 0.8 / 12**0.5


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


class State(NamedTuple):
    """State of a fit: released values and what follows from them."""

    t: int
    sums: NoisyAverage[Sites]
    context: Context  # the cavity for the next batch
    mean: np.ndarray  # mean, variance: of all weights
    variance: np.ndarray
    gammas: Gammas  # {latent: natural parameters}
    average: Average  # of the last means, entry by entry
    step: float  # the length of the last step, in the metric


class _Fit(NamedTuple):
    """What the updates of one fit share: public values and compiled priors."""

    network: Network
    settings: SepOptions
    releases: int
    layout: Layout  # of a record's vector
    bounds: Sites  # norms that its parts do not exceed
    size: np.ndarray  # scales of the weights
    curvature: np.ndarray  # precisions of a probe record about them, at a noise precision of 1

    def number(self, sums: NoisyAverage[Sites]) -> float:
        """Take the declared number of records, else the released one, as far as it is known."""
        return number_of(self.settings.records_in_sums, sums.value.number[0], sums.variance.number)

    def sites_of_probes(self, number: float, gammas: Gammas) -> Sites:
        """Sites of as many probe records, none of which has a residual."""
        precision = expected_precision(self.network.output.precision, gammas)
        zero, noise = np.zeros(self.network.prior.d), number / 2 / np.array([1.0, precision])
        return Sites(zero, number * self.curvature, noise, np.array([number]))

    def length(self, t: int, noise: np.ndarray) -> float:
        """Length of step t; ``noise`` holds the deviations in the weights at length 1."""
        clipped = np.isfinite(self.bounds.score)
        longest = self.settings.step or (DEFAULTS.clipped_step if clipped else DEFAULTS.step)
        walk = self.releases**0.5 * np.sqrt(np.mean((noise / self.size) ** 2))
        decay = 1 - (1 - DEFAULTS.last_step) * t / self.releases
        return float(decay * min(longest, DEFAULTS.noise_walk / max(walk, 1e-300)))


# --- releases ----------------------------------------------------------------------------------


def build(records: Records, network: Network, settings: SepOptions) -> Method:
    """Build stochastic expectation propagation for a network.

    **Privacy.** Each release is one vector: scores and precisions of the weights' sites, the site
    of the noise's precision and a one. Every part is shortened to its share of the clip norm, and
    the whole is clipped. The clip norm is public: it comes from probe records. All else is
    post-processing.
    """
    prior = network.prior
    size = scales_of(records, network)
    start = start_of(records, network, size, np.random.default_rng(0))
    score, tau, curvature = typical_of(records, network, start, size)
    count = DEFAULTS.releases if settings.noisy else DEFAULTS.noiseless_releases
    rate = settings.batch_share(DEFAULTS.batch, DEFAULTS.sample_rate_range, DEFAULTS.sample_rate)
    release = settings.release_spec(count, DEFAULTS.clip_norm * score, rate)
    bounded = bounded_layout(release.clip_norm, tau, prior.d, network.output.precision is not None)
    fit = _Fit(network, settings, release.count, *bounded, size, curvature)
    return Method(
        size=fit.layout.size,
        releases=(release,),
        compile=lambda backend: Compiled(
            {"sites": contribution(records, network, bounded, backend)}, partial(_update, fit)
        ),
        init=lambda rng: _begin(fit, start_of(records, network, size, rng)),
        query=lambda state, rng: Query("sites", state.context),
        posterior=lambda state, draws, rng: _posterior(fit, state).draw(prior, draws, rng),
        noise_aware=lambda state, draws, rng: _posterior(fit, state).draw_with_noise(
            prior, draws, rng
        ),
        describe=lambda state: _posterior(fit, state).describe(records, prior),
        trace=lambda state: {"mean_path": (("gaussian",), state.mean), "step": ((), state.step)},
        settings={"form": "damped"},
        algorithms=(BACKPROPAGATION,),
        defaults=(DEFAULTS,),
    )


# --- the start and the layout: public values ---------------------------------------------------


def fan_ins(records: Records, network: Network) -> dict[str, int]:
    """Count, for each latent, the inputs that it is added up with where it enters a product."""
    names, lengths = list(network.prior.shapes), dict[str, int]()
    for node in toposort([network.output.psi]):
        if not isinstance(inner(node.op), Dot):
            continue
        left, right = node.inputs
        for x, axis in ((left, -1), (right, max(-2, -right.type.ndim))):
            above, length = set(ancestors([x])), x.type.shape[axis]
            entering = [name for name in names if records.latents[name] in above]
            if len(entering) == 1 and length is not None:
                lengths.setdefault(entering[0], length)
    return lengths


def scales_of(records: Records, network: Network) -> np.ndarray:
    """Size of every weight, (d,): its prior's, and at most one over the root of its fan-in."""
    prior, inputs = network.prior, fan_ins(records, network)
    _, precision = prior.natural(prior.start(), diagonal=True)
    most = [np.full(shape, inputs.get(name, 1) ** -0.5) for name, shape in prior.shapes.items()]
    return np.asarray(np.minimum(precision**-0.5, np.concatenate([x.ravel() for x in most])))


def start_of(
    records: Records, network: Network, scales: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw weights that are equal at the initial point; others stay there."""
    entering, parts = fan_ins(records, network), []
    for name, scale in network.prior.point(scales).items():
        start = records.point[name]
        if name in entering and start.size > 1 and not np.ptp(start):
            start = start + scale * rng.normal(size=start.shape)
        parts.append(start.ravel())
    return np.concatenate(parts)


def typical_of(
    records: Records, network: Network, mean: np.ndarray, scales: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Measure probe records at a start: lengths of score and precision, and the latter, (d,)."""
    prior, (_, second, _) = network.prior, at_zero(network.output)
    values = [records.latents[name] for name in prior.shapes]
    graphs = [flat_gradient(network.moments.mean.sum(), values), second.sum()]
    evaluate = for_each_row(records, graphs, "python", list(network.variances.values()))
    batch = probe_rows(records, np.random.default_rng(0), [0, 1] * (DEFAULTS.probes // 2))
    unit = {k: (x - CENTRE) / SPREAD if x.dtype.kind == "f" else x for k, x in batch.items()}
    variances = prior.point((DEFAULTS.start_sd * scales) ** 2).values()
    design_rows, minus_curvature = evaluate(unit, ones(records) | prior.point(mean), *variances)
    curvature = np.nan_to_num(-minus_curvature[:, None] * design_rows**2, posinf=0.0, neginf=0.0)
    score, tau = (float(np.median(row_norms(x))) for x in (curvature**0.5, curvature))
    return max(score, 1e-6), max(tau, 1e-6), curvature.mean(axis=0)


def bounded_layout(clip_norm: float, tau: float, d: int, with_noise: bool) -> tuple[Layout, Sites]:
    """Bound a vector's parts, for a typical precision ``tau``; an infinite norm bounds none."""
    scales, bounds = Sites(*np.ones(4)), Sites(*np.full(4, np.inf))
    if np.isfinite(clip_norm):
        noise_share = DEFAULTS.noise_share * with_noise
        shares = np.array(
            [DEFAULTS.score_share, DEFAULTS.precision_share, noise_share, DEFAULTS.number_share]
        )
        bounds = Sites(*clip_norm * shares / np.linalg.norm(shares))
        scales = Sites(
            1.0,
            bounds.precision / (DEFAULTS.longest_precision * tau),
            bounds.noise / DEFAULTS.longest_noise if with_noise else 1.0,
            bounds.number,
        )
    parts = map(Part, Sites((d,), (d,), (2,), (1,)), scales)
    return Layout(dict(zip(Sites._fields, parts, strict=True))), bounds


def _begin(fit: _Fit, mean: np.ndarray) -> State:
    """Start at a public mean, with the precisions that probe records would give."""
    gammas, d = fit.network.prior.start(), fit.network.prior.d
    number = float(fit.settings.records_in_sums or DEFAULTS.nominal_records)
    sums = NoisyAverage(fit.sites_of_probes(number, gammas), Sites(0.0, 0.0, np.zeros(2), 0.0))
    zero = np.zeros(d)
    gammas = _gammas(fit, sums, mean, zero, gammas)
    average = Average(mean, *np.zeros((3, d)))
    context = Context(mean, zero, 2.0, 1.0)
    return _with_cavity(fit, State(0, sums, context, mean, zero, gammas, average, 0.0))


# --- a record's sites --------------------------------------------------------------------------


def contribution(
    records: Records, network: Network, bounded: tuple[Layout, Sites], backend: str
) -> RowContribution:
    """Contribute sites of weights and of the noise, and a one; the context is a `Context`."""
    compute, (layout, bounds) = derivatives(records, network, backend), bounded
    known = network.output.precision is None

    def prepare(batch: Batch, context: Context) -> np.ndarray:
        rows = layout.pack(sites_of(context, known, compute(batch, context))._asdict())
        with np.errstate(divide="ignore", invalid="ignore"):
            for part, bound in zip(layout.slices.values(), bounds, strict=True):
                rows[:, part] *= clip_factors(row_norms(rows[:, part]), bound)[:, None]
        return rows

    return RowContribution(layout.size, 8 * network.prior.d, lambda rows, context: rows, prepare)


def derivatives(
    records: Records, network: Network, backend: str
) -> Callable[[Batch, Context], tuple[np.ndarray, ...]]:
    """Compile the derivatives of log Z in means and variances, and the others of `log_z`."""
    prior, variances = network.prior, list(network.variances.values())
    means = [records.latents[name] for name in prior.shapes]
    value, *others = (graph.sum() for graph in log_z(network))
    in_mean, in_variance = (flat_gradient(value, wrt) for wrt in (means, variances))
    # a record outside the likelihood's support must not contribute
    *_, log_likelihood = at_zero(network.output)
    in_mean = pt.switch(abs(log_likelihood) < np.inf, in_mean, np.nan)
    evaluate = for_each_row(records, [in_mean, in_variance, *others], backend, variances)

    def compute(batch: Batch, context: Context) -> tuple[np.ndarray, ...]:
        precisions = {
            name: prior.values(name, np.full(shape, context.precision))
            for name, shape in prior.gamma_shapes.items()
        }
        point = precisions | prior.point(context.mean)
        return evaluate(batch, point, *prior.point(context.variance).values())

    return compute


def log_z(network: Network) -> tuple[Tensor, ...]:
    """Graphs of log Z, and of Normal outcomes y - E f, var f and the noise's variance."""
    mean, variance = network.moments.pair
    first, minus_curvature, _ = at_zero(network.output)
    if network.output.form == GAUSSIAN:  # the log likelihood is first f - curvature f^2 / 2
        noise = -1 / minus_curvature
        error, spread = noise * first - mean, variance + noise
        return -pt.log(spread) / 2 - error**2 / (2 * spread), error, variance, noise
    sign = pt.sign(first)
    if network.output.form == PROBIT:
        value = log_cdf(sign * mean / pt.sqrt(1 + variance))
    else:  # the probit approximation of MacKay (1992), which is exact without variance
        value = -pt.softplus(-sign * mean / pt.sqrt(1 + PROBIT_SCALE**2 * variance))
    return (value,)


def sites_of(context: Context, known: bool, at: tuple[np.ndarray, ...]) -> Sites:
    """Match moments, divide by the cavity, and bring sites to units of the noise's precision."""
    in_mean, in_variance, *of_noise = at
    curvature = np.maximum(in_mean**2 - 2 * in_variance, 0.0)
    share = np.maximum(1 - context.variance * curvature, DEFAULTS.least_tilted)
    noise = np.zeros((len(in_mean), 2)) if known else noise_sites(context, *of_noise)
    return Sites(
        in_mean / share / context.precision**0.5,
        curvature / share / context.precision,
        noise * [1.0, context.precision],
        np.ones((len(in_mean), 1)),
    )


def noise_sites(
    context: Context, error: np.ndarray, variance: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """Sites of shape and rate of the noise's precision, (rows, 2), where outcomes are Normal.

    Z, Z1 and Z2 are those of Gammas of shapes a, a + 1 and a + 2, each by the variance that it
    expects of the noise (Hernandez-Lobato and Adams 2015, section 2).
    """
    a, b = context.shape, context.rate
    variances = [variance + noise * (a - 1) / (a - 1 + k) for k in range(3)]
    z, z1, z2 = (-np.log(s) / 2 - error**2 / (2 * s) for s in variances)
    # 1 / (Z Z2 / Z1^2 (a + 1) / a - 1), and 1 / (Z2 / Z1 (a + 1) / b - Z1 / Z a / b)
    shape = 1 / np.maximum(np.expm1(z + z2 - 2 * z1) * (1 + 1 / a) + 1 / a, 1 / (2 * a))
    rate = b / np.maximum(np.exp(z2 - z1) * (a + 1) - np.exp(z1 - z) * a, 1 / DEFAULTS.longest_rate)
    return np.stack([shape - a, rate - b], axis=1)


# --- steps and the posterior -------------------------------------------------------------------


def _update(fit: _Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Average the sites, update the Gammas, and move the mean along the averaged scores."""
    t, prior = state.t, fit.network.prior
    latest = read(noisy, fit.layout, query.context.precision)
    sums = _averaged(fit, state, latest)
    gammas = _gammas(fit, sums, state.mean, state.variance**0.5, state.gammas)
    linear, precision = prior.natural(gammas, diagonal=True)
    metric = 1 / (precision + _floored(fit, sums, gammas, DEFAULTS.least_share_in_steps))
    sd = latest.variance.score**0.5
    step = fit.length(t, sd * metric)
    pull = linear - precision * state.mean
    score = within_trust_region(
        sums.value.score + pull, (step * metric / fit.size) ** 2, DEFAULTS.trust_radius
    )
    mean = state.mean + step * metric * score
    sums = sums._replace(value=sums.value._replace(score=score - pull))
    known = precision + _floored(fit, sums, gammas, DEFAULTS.least_share)
    # a step forgets a share of the noise that is in the mean, which differs by entry
    forgets = np.minimum(step * metric * known, 1.0)
    weight = 1 / max(1, t + 1 - fit.releases // 2)  # in the average of the second half
    average = state.average.add(mean, (sd / known) ** 2, forgets, weight)
    moved = state._replace(t=t + 1, sums=sums, mean=mean, gammas=gammas, average=average, step=step)
    return _with_cavity(fit, moved)


def read(noisy: Noisy, layout: Layout, precision: float) -> NoisyAverage[Sites]:
    """Estimate sums from a release, without scales and the expected noise precision."""
    sums = Sites(**layout.unpack(noisy.value / noisy.sample_rate))
    variance = Sites(**layout.noise_variance(noisy.sd / noisy.sample_rate))
    units = np.array([1.0, precision])
    return NoisyAverage(
        sums._replace(score=sums.score * precision**0.5, noise=sums.noise / units),
        variance._replace(score=variance.score * precision, noise=variance.noise / units**2),
    )


def _averaged(fit: _Fit, state: State, latest: NoisyAverage[Sites]) -> NoisyAverage[Sites]:
    """Average released sums, each part with its own weight."""
    sums = state.sums
    if state.t == 0:
        sums = sums._replace(value=fit.sites_of_probes(fit.number(latest), state.gammas))
    # of noise in a release of the noise precision's sites
    share = float(latest.variance.noise[0]) ** 0.5 / (fit.number(sums) / 2)
    fastest = 2 * (DEFAULTS.noise_in_average / max(share, 1e-12)) ** 2
    noise_weight = min(DEFAULTS.averaging, fastest)
    momentum = 1 / max(DEFAULTS.memory * fit.releases, DEFAULTS.shortest_memory)
    weights = Sites(momentum, DEFAULTS.averaging, noise_weight, 1 / (state.t + 1))
    return sums.add(*latest, weights)


def _gammas(
    fit: _Fit, sums: NoisyAverage[Sites], mean: np.ndarray, sd: np.ndarray, gammas: Gammas
) -> Gammas:
    """Set every Gamma to its prior's message plus the released sums."""
    gammas, prior, of_noise = dict(gammas), fit.network.prior, fit.network.output.precision
    # every term of the prior holds one Gaussian latent, so two points do for all of them
    normal = [prior.point(mean + sign * sd) for sign in (1, -1)]
    for name in gammas:
        added = _noise_statistics(fit, sums) if name == of_noise else (0.0, 0.0)
        both = zip(prior.message(name, gammas, normal), added, strict=True)
        gammas[name] = tuple(np.asarray(a + b) for a, b in both)
    return gammas


def _noise_statistics(fit: _Fit, sums: NoisyAverage[Sites]) -> Natural:
    """Return shape and rate of the noise precision from the records, within their limits."""
    limits = np.multiply(DEFAULTS.shape_range, fit.number(sums))
    # a rate below the noise's standard deviation is raised to it
    rate = max(sums.value.noise[1], sums.variance.noise[1] ** 0.5)
    return np.clip(sums.value.noise[0], *limits), np.asarray(rate)


def _floored(fit: _Fit, sums: NoisyAverage[Sites], gammas: Gammas, share: float) -> np.ndarray:
    """Precision sites, raised to the noise's edge and to those of a share of the records."""
    unit = expected_precision(fit.network.output.precision, gammas)
    least = max(sums.variance.precision**0.5, share * fit.number(sums))
    return np.asarray(unit * np.maximum(sums.value.precision, least))


def _with_cavity(fit: _Fit, state: State) -> State:
    """Multiply prior and sites, and take one of N equal sites out."""
    number, sites = fit.number(state.sums), state.sums.value
    linear, precision = fit.network.prior.natural(state.gammas, diagonal=True)
    floored = _floored(fit, state.sums, state.gammas, DEFAULTS.least_share)
    mean, variance = cavity(linear, precision, floored, state.mean, number)
    share, shape, rate = site_share(number), 2.0, 1.0
    if name := fit.network.output.precision:
        a, b = (float(np.asarray(x).item()) for x in state.gammas[name])
        shape = max(a + 1 - share * sites.noise[0], DEFAULTS.least_shape)
        rate = (b - share * max(sites.noise[1], 0.0)) * shape / (a + 1)
    context = Context(mean, variance, shape, rate)
    return state._replace(context=context, variance=1 / (precision + floored))


def _posterior(fit: _Fit, state: State) -> GaussianPosterior:
    """Return the factorised posterior around the average of the means."""
    blocks = {}
    if name := fit.network.output.precision:
        eta, of_records = state.gammas[name], _noise_statistics(fit, state.sums)
        prior = tuple(a - b for a, b in zip(eta, of_records, strict=True))
        block = NoisyBlock(prior, of_records, tuple(state.sums.variance.noise))
        blocks = {name: partial(draw, GAMMA, block)}
    average = state.average
    return GaussianPosterior(average.mean, state.variance, average.noise, state.gammas, blocks)
