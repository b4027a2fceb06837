"""VIPS for factor models: factor analysis, probabilistic PCA and sigmoid belief networks.

Each release is a residual score of loadings and intercept with one curvature matrix that all rows
of the loadings share, so that noise on the curvature only preconditions.

The vector of a record. With z~ = (z, 1) the score is E[(y - psi) z~'] and the curvature E[z~ z~'],
whose last entry counts the records. Both have factors, so the norm of a record's vector needs
neither of them. The posterior of Gaussian latents z is exact, and its covariance is public. Binary
ones take a damped mean-field update behind the wall, where Pólya-Gamma variables make the
likelihood quadratic. All that follows from the released sum is post-processing.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import expit

from pymc_dp.accounting.plan import ReleaseSpec
from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.contributions.local_latents import MOST_LATENTS
from pymc_dp.methods.conjugate.blocks import dims_of, natural_parameters
from pymc_dp.methods.conjugate.exponential import NORMAL, Natural
from pymc_dp.methods.linear.predictor import pg_weight
from pymc_dp.methods.method import FACTORS, Compiled, Doubt, Draws, Kind, Method, beside, quoted
from pymc_dp.methods.vips.factor_model import FactorModel, scores_at_zero, side_by_side, split
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch, FactoredContribution
from pymc_dp.privacy.norms import row_norms
from pymc_dp.privacy.query import Noisy, Query
from pymc_dp.sampling.samplers import Full

if TYPE_CHECKING:
    from pymc_dp.methods.vips.vips import Settings


class Defaults(NamedTuple):
    """Public numbers, which options of the caller replace where there are any."""

    # Gaussian latents: all records, whose latents cost little
    releases: int = 20
    noiseless_releases: int = 100
    clip_norm: float = 2.5  # over the square root of psi's length: residuals near 1 times (z, 1)

    # binary latents: batches
    binary_releases: int = 40
    binary_sample_rate: float = 0.05
    binary_batch: int = 3000  # rows, where the number of records is public
    binary_clip_norm: float = 0.5  # residuals near 1/2
    sweeps: int = 8  # updates of a record's latents
    damping: float = 0.5  # share of a sweep's log odds in the new ones: all latents move at once

    # scales of the curvature and of the energy in a record's vector
    curvature_scale: float = 0.3
    energy_scale: float = 0.1

    # averages of released sums
    curvature_weight: float = 0.2  # least weight of the latest curvature
    energy_weight: float = 0.5  # and of the latest energy
    least: float = 1e-3  # eigenvalues of the curvature and energies of a record are at least this
    count_deviations: float = 2.0  # the count of records is at least this many of its noise's sd
    count_share: float = 0.05  # and at least this share of a declared number
    log_odds_share: float = 1e-4  # at least this share of the records has each value of a latent

    # steps fall like 1 / (1 + decay t) to the least one
    start_scale: float = 0.1  # of random loadings
    decay: float = 0.2
    least_step: float = 0.15
    negligible_noise: float = 0.02  # noise of a predictor below which steps stay whole
    tolerated_noise: float = 1.2  # and above which they shrink
    expansions: int = 10  # releases after which loadings are expanded; later ones settle
    largest_stretch: float = 3.0  # of a latent by one release: early moments are uncertain
    prior_rounds: int = 3  # over blocks that follow from others; the next release continues them


DEFAULTS = Defaults()

ARRAYS = 6  # arrays of length J and of length K + 1 of a record
STACK = 2**23  # numbers in one stack of matrices that are solved together: 64 MB
Posterior = dict[str, Natural]


class Context(NamedTuple):
    """The posterior under which statistics are expected: public values.

    Loadings and intercept stand side by side, shape (J, K + 1), in units in which a record's
    noise has precision ``precision``.
    """

    mean: np.ndarray
    variance: np.ndarray
    parameter: np.ndarray  # of the latents' prior, as in `LatentPrior`
    precision: float


class Sums(NamedTuple):
    """Weighted sums over records, or the norms of their parts for every record, (rows,)."""

    score: Any
    curvature: Any
    energy: Any = 0.0  # squared residuals, in expectation


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them."""

    t: int
    curvature: np.ndarray  # average of the released curvatures
    energy: float  # average of the released energies
    posterior: Posterior  # {latent: natural parameters}
    noise: np.ndarray  # variance of the privacy noise on an entry of each column of the means
    # predicted standard deviation of one full step's noise in a predictor, relative to its own
    # scale
    noise_of_psi: float
    noise_of_precision: float  # variance of the privacy noise on the outcomes' log precision


