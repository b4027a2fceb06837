"""Sigmoid belief nets: the model, recognised from the graph of one record, and VIPS for it.

psi = W z + c is linear in the loadings W, the intercept c and binary latents z of one record, and
the outcomes are logistic in it. Loadings and intercept are identified by slopes at probe records.

With z~ = (z, 1) a record's vector is the score E[(kappa - omega psi) z~'] and a curvature E[z~ z~']
that all rows of the loadings share, so that its noise only preconditions; its last entry counts the
records. Both have factors, so their norms need neither of them. The latents take damped mean-field
updates behind the wall, where Pólya-Gamma variables make the likelihood quadratic.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV
from scipy.special import expit

from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.contributions.local_latents import MOST_LATENTS
from pymc_dp.methods.conjugate import (
    NORMAL,
    ConjugatePrior,
    Natural,
    Posterior,
    at_point,
    conjugate_prior,
    dims_of,
    families_of,
    for_each_row,
    gaussian_latents,
    natural_parameters,
    nearly_equal,
    ones,
    probe_rows,
    sample,
)
from pymc_dp.methods.linear import (
    Predictor,
    VipsOptions,
    at_zero,
    of_outcome,
    pg_weight,
    predictor_of,
    where_zero,
)
from pymc_dp.methods.method import BELIEF_NETS, Compiled, Draws, Method, beside, too_narrow
from pymc_dp.methods.options import NotConjugateError
from pymc_dp.methods.prior import gradients
from pymc_dp.model import Records
from pymc_dp.model.graphs import AnyVariable, pt
from pymc_dp.privacy.contribution import Batch, FactoredContribution, Noisy, Query


class Defaults(NamedTuple):
    """Public numbers, which options of the caller replace where there are any."""

    releases: int = 40
    sample_rate: float = 0.05
    batch: int = 3000  # rows, where the number of records is public
    clip_norm: float = 0.5  # over the square root of psi's length: residuals near 1/2 times (z, 1)
    sweeps: int = 8  # updates of a record's latents
    damping: float = 0.5  # share of a sweep's log odds in the new ones: all latents move at once
    curvature_scale: float = 0.3  # of the curvature in a record's vector

    # averages of released sums
    curvature_weight: float = 0.2  # least weight of the latest curvature
    least: float = 1e-3  # eigenvalues of the curvature of a record are at least this
    count_deviations: float = 2.0  # the count of records is at least this many of its noise's sd
    count_share: float = 0.05  # and at least this share of a declared number
    log_odds_share: float = 1e-4  # at least this share of the records has each value of a latent

    # steps fall like 1 / (1 + decay t) to the least one
    start_scale: float = 0.1  # of random loadings
    decay: float = 0.2
    least_step: float = 0.15
    negligible_noise: float = 0.02  # noise of a predictor below which steps stay whole
    tolerated_noise: float = 1.2  # and above which they shrink
    prior_rounds: int = 3  # over blocks that follow from others; the next release continues them


DEFAULTS = Defaults()

TRIALS = 3  # probe records at which the bilinear form is tried
NARROW = ": latents of single records are taken as known, and sums are clipped without centring"
ARRAYS = 6  # arrays of length J and of length K + 1 of a record


# --- the model ---------------------------------------------------------------------------------


class LatentPrior(NamedTuple):
    """The prior of one record's latents z."""

    name: str
    parameter: np.ndarray  # prior log odds, (K,), if they are constants
    log_odds: str | None  # name of the Gaussian block that holds the log odds instead


