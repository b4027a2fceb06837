"""Updates to the letter of their papers: VIPS, expectation propagation, algorithm 3; topics.

A likelihood of one linear predictor psi = A v + psi_0 is made quadratic at the current posterior:
by Pólya-Gamma variables (VIPS, Park et al. 2020), or by a site that matches the moments of the
tilted distribution (stochastic expectation propagation, Li et al. 2015; DP-SEP, Vinaroz and Park
2022). Each record then adds one vector of score, curvature, statistics of the noise precision and
a one. Releases of their sum are averaged, and the averages give the next posterior.

A site. With psi ~ N(mu, s^2) under the cavity, g and beta are the first and second derivative of
log Z = log E p(y | psi) in mu, and its natural parameters are tau = -beta / (1 + s^2 beta) and
nu = tau mu + g / (1 + s^2 beta) (Minka 2001, section 3.2).

Algorithm 3 of the DP-SEP paper leaves a share exp(-gamma T / N) of the way after T passes.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import batched
from math import prod
from typing import Any, NamedTuple, Self

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace, vectorize_graph
from scipy.special import erfcx

from pymc_dp.accounting.plan import ReleaseSpec
from pymc_dp.contributions.gradients import by_record
from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.conjugate import (
    Natural,
    gaussian_latents,
    geometric_mean,
    precision_family,
    probe_rows,
)
from pymc_dp.methods.linear import (
    GAUSSIAN,
    OTHER,
    PROBIT,
    PROBIT_SLOPE,
    Predictor,
    SepOptions,
    Structure,
    VipsOptions,
    pg_weight,
    where_zero,
)
from pymc_dp.methods.method import (
    BY_ROUNDS,
    EXPECTATION_PROPAGATION,
    VARIATIONAL_BAYES,
    Compiled,
    Doubt,
    Method,
    uncentred,
)
from pymc_dp.methods.normal import (
    Gammas,
    GaussianPosterior,
    NoisyAverage,
    Solved,
    cavity,
    expected_precision,
    floored,
    number_of,
    solve,
    spectral_edge,
    within_trust_region,
)
from pymc_dp.methods.prior import flat_gradient, two_derivatives
from pymc_dp.methods.vips import topics
from pymc_dp.model import Records
from pymc_dp.model.compilation import function
from pymc_dp.model.graphs import Tensor
from pymc_dp.privacy.contribution import Batch, FactoredContribution, Noisy, Query
from pymc_dp.privacy.norms import SQUARES, joint_norms, product, rounded_product, row_norms


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    releases: int = 10
    noiseless_releases: int = 100  # without noise, more steps have no cost
    # the clip norm, in typical lengths of a score for features of unit scale, and its range
    clip_norm: float = 1.2
    clip_norm_range: tuple[float, float] = (1.0, 10.0)
    count_share: float = 0.1  # of the clip norm, that the count takes
    # eigenvalues of a curvature below this share of the noise's edge are raised to it
    floor: float = 0.5
    trust_radius: float = 1.0  # of steps, in prior sds, where a likelihood is no parabola
    ratio: float = 4.0  # VIPS: of the paper's two sensitivities, 2 and 1/2
    # tilted moments: Gauss-Hermite nodes, Newton steps towards the mode, and the longest in psi
    nodes: int = 20
    newton_steps: int = 10
    longest_newton_step: float = 3.0
    narrow: float = 0.1  # sd of a cavity below which derivatives of the likelihood are averaged
    least_tilted: float = 1e-6  # a tilted variance is at least this share of the cavity's
    # algorithm 3: passes over the data, gamma and clip norm of the paper's experiments; natural
    # parameters are clipped unscaled, and the count of records is not used
    passes: int = 100
    damping: float = 1.0
    clip_norm_of_sites: float = 1.0
    count_scale: float = 1e-6


DEFAULTS = Defaults()
ALGORITHM_3 = "stochastic expectation propagation, algorithm 3 (Vinaroz and Park 2022)"

# longest row of a design: the least double, times its outer product, is 1e-44
LONGEST_ROW = SQUARES[1]
UNLIKELY = -1e4  # standard normal quantile below which z + phi(z) / Phi(z) is -1/z, to rounding
TINY = 1e-300


# --- a record's vector -------------------------------------------------------------------------


class Features(NamedTuple):
    """The likelihood of records where all Gaussian latents are 0, or its graphs."""

    offset: Any  # psi
    # slope, curvature: kappa and omega of the log likelihood kappa psi - omega psi^2 / 2 + const,
    # at a noise precision of 1; the curvature of an augmented likelihood is the one at psi = 0
    slope: Any
    curvature: Any
    # shape, energy: the statistics (a, b) of the noise precision where psi = 0; zero where it has
    # none
    shape: Any
    energy: Any
    design: Any = None  # derivatives of psi with respect to the Gaussian latents


Pair = tuple[np.ndarray, np.ndarray]
Gaussian = Pair  # mean, covariance
# (batch, features, mean of psi, its variance) -> slope, weight of likelihoods that were made
# exp(slope psi - weight psi^2 / 2); numbers have shape (rows, J)
Expect = Callable[[Batch, Features, np.ndarray, np.ndarray], Pair]


class Sums(NamedTuple):
    """Sums over records for each of P predictors, at a noise precision of 1."""

    score: Any  # sum A' (slope - weight psi_0)
    curvature: Any  # sum A' weight A
    shape: Any  # shape, energy: statistics of the noise precisions
    energy: Any
    number: Any  # the number of records


def layout_of(predictors: int, d: int) -> Layout:
    """Lay out the `Sums` of a record, with all scales at 1."""
    parts = {
        "score": Part((predictors, d)),
        "curvature": Part((predictors, d, d), symmetric=True),
        "shape": Part((predictors,)),
        "energy": Part((predictors,)),
        "number": Part(()),
    }
    return Layout(parts)


class Moments(NamedTuple):
    """Records at the current posterior; norms and sums read the same numbers."""

    # a record's score is score_factor * score_row, (rows,) and (rows, d). Entries of psi are summed
    # once: they may cancel, and differently in a norm and in a weighted sum
    score_row: np.ndarray
    score_factor: np.ndarray
    design: np.ndarray  # A, (rows, J, d)
    weight: np.ndarray  # (rows, J)
    shape: np.ndarray  # shape, energy: statistics of the noise precision
    energy: np.ndarray


def contribution(
    records: Records, structure: Structure, layout: Layout, expects: Sequence[Expect], backend: str
) -> FactoredContribution:
    """Contribute scores, curvatures, noise statistics and a one.

    The context is the Gaussian posterior, or the cavity, at which they are taken: public values.
    """
    predictors, prior = structure
    compute = features(records, predictors, backend)
    scales = Sums(*[layout.parts[name].scale for name in Sums._fields])

    def prepare(batch: Batch, context: Gaussian) -> list[Moments]:
        parts = zip(predictors, expects, compute(batch), strict=True)
        return [moments(batch, *each, *context) for each in parts]

    def norms(parts: list[Moments], context: Gaussian) -> np.ndarray:
        return joint_norms(
            *[norm for part in parts for norm in part_norms(part, scales)], scales.number
        )

    def weighted_sum(parts: list[Moments], context: Gaussian, weights: np.ndarray) -> np.ndarray:
        sums = zip(*[part_sums(part, weights) for part in parts], strict=True)
        values = dict(zip(Sums._fields, [*map(np.stack, sums), weights.sum()], strict=True))
        return layout.pack(values)

    # J outer products a record, each a row of the sum, whose norms add up to sqrt(J) at most
    norm = max(prod(predictor.shape) for predictor in predictors) ** 1.5
    return FactoredContribution(
        layout.size, 4 * prior.d, norms, weighted_sum, prepare, parts_norm=norm
    )


def features(
    records: Records, predictors: tuple[Predictor, ...], backend: str
) -> Callable[[Batch], list[Features]]:
    """Compile the features of a batch, one value for each predictor."""
    gaussian = [records.latents[name] for name in gaussian_latents(records)]

    def design(p: Predictor) -> Tensor:
        # one entry of psi at a time, which keeps shapes static
        entries = np.eye(prod(p.shape)).reshape(-1, *p.shape)
        return pt.stack([flat_gradient((p.psi * one).sum(), gaussian) for one in entries])

    parts = [(design(p), *expansion_graphs(records, p)[:-1]) for p in predictors]
    evaluate = where_zero(records, [graph for part in parts for graph in part], backend)

    def compute(batch: Batch) -> list[Features]:
        values = batched(evaluate(batch), len(Features._fields))
        return [by_entry(rest)._replace(design=design) for design, *rest in values]

    return compute


def by_entry(values: Sequence[np.ndarray]) -> Features:
    """Bring offset, slope and curvature to shape (rows, J)."""
    *by_entry, shape, energy = values
    offset, slope, curvature = (x.reshape(len(shape), -1) for x in by_entry)
    return Features(offset, slope, curvature, shape, energy)


def expansion_graphs(records: Records, predictor: Predictor) -> Features:
    """Return the graphs of one record's expansion; none depends on the latents."""
    log_likelihood, precision = predictor.log_likelihood, predictor.precision
    derivatives: tuple[Tensor, ...] = two_derivatives(log_likelihood, predictor.cut)
    slope, minus_curvature = derivatives
    statistics: tuple[Tensor, ...] = (pt.constant(0.0), pt.constant(0.0))
    if precision:
        family = precision_family(records, precision)
        statistics = family.statistics(log_likelihood, records.latents[precision])
    # a record outside the likelihood's support must not contribute
    shape, rate = (pt.switch(pt.isinf(log_likelihood), np.nan, x.sum()) for x in statistics)
    graphs = [predictor.psi, slope, -minus_curvature, shape, rate]
    zeros = {predictor.cut: predictor.psi.zeros_like()}
    return Features(*clone_replace(graphs, zeros, rebuild_strict=False))