class Fit(NamedTuple):
    """What the updates of one fit share; public values and compiled priors."""

    records: Records
    structure: FactorModel
    settings: "Settings"

    @property
    def layout(self) -> Layout:
        """Of a record's vector."""
        return layout_of(self.structure.shape, self.structure.predictor.precision is not None)

    @property
    def following(self) -> list[str]:
        """The blocks that no release moves."""
        return [name for name in self.structure.prior.families if name not in self.structure.moved]

    def follow(self, posterior: Posterior, likelihood: Posterior) -> Posterior:
        """Update them, given the likelihood's natural parameters."""
        return self.structure.prior.coordinate_ascent(
            self.following, likelihood, posterior, DEFAULTS.prior_rounds
        )


def build(records: Records, structure: FactorModel, settings: "Settings") -> Method:
    """Build VIPS for a factor model.

    **Privacy.** Each release is one vector: the score, the upper triangle of the curvature
    (off-diagonals times sqrt 2) and, if the noise's precision is a latent, the squared residual;
    clipped jointly. A record's latents are inferred behind the wall and never released.
    """
    fit = Fit(records, structure, settings)
    infer = inference_of(structure, settings.iterations)

    def compile_parts(backend: str) -> Compiled:
        slopes = scores_at_zero(records, structure.predictor, structure.latent, backend)
        contributions = {"statistics": contribution(fit.layout, slopes, infer)}
        return Compiled(contributions, partial(update, fit))

    def plain(state: State, draws: int, rng: np.random.Generator) -> Draws:
        return _draw(structure, state.posterior, draws, rng)

    return Method(
        size=fit.layout.size,
        releases=(_release(structure, settings),),
        compile=compile_parts,
        init=partial(start, fit),
        query=lambda state, rng: Query("statistics", context_of(structure, state.posterior)),
        posterior=plain,
        noise_aware=beside(
            plain,
            lambda state, draws, rng: _draw(
                structure, state.posterior | _widened(structure, state), draws, rng
            ),
        ),
        describe=partial(_describe, fit),
        trace=lambda state: {"noise_of_psi": ((), state.noise_of_psi)},
        settings={"form": "residual"},
        algorithms=(FACTORS,),
        doubts=lambda state: _too_narrow(structure) if settings.noisy else (),
        defaults=(DEFAULTS,),
    )


def _too_narrow(structure: FactorModel) -> tuple[Doubt, ...]:
    integrable = not structure.latent.binary and structure.latent.length <= MOST_LATENTS
    advice = " method='dp_advi' integrates them out." if integrable else ""
    text = (
        f"Intervals of {quoted(structure.prior.families)} are too narrow: closed-form updates take "
        f"the latents of single records as known, and clip sums without centring them.{advice}"
    )
    return (Doubt(Kind.TOO_NARROW, tuple(structure.prior.families), text),)


def _release(structure: FactorModel, settings: "Settings") -> ReleaseSpec:
    root = structure.shape[0] ** 0.5
    if not structure.latent.binary:
        count = DEFAULTS.releases if settings.noisy else DEFAULTS.noiseless_releases
        return settings.release_spec(count, DEFAULTS.clip_norm * root)
    rate = 1.0
    if settings.sampling is not Full:
        of_batch = DEFAULTS.binary_batch / (settings.num_records or np.inf)
        rate = min(1.0, max(DEFAULTS.binary_sample_rate, of_batch))
    return settings.release_spec(DEFAULTS.binary_releases, DEFAULTS.binary_clip_norm * root, rate)