class BeliefNet(NamedTuple):
    """A model psi = W z + c with binary latents z of single records."""

    predictor: Predictor
    latent: LatentPrior  # the latents of single records
    loadings: str  # name of W
    across: bool  # whether W has shape (K, J), a row for each latent, and not (J, K)
    intercept: str | None  # name of c
    intercept_shape: tuple[int, ...]  # its shape, with J entries
    curvature: np.ndarray  # largest curvature of a record's log likelihood in psi, (J,)
    prior: ConjugatePrior  # of all shared latents

    @property
    def layout(self) -> Layout:
        """A record's vector."""
        j, n = len(self.curvature), self.latent.parameter.size + 1
        scale = DEFAULTS.curvature_scale
        return Layout({"score": Part((j, n)), "curvature": Part((n, n), scale, symmetric=True)})

    @property
    def moved(self) -> list[str]:
        """The blocks that releases move; the others follow from them in closed form."""
        return [name for name in (self.loadings, self.intercept, self.latent.log_odds) if name]

    @property
    def following(self) -> list[str]:
        """The blocks that no release moves."""
        return [name for name in self.prior.families if name not in self.moved]

    def follow(self, posterior: Posterior) -> Posterior:
        """Update them."""
        return self.prior.coordinate_ascent(self.following, {}, posterior, DEFAULTS.prior_rounds)

    def matrix(self, loadings: np.ndarray) -> np.ndarray:
        """Bring values of the loadings to shape (J, K)."""
        return loadings.T if self.across else loadings


def recognise(records: Records) -> BeliefNet:
    """Prove, at probe points, that the model is a belief net with conjugate priors."""
    latent = latent_prior(records)
    predictor = _predictor(records, latent.name)
    if records.single.inputs[latent.name] in set(ancestors([predictor.log_likelihood])):
        raise NotConjugateError(f"`{latent.name}` enters the likelihood beside its predictor")
    if not predictor.augmented:
        raise NotConjugateError(f"`{latent.name}` is binary, and outcomes are not")
    loadings, across, intercept = _roles(records, predictor, latent)
    curvature = curvature_at_zero(records, predictor)
    shape = records.point[intercept].shape if intercept else curvature.shape
    prior = conjugate_prior(records, families_of(records), np.random.default_rng(0))
    return BeliefNet(predictor, latent, loadings, across, intercept, shape, curvature, prior)


def latent_prior(records: Records) -> LatentPrior:
    """Read the prior of the one variable that belongs to single records."""
    if len(records.local_latents) != 1:
        names = ", ".join(f"`{name}`" for name in records.local_latents) or "no latent"
        raise NotConjugateError(f"{names} belong to single records, where there must be one")
    [name] = records.local_latents
    if records.of_units:
        raise NotConjugateError(f"`{name}` belongs to units of several records")
    if records.distributions[name] is not BernoulliRV:
        raise NotConjugateError(
            f"`{name}`, which belongs to single records, is not binary (pm.Bernoulli): "
            f"method='dp_advi' integrates up to {MOST_LATENTS} normal latents of a record out"
        )
    return _with_log_odds(records, records.single.terms[records.term_names.index(name)], name)


def _with_log_odds(records: Records, term: AnyVariable, name: str) -> LatentPrior:
    """Read the log odds, the same for every record, off the prior's log density at 0 and 1."""
    ancestry = set(ancestors([term]))
    for other, x in records.single.inputs.items():
        if other != name and x in ancestry:
            raise NotConjugateError(
                f"the prior of `{name}` reads `{other}`, which differs between records: give it "
                "constants without an axis of the records, of shape (K,) or (), or declare "
                f"`{other}` with public="
            )
    names = [other for other, x in records.latents.items() if x in ancestry]
    if not set(names) <= set(gaussian_latents(records)) or len(names) > 1:
        raise NotConjugateError(f"the log odds of `{name}` are not one Gaussian latent")
    evaluate, rng = at_point(records, records.single, [term]), np.random.default_rng(0)
    point = records.point | {n: rng.normal(size=records.point[n].shape) for n in names}
    # probe rows have latents of one value
    none, every = (evaluate(probe_rows(records, rng, [k]), point)[0] for k in (0, 1))
    log_odds = (every - none).ravel()
    for other in names:
        if not _same(point[other].ravel(), log_odds):
            raise NotConjugateError(f"`{other}` is not the log odds of `{name}`, one for each")
    return LatentPrior(name, log_odds, names[0] if names else None)