def moments(
    batch: Batch,
    predictor: Predictor,
    expect: Expect,
    part: Features,
    mean: np.ndarray,
    covariance: np.ndarray,
) -> Moments:
    """E-step: moments of each record around the current psi."""
    count, entries, d = part.design.shape
    rows = part.design.reshape(-1, d)  # products of matrices: NumPy loops over stacks of small ones
    psi = part.offset + product(rows, mean).reshape(count, entries)
    spread = np.vecdot(rounded_product(rows, covariance), rows).reshape(count, entries)
    spread = np.maximum(spread, 0.0)
    slope, weight = expect(batch, part, psi, spread)
    score = slope - weight * part.offset
    energy = 0 * part.shape  # nan outside the support
    if predictor.precision:  # b - kappa psi + omega psi^2 / 2, in expectation
        energy = part.energy + (weight * (psi**2 + spread) / 2 - part.slope * psi).sum(axis=1)
    if entries == 1:
        score_row, score_factor = rows, score[:, 0]
    else:
        score_row = np.einsum("njd,nj->nd", part.design, score)
        score_factor = np.ones(count)
    return Moments(score_row, score_factor, part.design, weight, part.shape, energy)


def part_norms(part: Moments, scales: Sums) -> list[np.ndarray]:
    """Norms of a record's score and curvature, and its two noise statistics."""
    lengths, weight = row_norms(part.score_row), np.abs(part.weight)
    if part.design.shape[1] == 1:  # the score's row is that of the design
        lengths = np.where(lengths > LONGEST_ROW, np.inf, lengths)
        curvature = weight[:, 0] * lengths * lengths
    else:
        longest = np.maximum(lengths, row_norms(part.design))
        lengths = np.where(longest > LONGEST_ROW, np.inf, lengths)
        # signs can only make the sum of outer products shorter
        root = part.design * np.sqrt(weight)[:, :, None]
        curvature = row_norms(root @ root.transpose(0, 2, 1))
    noise = [scales.shape * part.shape, scales.energy * part.energy]
    return [np.abs(part.score_factor) * lengths, scales.curvature * curvature, *noise]