def start(fit: Fit, rng: np.random.Generator) -> State:
    """Start with small random loadings; precisions start as if loadings were of unit scale."""
    structure, point, scale = fit.structure, fit.records.point, DEFAULTS.start_scale
    posterior = {
        name: (np.zeros(point[name].shape), np.ones(point[name].shape))
        if family is NORMAL
        else family.random_parameters(point[name].shape, rng)
        for name, family in structure.prior.families.items()
    }
    posterior = fit.follow(posterior, {})
    for name in structure.moved:
        mean = point[name]
        if name == structure.loadings and np.unique(mean).size == 1:
            mean = scale * rng.normal(size=mean.shape)
        posterior[name] = (mean / scale**2, np.full(mean.shape, scale**-2))
    n = structure.shape[1] + 1
    return State(0, np.eye(n), 0.0, posterior, np.zeros(n), 0.0, 0.0)


def context_of(structure: FactorModel, posterior: Posterior) -> Context:
    """Make the context of a batch from a posterior."""
    moments = {name: NORMAL.moments(posterior[name]) for name in structure.moved}
    name = structure.predictor.precision
    precision = structure.prior.families[name].reference(posterior[name]) if name else np.ones(())
    return context_at(structure, moments, float(precision.item()))


def context_at(structure: FactorModel, moments: Mapping[str, Natural], precision: float) -> Context:
    """Make the context of a batch from means and standard deviations of Gaussian blocks."""
    mean, sd = side_by_side(structure, moments)
    gain = structure.gain[:, None]
    parameter = structure.latent.parameter
    if structure.latent.log_odds:
        parameter = moments[structure.latent.log_odds][0].ravel()
    return Context(gain * mean, (gain * sd) ** 2, parameter, precision)


def layout_of(shape: tuple[int, int], energy: bool) -> Layout:
    """Lay out a record's vector for J outcomes and K latents."""
    j, n = shape[0], shape[1] + 1
    parts = {
        "score": Part((j, n)),
        "curvature": Part((n, n), DEFAULTS.curvature_scale, symmetric=True),
    }
    return Layout(parts | {"energy": Part((), DEFAULTS.energy_scale)} if energy else parts)


class NormalMoments(NamedTuple):
    """One row a record."""

    residual: np.ndarray  # y - psi at the expected latents
    features: np.ndarray  # the expected latents, and a one
    energy: np.ndarray  # the expected squared residual

    def norms(self, context: Context) -> Sums:
        """Norms of r z~' - W V, of z~ z~' + V and of the energy.

        Vectors are shortened to at most 1 first, so that no square leaves the range of doubles.
        """
        covariance, loaded = _covariance(context)
        long, wide = row_norms(self.residual), row_norms(self.features)
        long = np.where(long < 1, 1.0, long)  # nan stays
        r, z = self.residual / long[:, None], self.features / wide[:, None]
        unit = 1 / (long * wide)
        straight = np.vecdot(r, r) * np.vecdot(z, z)
        correction = np.vdot(loaded, loaded) * unit**2
        crossed = 2 * unit * np.vecdot(r @ loaded, z)
        score = _norms(straight, crossed, correction)
        spread = 2 * np.vecdot(z @ covariance, z) / wide**2
        own = np.vdot(covariance, covariance) / wide**4
        curvature = wide**2 * np.sqrt(np.vecdot(z, z) ** 2 + np.maximum(spread, 0.0) + own)
        return Sums(long * wide * score, curvature, self.energy)

    def sums(self, context: Context, weights: np.ndarray) -> Sums:
        """Weighted sums over records."""
        covariance, loaded = _covariance(context)
        total = weights.sum()
        features = weights[:, None] * self.features
        return Sums(
            (weights[:, None] * self.residual).T @ self.features - total * loaded,
            features.T @ self.features + total * covariance,
            weights @ self.energy,
        )