def _predictor(records: Records, latent: str) -> Predictor:
    """Find the predictor of the one term that is not the prior of the records' latents."""
    terms = dict(zip(records.term_names, records.single.terms, strict=True))
    del terms[latent]
    if len(terms) != 1:
        raise NotConjugateError("there is more than one observed variable")
    [(outcome, term)] = terms.items()
    observed = [x for name, x in records.single.inputs.items() if name != latent]
    return of_outcome(outcome, lambda: predictor_of(records, term, observed))


def _roles(
    records: Records, predictor: Predictor, latent: LatentPrior
) -> tuple[str, bool, str | None]:
    """Identify loadings and intercept by the slopes of u'psi, for a random u, at random latents."""
    z, u, slopes = _slopes(records, predictor, latent)
    along, across = u[:, None] * z[:, None, :], z[:, :, None] * u
    even, intercepts, loadings = np.tile(u, (TRIALS, 1)), [], []
    for name, slope in slopes.items():
        # of one number it is not known whether it is W or its transpose
        sides = [side is across for side in (along, across) if _same(slope, side)]
        loadings += [(name, is_across) for is_across in sides]
        if not sides and _same(slope.reshape(TRIALS, -1), even):
            intercepts.append(name)
        elif not sides:
            raise NotConjugateError(
                f"`{name}` is neither the loadings of `{latent.name}` nor an intercept"
            )
    if len(loadings) != 1 or len(intercepts) > 1:
        raise NotConjugateError(f"`{latent.name}` has not one matrix of loadings")
    return *loadings[0], intercepts[0] if intercepts else None