def part_sums(part: Moments, weights: np.ndarray) -> tuple[np.ndarray, ...]:
    """Weighted sums of scores, curvatures and noise statistics over records."""
    rows = part.design.reshape(-1, part.design.shape[2])
    weighted = (weights[:, None] * part.weight).ravel()
    score = (weights * part.score_factor) @ part.score_row
    curvature = (rows * weighted[:, None]).T @ rows
    return score, curvature, weights @ part.shape, weights @ part.energy


# --- likelihoods that are made quadratic -------------------------------------------------------


def variational(records: Records, predictor: Predictor, backend: str) -> Expect:
    """Make a likelihood quadratic by Pólya-Gamma means omega at c^2 = E psi^2, if need be."""

    def expect(batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray) -> Pair:
        weight = part.curvature
        if predictor.augmented:
            weight = weight * pg_weight(np.sqrt(mean**2 + variance))
        return part.slope, weight

    return expect


# (batch, psi of shape (rows, K)) -> log likelihood and its two derivatives in psi, (rows, K) each
Along = Callable[[Batch, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


def sites(records: Records, predictor: Predictor, backend: str) -> Expect:
    """Compile a record's site in psi from the cavity's mean and variance."""
    if predictor.form == GAUSSIAN:
        return variational(records, predictor, backend)
    if predictor.form == PROBIT:
        return _closed
    along = likelihood_of_psi(records, predictor, backend)

    def expect(batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray) -> Pair:
        log_z = quadrature(along, batch, mean[:, 0], variance[:, 0])
        slope, weight = site(log_z, mean[:, 0], variance[:, 0])
        return slope[:, None], weight[:, None]

    return expect


def _closed(batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray) -> Pair:
    # log Phi(c psi), with c from its slope at psi = 0
    c = part.slope / PROBIT_SLOPE
    mean, variance = c * mean, c**2 * variance
    slope, precision = site(probit(mean, variance), mean, variance)
    return c * slope, c**2 * precision


def probit(mean: np.ndarray, variance: np.ndarray) -> Pair:
    """Return slope and curvature of log Z for p(y | psi) = Phi(psi), in closed form."""
    scale = np.sqrt(1 + variance)
    z = mean / scale
    # the density over the distribution function, which both underflow for an unlikely outcome
    ratio = (2 / np.pi) ** 0.5 / erfcx(-z / 2**0.5)
    # where z + ratio is rounded off, it is 1 / ratio
    curvature = np.where(z < UNLIKELY, 1.0, ratio * (z + ratio))
    return ratio / scale, -curvature / scale**2


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


def quadrature(along: Along, batch: Batch, mean: np.ndarray, variance: np.ndarray) -> Pair:
    """Return slope and curvature of log Z, by quadrature around the mode of the tilted density."""
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
    narrow = first, np.vecdot(mass, second + slope**2) - first**2
    centre, safe = np.vecdot(mass, u), np.maximum(scale, DEFAULTS.narrow)
    wide = centre / safe, (np.vecdot(mass, (u - centre[:, None]) ** 2) - 1) / safe**2
    slope, curvature = (
        np.where(scale > DEFAULTS.narrow, *both) for both in zip(wide, narrow, strict=True)
    )
    return slope, curvature


def _laplace(
    along: Along, batch: Batch, mean: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mode and width of the tilted density of u = (psi - mu) / s, by a fixed number of steps."""
    u = np.zeros(len(mean))
    farthest = DEFAULTS.longest_newton_step / np.maximum(scale, TINY)
    for _ in range(DEFAULTS.newton_steps):
        _, slope, second = (x[:, 0] for x in along(batch, (mean + scale * u)[:, None]))
        precision = 1 + scale**2 * np.maximum(-second, 0.0)
        u = u + np.clip((scale * slope - u) / precision, -farthest, farthest)
    return u, precision**-0.5


def site(log_z: Pair, mean: np.ndarray, variance: np.ndarray) -> Pair:
    """Divide the tilted density's Gaussian by the cavity, N(mu, s^2): nu and tau."""
    slope, curvature = log_z
    share = np.maximum(1 + variance * curvature, DEFAULTS.least_tilted)
    weight = -curvature / share
    return slope / share + weight * mean, weight


# --- the method --------------------------------------------------------------------------------


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them."""

    t: int
    sums: NoisyAverage[Sums]  # released sums, averaged
    mean: np.ndarray
    solved: Solved
    context: Gaussian  # of the next batch


class Fit(NamedTuple):
    """A model, how a paper makes its likelihoods quadratic and averages their sums, and updates."""

    structure: Structure
    number: int | None  # of records, where it is declared
    title: str
    algorithm: str
    expect: Callable[[Records, Predictor, str], Expect]  # (records, predictor, backend) -> Expect
    rate: Callable[[int], float]  # t -> weight of release t = 0, 1, ... in the averages
    # (solved, mean, number of records) -> (mean, covariance) at which the next batch is taken
    next_context: Callable[[Solved, np.ndarray, float], Gaussian]
    layout: Layout  # of a record's vector
    longest: float = math.inf  # of the averages, as a vector

    def weights(self, gammas: Gammas) -> np.ndarray:
        """Expected noise precision of each predictor."""
        precisions = [predictor.precision for predictor in self.structure.predictors]
        return np.array([expected_precision(name, gammas) for name in precisions])

    def solve(self, sums: NoisyAverage[Sums], mean: np.ndarray, gammas: Gammas) -> Solved:
        """Update precisions and the covariance; eigenvalues that noise hides are raised."""
        edge = spectral_edge(sums.variance.curvature, len(mean))

        def curvature(gammas: Gammas) -> np.ndarray:
            weights = self.weights(gammas)
            least = DEFAULTS.floor * edge * float(np.linalg.norm(weights))
            return floored(np.tensordot(weights, sums.value.curvature, axes=1), least)

        # each noise precision's shape and energy, as far as they exceed their noise
        found: dict[str, Natural] = {}
        least = [max(float(v) ** 0.5, TINY) for v in (sums.variance.shape, sums.variance.energy)]
        for i, predictor in enumerate(self.structure.predictors):
            if name := predictor.precision:
                both = (sums.value.shape[i], sums.value.energy[i])
                own = [np.maximum(x, low) for x, low in zip(both, least, strict=True)]
                before = found.get(name, (np.zeros(()), np.zeros(())))
                found[name] = tuple(a + b for a, b in zip(before, own, strict=True))
        return solve(self.structure.prior, curvature, mean, gammas, found)

    def state(self, t: int, sums: NoisyAverage[Sums], before: np.ndarray, gammas: Gammas) -> State:
        """Solve with averaged sums: m = V (h0 + n1)."""
        solved = self.solve(sums, before, gammas)
        score = self.weights(solved.gammas) @ sums.value.score
        mean = solved.covariance @ (score + solved.linear)
        if any(predictor.form != GAUSSIAN for predictor in self.structure.predictors):
            precision = np.diag(solved.precision)
            mean = before + within_trust_region(mean - before, precision, DEFAULTS.trust_radius)
        number = number_of(self.number, sums.value.number, sums.variance.number)
        return State(t, sums, mean, solved, self.next_context(solved, mean, number))

    def start(self) -> State:
        """Start at the prior, without sums."""
        nothing = Sums(**self.layout.unpack(np.zeros(self.layout.size)))
        average, prior = NoisyAverage(nothing, Sums(*np.zeros(5))), self.structure.prior
        state = self.state(0, average, np.zeros(prior.d), prior.start())
        # as if the latents were known: under a wide prior nearly nothing would be said of them
        mean, covariance = state.context
        return state._replace(context=(mean, 0 * covariance))

    def update(self, state: State, query: Query, noisy: Noisy) -> State:
        """Average a release with those before it."""
        latest = Sums(**self.layout.unpack(noisy.value / noisy.sample_rate))
        noise = Sums(**self.layout.noise_variance(noisy.sd / noisy.sample_rate))
        sums = state.sums.add(latest, noise, self.rate(state.t))
        length = float(np.linalg.norm(self.layout.pack(sums.value._asdict())))
        if length > self.longest:
            shorter = (x * (self.longest / length) for x in sums.value)
            sums = sums._replace(value=Sums(*shorter))
        return self.state(state.t + 1, sums, state.mean, state.solved.gammas)

    def posterior(self, state: State) -> GaussianPosterior:
        """Add the noise: of (S + E) m = g the part E m varies by s^2 (|m|^2 I + m m') / 2."""
        mean, solved, variance = state.mean, state.solved, state.sums.variance
        weights = self.weights(solved.gammas)
        of_mean = (mean @ mean) * np.eye(len(mean)) + np.outer(mean, mean)
        of_slope = variance.score * np.eye(len(mean)) + variance.curvature / 2 * of_mean
        V = solved.covariance
        noise = V @ (weights @ weights * of_slope) @ V
        return GaussianPosterior(mean, V, noise, solved.gammas)


def build(records: Records, fit: Fit, release: ReleaseSpec) -> Method:
    """Build a paper's fit.

    **Privacy.** Each release is one vector: score, curvature (its upper triangle, off-diagonals
    times sqrt 2), noise statistics and a one, clipped jointly. All else is post-processing.
    """
    predictors, prior = fit.structure

    def compile_parts(backend: str) -> Compiled:
        expects = [fit.expect(records, predictor, backend) for predictor in predictors]
        sums = contribution(records, fit.structure, fit.layout, expects, backend)
        return Compiled({release.name: sums}, fit.update)

    skewed = [
        name
        for name, predictor in zip(records.term_names, predictors, strict=True)
        if predictor.form == OTHER and math.isfinite(release.clip_norm)
    ]
    doubts: tuple[Doubt, ...] = (uncentred(skewed, BY_ROUNDS),) if skewed else ()
    return Method(
        size=fit.layout.size,
        releases=(release,),
        compile=compile_parts,
        init=lambda rng: fit.start(),
        query=lambda state, rng: Query(release.name, state.context),
        posterior=lambda state, draws, rng: fit.posterior(state).draw(prior, draws, rng),
        noise_aware=lambda state, draws, rng: fit.posterior(state).draw_with_noise(
            prior, draws, rng
        ),
        describe=lambda state: fit.posterior(state).describe(records, prior),
        trace=lambda state: {"mean_path": (("gaussian",), state.mean)},
        settings={"form": fit.title},
        algorithms=(fit.algorithm,),
        doubts=lambda state: doubts,
        defaults=(DEFAULTS,),
    )


# --- the papers' forms -------------------------------------------------------------------------


def _vips(title: str, records: Records, structure: Structure, settings: VipsOptions) -> Method:
    """Build VIPS: variational Bayes, by Pólya-Gamma variables for logistic outcomes."""
    release, layout = typical(records, structure, settings)
    if title != "absolute":
        layout = layout.with_scales(curvature=DEFAULTS.ratio)
    fit = Fit(
        structure,
        settings.records_in_sums,
        title,
        VARIATIONAL_BAYES,
        variational,
        settings.rate,
        lambda solved, mean, number: (mean, solved.covariance),
        layout,
    )
    return build(records, fit, release)


# the second has the paper's ratio of noise between the two statistics
absolute, paper = partial(_vips, "absolute"), partial(_vips, "the paper's, for reproduction")


def typical(
    records: Records, structure: Structure, settings: VipsOptions | SepOptions
) -> tuple[ReleaseSpec, Layout]:
    """Clip to the norm of features of unit scale, by probe rows, and scale vectors to it."""
    predictors, prior = structure
    rows = probe_rows(records, np.random.default_rng(0), [1])
    probes = features(records, predictors, "python")(rows)
    omega = max(*(float(np.nanmax(part.curvature)) for part in probes), 1e-12)
    norm = DEFAULTS.clip_norm * (omega * max(prior.d, 1)) ** 0.5
    norm = float(np.clip(norm, *DEFAULTS.clip_norm_range))
    count = DEFAULTS.releases if settings.noisy else DEFAULTS.noiseless_releases
    release = settings.release_spec(count, norm)
    if math.isfinite(release.clip_norm):
        norm = release.clip_norm
    layout = layout_of(len(predictors), prior.d)
    scales = {"curvature": DEFAULTS.clip_norm / norm, "number": DEFAULTS.count_share * norm}
    return release, layout.with_scales(**scales)


def cavity_of(solved: Solved, mean: np.ndarray, number: float) -> tuple[np.ndarray, np.ndarray]:
    """Take one of N equal sites out of the posterior."""
    of_sites = np.linalg.inv(solved.covariance) - solved.precision
    return cavity(solved.linear, solved.precision, of_sites, mean, number)


def damped(records: Records, structure: Structure, settings: SepOptions) -> Method:
    """Build stochastic expectation propagation: damped averages of sums of sites."""
    release, layout = typical(records, structure, settings)
    how = ("damped", EXPECTATION_PROPAGATION, sites, settings.rate, cavity_of)
    return build(records, Fit(structure, settings.records_in_sums, *how, layout), release)


def algorithm3(records: Records, structure: Structure, settings: SepOptions) -> Method:
    """Build Algorithm 3: lambda += gamma / N (sum of sites - q lambda), then clip lambda / N.

    **Privacy.** Each release is the sum of the clipped sites of a batch of one record on average.
    Retention does not depend on the batch, so the sensitivity is the clip norm, and twice that
    under replace-one neighbours; the paper's 2 gamma C / N is this, seen from the posterior.
    """
    number = settings.num_records
    if number is None:
        raise ValueError(
            "form='algorithm3' has the number of records in its update: give num_records=, a "
            "public number."
        )
    gamma = DEFAULTS.damping if settings.step is None else settings.step
    count = DEFAULTS.passes * number
    release = settings.release_spec(count, DEFAULTS.clip_norm_of_sites, 1 / number)
    rate = gamma * release.sampler.rate / number
    warnings.warn(
        f"form='algorithm3' is for reproduction: with these settings "
        f"{math.exp(-rate * release.count):.1%} of the way from the prior to the posterior will be "
        "left. Leave form= out to fit a model.",
        stacklevel=3,
    )
    predictors, prior = structure
    fit = Fit(
        structure,
        number,
        "algorithm3, for reproduction",
        ALGORITHM_3,
        sites,
        lambda t: rate,
        lambda solved, mean, _: cavity_of(solved, mean, number),
        layout_of(len(predictors), prior.d).with_scales(number=DEFAULTS.count_scale),
        longest=number * release.clip_norm,
    )
    return build(records, fit, release)


# --- topics ------------------------------------------------------------------------------------


class _Counting(NamedTuple):
    """Concentrations of topics, averaged over releases; negative counts become 0."""

    eta: np.ndarray  # the prior's concentration, (topics, words)
    t: int
    average: NoisyAverage[np.ndarray]  # of concentrations, with one variance

    @classmethod
    def begin(cls, eta: np.ndarray, rng: np.random.Generator) -> Self:
        start = rng.gamma(100.0, 0.01, eta.shape)  # as in Hoffman et al. (2010)
        return cls(eta, 0, NoisyAverage(start, np.zeros(())))

    @staticmethod
    def releases(settings: VipsOptions) -> tuple[ReleaseSpec, ...]:
        return (topics.counts_spec(settings),)

    def query(self) -> Query:
        return Query("statistics", geometric_mean(self.average.value))

    def update(self, settings: VipsOptions, noisy: Noisy) -> Self:
        counts, variance = topics.counts_of(noisy, self.eta.shape)
        latest, rho = self.eta + np.maximum(counts, 0.0), settings.rate(self.t)
        return self._replace(t=self.t + 1, average=self.average.add(latest, variance, rho))

    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        return self.average.value, np.full(self.eta.shape, self.average.variance)

    def mass(self) -> np.ndarray:
        return np.asarray(np.maximum((self.average.value - self.eta).sum(axis=1), 0.0))

    def details(self) -> dict[str, Any]:
        return {"noise_sd": float(self.average.variance) ** 0.5}


absolute_topics = partial(topics.build, form=_Counting)