def infer_normal(gain: np.ndarray, slopes: np.ndarray, context: Context) -> NormalMoments:
    """E-step: E z = tau V W'(y - c); ``gain`` holds square roots of the outcomes' curvatures."""
    _, loaded = _covariance(context)
    centred = slopes / gain - context.mean[:, -1]
    z = context.precision * centred @ loaded[:, :-1]
    residual = centred - z @ context.mean[:, :-1].T
    energy = np.vecdot(residual, residual) + np.vdot(loaded, context.mean)
    return NormalMoments(residual, _with_one(z), energy)


def _covariance(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Return the covariance V of a record's latents, and W V, with zeros for the intercept.

    The same for every record, so that it is public.
    """
    loadings = context.mean[:, :-1]
    second = loadings.T @ loadings + np.diag(context.variance[:, :-1].sum(axis=0))
    covariance = np.linalg.inv(np.diag(context.parameter) + context.precision * second)
    covariance = np.pad((covariance + covariance.T) / 2, (0, 1))
    return covariance, context.mean @ covariance


class BinaryMoments(NamedTuple):
    """One row a record."""

    residual: np.ndarray  # kappa - omega E psi
    features: np.ndarray  # probabilities p that latents are 1, and a one
    weight: np.ndarray  # omega

    @property
    def spread(self) -> np.ndarray:
        """Variances p (1 - p) of (z, 1)."""
        return np.asarray(self.features * (1 - self.features))

    def norms(self, context: Context) -> Sums:
        """Norms of r z~' - omega u' o W and of p~ p~' + diag(u)."""
        p, u = self.features, self.spread
        straight = np.vecdot(self.residual, self.residual) * np.vecdot(p, p)
        correction = np.vecdot(u**2, self.weight**2 @ context.mean**2)
        crossed = 2 * np.vecdot(p * u, (self.residual * self.weight) @ context.mean)
        curvature = np.vecdot(p, p) ** 2 + np.vecdot(u, u + 2 * p**2)
        return Sums(_norms(straight, crossed, correction), np.sqrt(curvature))

    def sums(self, context: Context, weights: np.ndarray) -> Sums:
        """Weighted sums over records."""
        p, u = self.features, self.spread
        residual, weight = (weights[:, None] * x for x in (self.residual, self.weight))
        return Sums(
            residual.T @ p - context.mean * (weight.T @ u),
            (weights[:, None] * p).T @ p + np.diag(weights @ u),
        )


def infer_binary(
    curvature: np.ndarray, sweeps: int, slopes: np.ndarray, context: Context
) -> BinaryMoments:
    """E-step: start at the prior, update all latents at once, ``sweeps`` times.

    ``curvature`` is the largest of each outcome, 1/4 for a yes or no.
    """
    loadings, intercept = context.mean[:, :-1], context.mean[:, -1]
    squares, second = loadings**2, loadings**2 + context.variance[:, :-1]
    transposed = (np.ascontiguousarray(x.T) for x in (loadings, squares, second))
    across, across_squares, across_second = transposed
    log_odds = np.tile(context.parameter, (len(slopes), 1))

    def weigh(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        psi = p @ across + intercept
        spread = p @ across_second - p**2 @ across_squares + context.variance[:, -1]
        return psi, curvature * pg_weight(np.sqrt(psi**2 + np.maximum(spread, 0.0)))

    for _ in range(sweeps):
        p = expit(log_odds)
        psi, omega = weigh(p)
        fresh = (slopes - omega * psi) @ loadings + p * (omega @ squares) - omega @ second / 2
        log_odds += DEFAULTS.damping * (context.parameter + fresh - log_odds)
    p = expit(log_odds)
    psi, omega = weigh(p)
    return BinaryMoments(slopes - omega * psi, _with_one(p), omega)


def _with_one(z: np.ndarray) -> np.ndarray:
    return np.concatenate([z, np.ones((len(z), 1))], axis=1)


def _norms(straight: np.ndarray, crossed: np.ndarray, correction: np.ndarray) -> np.ndarray:
    """Root of a difference of squares, raised by its rounding error: no norm may be short."""
    squares = np.maximum(straight - crossed + correction, 0.0) + 1e-12 * (straight + correction)
    return np.asarray(np.sqrt(squares))


# (slopes at psi = 0, (rows, J), Context) -> moments of the latents of a batch, one row a record
Infer = Callable[[np.ndarray, Context], NormalMoments | BinaryMoments]


def inference_of(structure: FactorModel, iterations: int | None) -> Infer:
    """Choose how the records' latents are inferred."""
    if structure.latent.binary:
        sweeps = iterations or DEFAULTS.sweeps
        return partial(infer_binary, structure.curvature, sweeps)
    return partial(infer_normal, np.sqrt(structure.curvature))


def contribution(
    layout: Layout, slopes: Callable[[Batch], np.ndarray], infer: Infer
) -> FactoredContribution:
    """Contribute score, curvature and energy; the context is a `Context`."""

    def parts(sums: Sums) -> dict[str, np.ndarray]:
        return {name: getattr(sums, name) for name in layout.parts}

    return FactoredContribution(
        layout.size,
        ARRAYS * sum(layout.parts["score"].shape),
        norms=lambda at, context: layout.norms(parts(at.norms(context))),
        weighted_sum=lambda at, context, weights: layout.pack(parts(at.sums(context, weights))),
        prepare=lambda batch, context: infer(slopes(batch), context),
        parts_norm=np.inf,  # the parts of a score may cancel within a record
    )


class Curvature(NamedTuple):
    """Estimates from the released curvatures."""

    average: np.ndarray  # as released
    # positive definite: eigenvalues raised to the largest that noise alone would have, and
    # divided by ``share``
    corrected: np.ndarray
    number: float  # the number of records, likewise
    noise_of_number: float  # sd of the noise on it, as a share of it
    # what clipping leaves of a record, on average, if the number of records is declared
    share: float
    inverse_trace: float  # sum of the inverse eigenvalues over the count


class _Rows(NamedTuple):
    """What scores and curvatures are multiplied by, row by row.

    ``psi`` and ``psi_of_batch`` turn noise, and the error of a drawn batch, into steps of psi
    relative to the scale of the outcomes' own noise.
    """

    gain: np.ndarray
    weight: np.ndarray
    psi: float
    psi_of_batch: float


def update(fit: Fit, state: State, query: Query, noisy: Noisy) -> State:
    """Average the curvature, move the means, then update everything behind them."""
    structure, context = fit.structure, query.context
    sd = noisy.sd / noisy.sample_rate
    sums = Sums(**fit.layout.unpack(noisy.value / noisy.sample_rate))
    curvature = averaged(state.t, state.curvature, sums, sd, fit.settings.records_in_sums)
    rows = _rows(structure, context)
    noise_of_psi = sd * rows.psi * float(np.sqrt(curvature.inverse_trace))
    n, rate = len(curvature.average), noisy.sample_rate
    of_batch = rows.psi_of_batch * np.sqrt(n * (1 - rate) / (rate * curvature.number))
    rho = step_length(state.t, float(np.hypot(noise_of_psi, of_batch)))
    mean, alpha, spread = _step(fit, state.posterior, sums, curvature, rows, rho)
    stretch = _stretch(structure, state.t, curvature)
    back = np.linalg.inv(stretch)
    average, corrected = (back @ x @ back.T for x in (curvature.average, curvature.corrected))
    precision = rows.weight[:, None] * np.diag(corrected) + alpha
    variance = split(structure, 1 / precision)
    moved: Posterior = {
        name: (m / variance[name], 1 / variance[name])
        for name, m in split(structure, mean @ stretch).items()
    }
    moved |= _moved_log_odds(fit, state.posterior, curvature, rho)
    energy, likelihood, unsure = _noise_precision(fit, state, context, sums, curvature, sd)
    posterior = fit.follow(state.posterior | moved, likelihood)
    noise = (1 - rho) ** 2 * state.noise + (rho * sd / curvature.share) ** 2 * spread
    return State(state.t + 1, average, energy, posterior, noise @ stretch**2, noise_of_psi, unsure)


def averaged(
    t: int, before: np.ndarray, sums: Sums, sd: float, num_records: int | None
) -> Curvature:
    """Average the curvature of release t with those before it; the first one with a public guess.

    ``sd`` is the noise's standard deviation on the released vector.
    """
    weight = 0.5 if t == 0 else max(1 / (t + 1), DEFAULTS.curvature_weight)
    noise = sd / DEFAULTS.curvature_scale * np.sqrt(weight / (2 - weight))
    least = max(
        DEFAULTS.count_deviations * noise, DEFAULTS.count_share * (num_records or 0), DEFAULTS.least
    )
    if t == 0:
        before = max(sums.curvature[-1, -1], least) * before
    average = (1 - weight) * before + weight * sums.curvature
    count = max(average[-1, -1], least)
    share = min(1.0, count / num_records) if num_records else 1.0
    values, vectors = np.linalg.eigh(average)
    values = np.maximum(values, max(noise * np.sqrt(2 * len(average)), DEFAULTS.least * count))
    return Curvature(
        average,
        (vectors * values) @ vectors.T / share,
        count / share,
        noise / count,
        share,
        float(np.sum(1 / values) / count),
    )


def _rows(structure: FactorModel, context: Context) -> _Rows:
    weight = context.precision * structure.curvature
    gain = context.precision * structure.gain
    if structure.latent.binary:
        of_psi = float(np.mean(1 / weight))
        return _Rows(gain, weight, of_psi, of_psi**0.5)
    return _Rows(gain, weight, context.precision**0.5, 1.0)


def step_length(t: int, noise_of_psi: float) -> float:
    """Length of step t: 1 where noise moves psi by little, else falling with t and with the noise.

    >>> step_length(0, 0.0), step_length(5, 0.1), round(step_length(100, 12.0), 4)
    (1.0, 0.5, 0.0198)
    """
    quiet = min(1.0, _stationary(noise_of_psi, DEFAULTS.negligible_noise))
    falling = max(DEFAULTS.least_step, 1 / (1 + DEFAULTS.decay * t))
    return max(quiet, min(falling, _stationary(noise_of_psi, DEFAULTS.tolerated_noise)))


def _stationary(noise: float, allowed: float) -> float:
    """Step at which the noise of many steps together has standard deviation ``allowed``."""
    return 2 * allowed**2 / (noise**2 + allowed**2)


def _step(
    fit: Fit, posterior: Posterior, sums: Sums, curvature: Curvature, rows: _Rows, rho: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take a step of length rho towards (w H + alpha)^-1 (g - alpha m).

    Return the new means m of loadings and intercept, alpha, and the noise of m from noise of 1.
    """
    structure = fit.structure
    messages = {name: structure.prior.message(name, posterior) for name in structure.moved}
    linear, alpha = side_by_side(structure, messages)
    moments = {name: NORMAL.moments(posterior[name]) for name in structure.moved}
    mean, _ = side_by_side(structure, moments)
    slope = rows.gain[:, None] * sums.score / curvature.share + linear - alpha * mean
    n = mean.shape[1] if structure.intercept else mean.shape[1] - 1
    shared = curvature.corrected[:n, :n]
    mean[:, :n] += rho * solve_rows(shared, rows.weight, alpha[:, :n], slope[:, :n])
    spread = np.zeros(mean.shape[1])
    spread[:n] = np.mean(rows.gain**2) * noise_spread(shared, rows.weight, alpha[:, :n])
    return mean, alpha, spread


def solve_rows(
    shared: np.ndarray, weights: np.ndarray, alphas: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """Solve (w_j H + diag(alpha_j)) x_j = g_j for every row j.

    H is ``shared``, (n, n); ``weights`` has shape (J,), the others and the result (J, n).
    """
    if np.ptp(weights) == 0 and not np.ptp(alphas, axis=0).any():
        return np.linalg.solve(weights[0] * shared + np.diag(alphas[0]), slopes.T).T
    solved = []
    size = max(1, STACK // shared.size)
    for start in range(0, len(weights), size):
        part = slice(start, start + size)
        stack = weights[part, None, None] * shared
        stack[:, *np.diag_indices(len(shared))] += alphas[part]
        solved.append(np.linalg.solve(stack, slopes[part, :, None])[..., 0])
    return np.concatenate(solved)


def noise_spread(shared: np.ndarray, weights: np.ndarray, alphas: np.ndarray) -> np.ndarray:
    """Variance of a whole step from noise of variance 1 on each slope, for a typical row; (n,)."""
    typical = np.linalg.inv(weights.mean() * shared + np.diag(alphas.mean(axis=0)))
    return np.asarray(np.vecdot(typical, typical))


def _stretch(structure: FactorModel, t: int, curvature: Curvature) -> np.ndarray:
    """Find the map of latents that loadings and intercept absorb."""
    if structure.latent.binary or t >= DEFAULTS.expansions:
        return np.eye(len(curvature.average))
    moments = curvature.corrected / curvature.number
    return expansion(moments, structure.latent.parameter, bool(structure.intercept))


def expansion(moments: np.ndarray, prior_precision: np.ndarray, intercept: bool) -> np.ndarray:
    """Find the scale and the location of Gaussian latents in one step, not in hundreds.

    Where noise is small, the latents' scales converge slowly: loadings that are too small make
    latents too large by the same factor, and every update corrects little of it. The released
    ``moments``, the average of z~ z~', give the factor (Liu, Rubin and Wu 1998, Parameter expansion
    to accelerate EM). The result is A, shape (K + 1, K + 1), with z~ = A z~', where z' has the
    prior's moments: (W, c) A is as good for them as (W, c) for z. Without an ``intercept`` the
    latents' mean has nothing to absorb it.
    """
    centre = moments[:-1, -1] * intercept
    unit = np.sqrt(prior_precision)
    spread = unit[:, None] * (moments[:-1, :-1] - np.outer(centre, centre)) * unit
    values, vectors = np.linalg.eigh(spread)
    roots = np.clip(
        np.sqrt(np.maximum(values, 0.0)), 1 / DEFAULTS.largest_stretch, DEFAULTS.largest_stretch
    )
    stretch = np.eye(len(moments))
    stretch[:-1, :-1] = (vectors * roots) @ vectors.T / unit[:, None] * unit
    stretch[:-1, -1] = centre
    return stretch


def _moved_log_odds(fit: Fit, posterior: Posterior, curvature: Curvature, rho: float) -> Posterior:
    """Move the latents' prior log odds, by Pólya-Gamma variables; the curvature holds the sums."""
    name = fit.structure.latent.log_odds
    if name is None:
        return {}
    number, least = curvature.number, curvature.number * DEFAULTS.log_odds_share
    mean, sd = NORMAL.moments(posterior[name])
    ones = np.clip(curvature.average[:-1, -1] / curvature.share, least, number - least)
    omega = number / 4 * pg_weight(np.hypot(mean, sd))
    linear, alpha = fit.structure.prior.message(name, posterior)
    precision = omega + alpha
    slope = ones.reshape(mean.shape) - number / 2 - omega * mean + linear - alpha * mean
    return {name: (precision * mean + rho * slope, precision)}


def _noise_precision(
    fit: Fit, state: State, context: Context, sums: Sums, curvature: Curvature, sd: float
) -> tuple[float, Posterior, float]:
    """Average the energy; return also the likelihood's natural parameters of the precision.

    The last number is the variance of the privacy noise on the precision's logarithm: the precision
    is the number of outcomes over the energy, and both are released.
    """
    structure = fit.structure
    name = structure.predictor.precision
    if name is None:
        return 0.0, {}, 0.0
    entries = structure.shape[0] * curvature.number
    least = entries * curvature.share
    energy, raised, noise = averaged_energy(state.t, state.energy, sums, sd, least)
    of_loadings = context.variance.sum(axis=0) @ np.diag(curvature.corrected)
    shape = fit.records.point[name].shape
    rate = (raised / curvature.share + of_loadings) / 2
    unsure = float((noise / curvature.share / (2 * rate)) ** 2 + curvature.noise_of_number**2)
    return energy, {name: (np.full(shape, entries / 2), np.full(shape, rate))}, unsure


def averaged_energy(
    t: int, before: float, sums: Sums, sd: float, least: float
) -> tuple[float, float, float]:
    """Average the energies; also return the average at the noise's own scale or above it.

    The last number is the noise's standard deviation.
    """
    weight = max(1 / (t + 1), DEFAULTS.energy_weight)
    average = (1 - weight) * before + weight * sums.energy
    noise = sd / DEFAULTS.energy_scale * np.sqrt(weight / (2 - weight))
    return average, max(average, noise, DEFAULTS.least * least), noise


def _draw(
    structure: FactorModel, posterior: Posterior, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    families = structure.prior.families.items()
    return {name: family.sample(posterior[name], draws, rng) for name, family in families}


def _widened(structure: FactorModel, state: State) -> Posterior:
    """Loadings, intercept and the outcomes' precision, with variances that include the noise."""
    wide: Posterior = {}
    for name, noise in _noise_sd(structure, state).items():
        mean, sd = NORMAL.moments(state.posterior[name])
        precision = 1 / (sd**2 + noise**2)
        wide[name] = (mean * precision, precision)
    if outcome := structure.predictor.precision:
        wide[outcome] = wider_gamma(state.posterior[outcome], state.noise_of_precision)
    return wide


def wider_gamma(eta: Natural, noise: float) -> Natural:
    """Add to the relative variance of a Gamma, and keep its mean.

    ``eta`` is the shape less one, and the rate.

    >>> wider_gamma((np.array(99.0), np.array(50.0)), 0.01)
    (array(49.), array(25.))
    """
    shape, rate = eta[0] + 1, eta[1]
    wider = 1 / (1 / shape + noise)
    return np.asarray(wider - 1), np.asarray(rate * wider / shape)


def _noise_sd(structure: FactorModel, state: State) -> dict[str, np.ndarray]:
    sd = np.broadcast_to(np.sqrt(state.noise), (structure.shape[0], len(state.noise)))
    return split(structure, sd)


def _describe(fit: Fit, state: State) -> xr.Dataset:
    """Show moments of loadings, intercept and log odds; natural parameters of the other blocks."""
    records, structure = fit.records, fit.structure
    variables: dict[str, Any] = {}
    for name in structure.moved:
        mean, sd = NORMAL.moments(state.posterior[name])
        dims = dims_of(records, name)
        variables |= {f"{name}.mean": (dims, mean), f"{name}.sd": (dims, sd)}
    for name, sd in _noise_sd(structure, state).items():
        variables[f"{name}.noise_sd"] = (dims_of(records, name), sd)
    others = {name: structure.prior.families[name] for name in fit.following}
    return xr.Dataset(variables | natural_parameters(records, others, state.posterior))