def _slopes(
    records: Records, predictor: Predictor, latent: LatentPrior
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return latents z of probe records, u, and slopes of u'psi in Gaussian latents there."""
    rng, ancestry = np.random.default_rng(0), set(ancestors([predictor.psi]))
    z = np.stack([rng.integers(0, 2, latent.parameter.size) for _ in range(TRIALS)])
    rows = probe_rows(records, rng, [1] * TRIALS)
    by_row = np.moveaxis(rows[latent.name], records.local_latents[latent.name], 0)
    by_row[...] = z.reshape(by_row.shape)
    u = rng.uniform(1, 2, predictor.shape)
    names = [name for name in gaussian_latents(records) if records.latents[name] in ancestry]
    graphs = gradients((predictor.psi * u).sum(), [records.latents[name] for name in names])
    offset, *slopes = where_zero(records, [predictor.psi, *graphs], "python")(rows)
    if offset.any():
        raise NotConjugateError("the predictor has an offset")
    return z, u.ravel(), dict(zip(names, slopes, strict=True))


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and nearly_equal(first, second)


def curvature_at_zero(records: Records, predictor: Predictor) -> np.ndarray:
    """Find the curvature at psi = 0, (J,), and prove that it is the same for every record."""
    rows = probe_rows(records, np.random.default_rng(0), [0, 1, 1])
    [second] = where_zero(records, [at_zero(predictor)[1]], "python")(rows)
    first, *others = -second.reshape(len(second), -1)
    if not all(nearly_equal(first, other) for other in others) or not (first > 0).all():
        raise NotConjugateError("the curvature of the likelihood differs from record to record")
    return np.asarray(first)


def scores_at_zero(
    records: Records, structure: BeliefNet, backend: str
) -> Callable[[Batch], np.ndarray]:
    """Compile the slope of each record's log likelihood at psi = 0, shape (rows, J)."""
    latent, (slope, _, value) = structure.latent, at_zero(structure.predictor)
    # a record outside the likelihood's support must not contribute
    slope = pt.switch(pt.isinf(value), np.nan, slope.ravel())
    evaluate, shapes = for_each_row(records, [slope], backend), records.shapes

    def compute(batch: Batch) -> np.ndarray:
        count = next(x.shape[shapes[name].index(None)] for name, x in batch.items())
        shape = [count if length is None else length for length in shapes[latent.name]]
        zeros = np.zeros(shape, records.batch.inputs[latent.name].type.dtype)
        return evaluate(batch | {latent.name: zeros}, ones(records))[0]

    return compute


def side_by_side(
    structure: BeliefNet, values: Mapping[str, Natural]
) -> tuple[np.ndarray, np.ndarray]:
    """Arrange two values of every loading and of every intercept, each (J, K + 1); 0 for none."""
    nothing = (np.zeros_like(structure.curvature),) * 2
    intercept = values[structure.intercept] if structure.intercept else nothing
    first, second = (
        np.column_stack([structure.matrix(loadings), last.ravel()])
        for loadings, last in zip(values[structure.loadings], intercept, strict=True)
    )
    return first, second


def split(structure: BeliefNet, values: np.ndarray) -> dict[str, np.ndarray]:
    """Undo `side_by_side`, for one value of each."""
    blocks = {structure.loadings: structure.matrix(values[:, :-1])}
    if structure.intercept:
        blocks[structure.intercept] = values[:, -1].reshape(structure.intercept_shape)
    return blocks


def is_near(records: Records) -> bool:
    """Whether records have binary latents of their own."""
    near = [issubclass(records.distributions[name], BernoulliRV) for name in records.local_latents]
    return bool(near) and all(near) and not records.of_units


def roles(records: Records, structure: BeliefNet) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    roles = {name: f"{family.name} block" for name, family in structure.prior.families.items()}
    roles[structure.loadings] = "loadings of a belief net"
    if structure.intercept:
        roles[structure.intercept] = "intercept of a belief net"
    if structure.latent.log_odds:
        roles[structure.latent.log_odds] = f"log odds of `{structure.latent.name}`"
    roles |= dict.fromkeys(records.term_names, "binary outcome of a belief net")
    return roles | {structure.latent.name: "binary latents of single records"}


# --- the method --------------------------------------------------------------------------------


class Context(NamedTuple):
    """The posterior under which statistics are expected: public values."""

    mean: np.ndarray  # mean, variance: of loadings and intercept side by side, (J, K + 1)
    variance: np.ndarray
    log_odds: np.ndarray  # of the latents' prior, (K,)


class State(NamedTuple):
    """Where a fit stands: released values and what follows from them."""

    t: int
    curvature: np.ndarray  # average of the released curvatures
    posterior: Posterior  # {latent: natural parameters}
    noise: np.ndarray  # variance of the privacy noise on an entry of each column of the means
    noise_of_psi: float  # predicted sd of a full step's noise in a predictor, over its own scale


def build(records: Records, structure: BeliefNet, settings: VipsOptions) -> Method:
    """Build VIPS for a belief net.

    **Privacy.** Each release is one vector: the score and the upper triangle of the curvature
    (off-diagonals times sqrt 2), clipped jointly. A record's latents are inferred behind the wall
    and never released.
    """
    families, doubt = structure.prior.families, too_narrow(structure.prior.families, NARROW)
    least = DEFAULTS.sample_rate
    rate = settings.batch_share(DEFAULTS.batch, (least, 1.0), least)
    clip_norm = DEFAULTS.clip_norm * len(structure.curvature) ** 0.5

    def compile_parts(backend: str) -> Compiled:
        slopes = scores_at_zero(records, structure, backend)
        statistics = contribution(structure, slopes, settings.iterations)
        updating = partial(update, structure, settings.records_in_sums)
        return Compiled({"statistics": statistics}, updating)

    def plain(state: State, draws: int, rng: np.random.Generator) -> Draws:
        return sample(families, state.posterior, draws, rng)

    return Method(
        size=structure.layout.size,
        releases=(settings.release_spec(DEFAULTS.releases, clip_norm, rate),),
        compile=compile_parts,
        init=partial(start, records, structure),
        query=lambda state, rng: Query(
            "statistics", context_at(structure, _moments(structure, state.posterior))
        ),
        posterior=plain,
        noise_aware=beside(plain, lambda state, *terms: plain(_widened(structure, state), *terms)),
        describe=partial(_describe, records, structure),
        trace=lambda state: {"noise_of_psi": ((), state.noise_of_psi)},
        settings={},
        algorithms=(BELIEF_NETS,),
        doubts=lambda state: (doubt,) if settings.noisy else (),
        defaults=(DEFAULTS,),
    )


def start(records: Records, structure: BeliefNet, rng: np.random.Generator) -> State:
    """Start with small random loadings; precisions start as if loadings were of unit scale."""
    point, scale = records.point, DEFAULTS.start_scale
    posterior = {
        name: (np.zeros(point[name].shape), np.ones(point[name].shape))
        if family is NORMAL
        else family.random_parameters(point[name].shape, rng)
        for name, family in structure.prior.families.items()
    }
    posterior = structure.follow(posterior)
    for name in structure.moved:
        mean = point[name]
        if name == structure.loadings and np.unique(mean).size == 1:
            mean = scale * rng.normal(size=mean.shape)
        posterior[name] = (mean / scale**2, np.full(mean.shape, scale**-2))
    n = structure.latent.parameter.size + 1
    return State(0, np.eye(n), posterior, np.zeros(n), 0.0)


def _moments(structure: BeliefNet, posterior: Posterior) -> dict[str, Natural]:
    return {name: NORMAL.moments(posterior[name]) for name in structure.moved}


def context_at(structure: BeliefNet, moments: Mapping[str, Natural]) -> Context:
    """Make the context of a batch from means and standard deviations of Gaussian blocks."""
    mean, sd = side_by_side(structure, moments)
    name = structure.latent.log_odds
    log_odds = moments[name][0].ravel() if name else structure.latent.parameter
    return Context(mean, sd**2, log_odds)


class Moments(NamedTuple):
    """Of a batch, one row a record."""

    residual: np.ndarray  # kappa - omega E psi
    features: np.ndarray  # probabilities p that latents are 1, and a one
    weight: np.ndarray  # omega
    spread: np.ndarray  # variances p (1 - p) of (z, 1)

    def norms(self, context: Context) -> dict[str, np.ndarray]:
        """Norms of r z~' - omega u' o W and of p~ p~' + diag(u)."""
        p, u = self.features, self.spread
        straight = np.vecdot(self.residual, self.residual) * np.vecdot(p, p)
        correction = np.vecdot(u**2, self.weight**2 @ context.mean**2)
        crossed = 2 * np.vecdot(p * u, (self.residual * self.weight) @ context.mean)
        curvature = np.vecdot(p, p) ** 2 + np.vecdot(u, u + 2 * p**2)
        # a difference of squares, raised by its rounding error: no norm may be short
        squares = np.maximum(straight - crossed + correction, 0.0)
        squares += 1e-12 * (straight + correction)
        return {"score": np.sqrt(squares), "curvature": np.sqrt(curvature)}

    def sums(self, context: Context, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Weighted sums over records."""
        p, u = self.features, self.spread
        residual, weight = (weights[:, None] * x for x in (self.residual, self.weight))
        return {
            "score": residual.T @ p - context.mean * (weight.T @ u),
            "curvature": (weights[:, None] * p).T @ p + np.diag(weights @ u),
        }


def infer(
    structure: BeliefNet, sweeps: int | None, slopes: np.ndarray, context: Context
) -> Moments:
    """E-step at slopes (rows, J) at psi = 0: from the prior, update all latents at once."""
    loadings, intercept = context.mean[:, :-1], context.mean[:, -1]
    squares, second = loadings**2, loadings**2 + context.variance[:, :-1]
    transposed = (np.ascontiguousarray(x.T) for x in (loadings, squares, second))
    across, across_squares, across_second = transposed
    log_odds = np.tile(context.log_odds, (len(slopes), 1))

    def weigh(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        psi = p @ across + intercept
        spread = p @ across_second - p**2 @ across_squares + context.variance[:, -1]
        return psi, structure.curvature * pg_weight(np.sqrt(psi**2 + np.maximum(spread, 0.0)))

    for _ in range(sweeps or DEFAULTS.sweeps):
        p = expit(log_odds)
        psi, omega = weigh(p)
        fresh = (slopes - omega * psi) @ loadings + p * (omega @ squares) - omega @ second / 2
        log_odds += DEFAULTS.damping * (context.log_odds + fresh - log_odds)
    p = expit(log_odds)
    psi, omega = weigh(p)
    with_one = np.concatenate([p, np.ones((len(p), 1))], axis=1)
    return Moments(slopes - omega * psi, with_one, omega, with_one * (1 - with_one))


def contribution(
    structure: BeliefNet, slopes: Callable[[Batch], np.ndarray], sweeps: int | None
) -> FactoredContribution:
    """Contribute score and curvature; the context is a `Context`."""
    layout = structure.layout
    return FactoredContribution(
        layout.size,
        ARRAYS * sum(layout.parts["score"].shape),
        norms=lambda at, context: layout.norms(at.norms(context)),
        weighted_sum=lambda at, context, weights: layout.pack(at.sums(context, weights)),
        prepare=lambda batch, context: infer(structure, sweeps, slopes(batch), context),
        parts_norm=np.inf,  # the parts of a score may cancel within a record
    )


class Curvature(NamedTuple):
    """Estimates from the released curvatures."""

    average: np.ndarray  # as released
    corrected: np.ndarray  # eigenvalues raised to the largest of noise alone, over ``share``
    number: float  # the number of records, likewise
    share: float  # what clipping leaves of a record, if the number of records is declared
    inverse_trace: float  # sum of the inverse eigenvalues over the count


def update(
    structure: BeliefNet, num_records: int | None, state: State, query: Query, noisy: Noisy
) -> State:
    """Average the curvature, move the means, then update everything behind them."""
    rate = noisy.sample_rate
    sd = noisy.sd / rate
    sums = structure.layout.unpack(noisy.value / rate)
    curvature = averaged(state.t, state.curvature, sums["curvature"], sd, num_records)
    # noise, and the error of a drawn batch, in steps of psi relative to the outcomes' own scale
    own = float(np.mean(1 / structure.curvature))
    noise_of_psi = sd * own * curvature.inverse_trace**0.5
    n = len(curvature.average)
    of_batch = (own * n * (1 - rate) / (rate * curvature.number)) ** 0.5
    rho = step_length(state.t, float(np.hypot(noise_of_psi, of_batch)))
    mean, alpha, spread = _step(structure, state.posterior, sums["score"], curvature, rho)
    precisions = structure.curvature[:, None] * np.diag(curvature.corrected) + alpha
    linear, precision = (split(structure, x) for x in (mean * precisions, precisions))
    moved: Posterior = {name: (linear[name], precision[name]) for name in linear}
    moved |= _moved_log_odds(structure, state.posterior, curvature, rho)
    posterior = structure.follow(state.posterior | moved)
    noise = (1 - rho) ** 2 * state.noise + (rho * sd / curvature.share) ** 2 * spread
    return State(state.t + 1, curvature.average, posterior, noise, noise_of_psi)


def averaged(
    t: int, before: np.ndarray, latest: np.ndarray, sd: float, num_records: int | None
) -> Curvature:
    """Average the curvature of release t with those before it; the first with a public guess."""
    weight = 0.5 if t == 0 else max(1 / (t + 1), DEFAULTS.curvature_weight)
    noise = sd / DEFAULTS.curvature_scale * np.sqrt(weight / (2 - weight))
    least = max(
        DEFAULTS.count_deviations * noise, DEFAULTS.count_share * (num_records or 0), DEFAULTS.least
    )
    if t == 0:
        before = max(latest[-1, -1], least) * before
    average = (1 - weight) * before + weight * latest
    count = max(average[-1, -1], least)
    share = min(1.0, count / num_records) if num_records else 1.0
    values, vectors = np.linalg.eigh(average)
    values = np.maximum(values, max(noise * np.sqrt(2 * len(average)), DEFAULTS.least * count))
    corrected = (vectors * values) @ vectors.T / share
    return Curvature(average, corrected, count / share, share, float(np.sum(1 / values) / count))


def step_length(t: int, noise_of_psi: float) -> float:
    """Length of step t: 1 where noise moves psi by little, else falling with t and the noise."""
    quiet = min(1.0, _stationary(noise_of_psi, DEFAULTS.negligible_noise))
    falling = max(DEFAULTS.least_step, 1 / (1 + DEFAULTS.decay * t))
    return max(quiet, min(falling, _stationary(noise_of_psi, DEFAULTS.tolerated_noise)))


def _stationary(noise: float, allowed: float) -> float:
    """Step at which the noise of many steps together has standard deviation ``allowed``."""
    return 2 * allowed**2 / (noise**2 + allowed**2)


def _step(
    structure: BeliefNet, posterior: Posterior, score: np.ndarray, curvature: Curvature, rho: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means m after a step rho (w H + alpha)^-1 (g - alpha m), alpha, and m's noise."""
    messages = {name: structure.prior.message(name, posterior) for name in structure.moved}
    linear, alpha = side_by_side(structure, messages)
    mean, _ = side_by_side(structure, _moments(structure, posterior))
    slope = score / curvature.share + linear - alpha * mean
    n = mean.shape[1] if structure.intercept else mean.shape[1] - 1
    shared = curvature.corrected[:n, :n]
    mean[:, :n] += rho * solve_rows(shared, structure.curvature, alpha[:, :n], slope[:, :n])
    spread = np.zeros(mean.shape[1])
    # of a whole step, for a typical row, from noise of variance 1 on each slope
    typical = np.linalg.inv(
        structure.curvature.mean() * shared + np.diag(alpha[:, :n].mean(axis=0))
    )
    spread[:n] = np.vecdot(typical, typical)
    return mean, alpha, spread


def solve_rows(
    shared: np.ndarray, weights: np.ndarray, alphas: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """Solve (w_j H + diag(alpha_j)) x_j = g_j for every row j; H is ``shared``, (n, n)."""
    if np.ptp(weights) == 0 and not np.ptp(alphas, axis=0).any():
        return np.linalg.solve(weights[0] * shared + np.diag(alphas[0]), slopes.T).T
    rows = zip(weights, alphas, slopes, strict=True)
    return np.stack([np.linalg.solve(w * shared + np.diag(a), g) for w, a, g in rows])


def _moved_log_odds(
    structure: BeliefNet, posterior: Posterior, curvature: Curvature, rho: float
) -> Posterior:
    """Move the latents' prior log odds, by Pólya-Gamma variables; the curvature holds the sums."""
    name = structure.latent.log_odds
    if name is None:
        return {}
    number, least = curvature.number, curvature.number * DEFAULTS.log_odds_share
    mean, sd = NORMAL.moments(posterior[name])
    ones = np.clip(curvature.average[:-1, -1] / curvature.share, least, number - least)
    omega = number / 4 * pg_weight(np.hypot(mean, sd))
    linear, alpha = structure.prior.message(name, posterior)
    precision = omega + alpha
    slope = ones.reshape(mean.shape) - number / 2 - omega * mean + linear - alpha * mean
    return {name: (precision * mean + rho * slope, precision)}


def _widened(structure: BeliefNet, state: State) -> State:
    """Loadings and intercept, with variances that include the noise."""
    wide = dict(state.posterior)
    for name, noise in _noise_sd(structure, state).items():
        mean, sd = NORMAL.moments(wide[name])
        precision = 1 / (sd**2 + noise**2)
        wide[name] = (mean * precision, precision)
    return state._replace(posterior=wide)


def _noise_sd(structure: BeliefNet, state: State) -> dict[str, np.ndarray]:
    return split(structure, np.tile(np.sqrt(state.noise), (len(structure.curvature), 1)))


def _describe(records: Records, structure: BeliefNet, state: State) -> xr.Dataset:
    """Show moments of loadings, intercept and log odds; natural parameters of the other blocks."""
    variables: dict[str, Any] = {}
    for name, (mean, sd) in _moments(structure, state.posterior).items():
        dims = dims_of(records, name)
        variables |= {f"{name}.mean": (dims, mean), f"{name}.sd": (dims, sd)}
    for name, sd in _noise_sd(structure, state).items():
        variables[f"{name}.noise_sd"] = (dims_of(records, name), sd)
    others = {name: structure.prior.families[name] for name in structure.following}
    return xr.Dataset(variables | natural_parameters(records, others, state.posterior))
