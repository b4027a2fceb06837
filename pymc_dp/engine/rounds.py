"""Rounds: an iterated Kalman filter for the posterior of any model, on noisy scores and curvatures.

Newton's method for the mode, in which a record adds a clipped score and its slope to a noisy sum.
The curvature is filtered from round to round (`curvature`); the scores of all rounds are one
regression by generalised least squares; counts bound the bias of clipping (`clip_norm_and_bias`).
After Bell and Cathey (1993), the iterated Kalman filter as a Gauss-Newton method; centred clipping
as in Künsch, Stefanski and Carroll (1989).

    release     scales   round 1   round 2        ...        round 13
    budget      |#|      |#|       |#|       each 1.2 times   |#####|
    point       start    start ----> damped Newton steps ----> mode
    says        N, units scores, slope, slope along the path, traces, counts of lengths

What a record adds is in `contributions.whitened` (`At` and `Sums`): its score g in coordinates W,
weighted, shifted so that outcomes that the model draws have mean zero, and clipped (u); the slope
mean u (W g)' over drawn outcomes, which is minus the derivative of the expected score; and lengths
of W g. With `Known.estimating`, g is averaged over the posterior q that earlier rounds gave.

One update (`update`, from a released vector to the next state), in this order:

1. traces: weights and clipping keep a share of the slope, and make the variance larger than it;
2. score: as if nothing had been clipped;
3. curvature: the belief is prior to the released slope; then the path, the step between the last
   two scores where noise hides the slope, the null space, and the scale of outcomes, which shares
   no information with their location;
4. regression: g_s = H (z - z_s) + e_s for all rounds s, to the posterior mean (`pooled`); rounds
   whose norms leave out more than the latest one count less;
5. step: to that mean, damped by 1 + r, where r is its length in white units, or up to twice as
   long as the step before in the same direction;
6. scale of outcomes: its own step is exact, and all curvatures of the location go with it;
7. clipping: counts near the mode say what each norm leaves out, and which one is best;
8. coordinates: W with W (H + P) W' = N I, and the bounds of the next vector.

**Privacy.** All of it is post-processing of released vectors.
"""

from typing import NamedTuple, Self

import numpy as np

from pymc_dp.contributions.polya_gamma_and_sites import Estimating
from pymc_dp.contributions.whitened import (
    BINS,
    COUNTS,
    SLOPE,
    TRACE,
    At,
    Dispersion,
    Sums,
    joint_norm,
    split,
)
from pymc_dp.engine.clip_norm_and_bias import LeftOut, Part, left_out
from pymc_dp.engine.constants import CONSTANTS
from pymc_dp.engine.curvature import (
    congruent,
    dense,
    inner,
    inverse,
    matrix_blocks,
    outer,
    positive,
    shrunk,
    symmetric,
    times,
    trace,
    vector_blocks,
    whitening,
    with_path,
    with_secant,
    within_parts,
    without_null_space,
)
from pymc_dp.engine.outcomes import OutcomeScale
from pymc_dp.privacy.contribution import Noisy, Query

# matrices are regular without noise, too: sds of it in white coordinates, over the root of N
LEAST_NOISE = 1e-6


class Known(NamedTuple):
    """What is known before the first release."""

    prior_mean: np.ndarray  # of the normal prior of the rounds, (b, k)
    prior_precision: np.ndarray  # P, (b, k, k)
    shares: tuple[float, ...]  # of the budget, of each round
    number: int | None  # of records (or units), where it is declared
    parts: tuple[Part, ...]  # location, and dispersion if there are both
    scale: OutcomeScale | None
    null_space: np.ndarray  # directions in which no record has a score, (d, m)
    estimating: Estimating | None  # what records add; None for scores at the point
    is_centred: bool  # whether drawn outcomes centre clipped scores
    products: float  # as in `At`


class Scored(NamedTuple):
    """One round's score, as if nothing had been clipped."""

    point: np.ndarray  # (b, k)
    score: np.ndarray  # of the log likelihood, (b, k)
    noise: np.ndarray  # its covariance, (b, k, k)
    curvature: np.ndarray  # H after this round, (b, k, k)
    back: np.ndarray  # from white coordinates, (b, k, k)
    norms: tuple[float, ...]  # what each part was clipped to

    def in_units(self, squares: np.ndarray) -> Self:
        """Return it on another scale of outcomes: scores are multiplied by ``squares``, (b, k)."""
        both, roots = outer(squares, squares), outer(squares**0.5, squares**0.5)
        return self._replace(
            score=squares * self.score,
            noise=both * self.noise,
            curvature=roots * self.curvature,
            back=squares[..., None] * self.back,
        )


class Traces(NamedTuple):
    """Sums over rounds, each time half as much of earlier ones."""

    slope: float = 0.0  # of the slope
    information: float = 0.0  # of squared scores that were neither weighted nor clipped
    variance: float = 0.0  # of squared clipped scores
    weight: float = 0.0


class Report(NamedTuple):
    """What the latest round says of itself."""

    step: np.ndarray  # to the mean of the regression, (b, k)
    left_out: tuple[LeftOut, ...] = ()  # what norms leave out of each part; empty before round 1
    noise_unit: float = 0.0  # noise multiplier of a release that would take the whole budget
    noise_to_signal: float = np.nan
    kept: float = 1.0  # share of the slope that weights and clipping keep
    excess: float = 1.0  # variance of scores over their slope, as if nothing had been clipped
    noise: float = 0.0  # relative, on entries of the curvature
    edge: float = 0.0  # the root mean square of eigenvalues of that noise
    length: float = 0.0  # of the step, in white units
    misfit: float = np.nan


class State(NamedTuple):
    """State of the rounds: released values and what follows from them."""

    at: At  # of the next round
    curvature: np.ndarray  # H, (b, k, k)
    # counts of rounds near the mode, (parts, BINS), each times its share of the budget; the shares
    lengths: tuple[np.ndarray, float]
    report: Report
    t: int = 0  # releases made
    number: float = 1.0  # of records (or units)
    scored: tuple[Scored, ...] = ()  # all rounds
    traces: Traces = Traces()
    # variance J of the sum of weighted scores, (b, k, k)
    score_variance: np.ndarray | None = None
    # what records add to the precision of q, where that is not H (Pólya-Gamma), (b, k, k)
    added_precision: np.ndarray | None = None

    @property
    def point(self) -> np.ndarray:
        """The next point, (b, k)."""
        return vector_blocks(self.at.point)

    def in_units(self, squares: np.ndarray) -> Self:
        """Return it on another scale of outcomes, as `Scored.in_units`."""
        J, Q, roots = self.score_variance, self.added_precision, outer(squares**0.5, squares**0.5)
        return self._replace(
            curvature=roots * self.curvature,
            scored=tuple(one.in_units(squares) for one in self.scored),
            score_variance=None if J is None else outer(squares, squares) * J,
            added_precision=None if Q is None else roots * Q,
        )


class Likelihood(NamedTuple):
    """A normal likelihood exp(c'z - z' A z / 2), and the mean beside the rounds' prior."""

    A: np.ndarray  # (b, k, k)
    c: np.ndarray  # (b, k)
    mean: np.ndarray  # (b, k)


def begin(known: Known, start: np.ndarray) -> State:
    """Start at a point, (d,), knowing nothing. Its coordinates are for the trial before a fit."""
    d, P = start.size, known.prior_precision
    unit = np.ones(d) if len(P) > 1 else np.eye(d)
    of_dispersion = [Dispersion(p.latents.reshape(-1), 1.0, p.share) for p in known.parts[1:]]
    at = At(
        start,
        unit,
        score_bound=1.0,
        leverage_bound=1.0,
        direction=np.full(d, d**-0.5),
        dispersion=of_dispersion[0] if of_dispersion else None,
        root=None if known.estimating is None else unit,
        products=known.products,
    )
    lengths = np.zeros((len(known.parts), BINS)), 0.0
    return State(at, np.zeros(P.shape), lengths, Report(np.zeros(known.prior_mean.shape)))


def update(known: Known, state: State, query: Query, noisy: Noisy) -> State:
    """Take one round's release; what matrices cannot be computed with leaves the point alone."""
    try:
        return _updated(known, state, noisy)
    except (np.linalg.LinAlgError, ArithmeticError):
        report = state.report._replace(noise_to_signal=noisy.noise_to_signal, misfit=np.nan)
        return state._replace(t=state.t + 1, scored=(), report=report)


@np.errstate(over="raise", invalid="raise", divide="raise")
def _updated(known: Known, state: State, noisy: Noisy) -> State:
    """Return the next state; the steps are those of this file's first lines."""
    at, n, z, share = state.at, state.number, state.point, known.shares[state.t - 1]
    scales = at.scales()
    sums, back = split(noisy.value, at), np.linalg.inv(white(at))
    # 1. traces
    traces, kept, excess = _traces(state, sums, noisy.sd / scales.traces, share)
    # 2. score
    score_sd = np.maximum(noisy.sd / scales.score, LEAST_NOISE * n**0.5) / kept
    score = times(back, vector_blocks(sums.score)) / kept
    norms = (at.score_bound, *([at.dispersion.bound] if at.dispersion else []))
    score_noise = _of_sds(back, vector_blocks(score_sd))
    scored = Scored(z, score, score_noise, state.curvature, back, norms)
    J = _score_variance(known, state, sums, noisy.sd, back, kept)
    report = state.report._replace(kept=kept, excess=excess)
    state = state._replace(report=report, traces=traces, score_variance=J)
    # 3. curvature
    state, floored = _with_curvature(known, state, sums, noisy.sd, scored)
    # 4. regression
    biased = _with_bias(state, _bias(known, state))
    mean = _beside_prior(known, state, *pooled(known, biased, z)).mean
    # 5. step, and its length in white units
    step = mean - z
    of_location = step.copy()
    if known.scale is not None:
        of_location.flat[known.scale.latent] = 0.0
    r, length = (max(inner(x, times(floored, x)), 0.0) ** 0.5 / n**0.5 for x in (of_location, step))
    point = z + _share_of_step(state, of_location, floored, r) * step
    # 6. scale of outcomes
    if known.scale is not None:
        state, point, floored = _with_scale(known.scale, state, step, point, floored)
    # 7. clipping: far from the mode all scores are long
    near = share if length <= CONSTANTS.near else 0.0
    lengths = state.lengths[0] + near * sums.counts, state.lengths[1] + near
    left = _left_out(known, state, *lengths)
    report = state.report._replace(
        noise_to_signal=noisy.noise_to_signal,
        step=step,
        length=length,
        left_out=left,
        misfit=float(np.max([own.misfit for own in left])) if lengths[1] else np.nan,
    )
    # 8. coordinates
    state = state._replace(t=state.t + 1, lengths=lengths, report=report)
    return prepared(known, state, point.reshape(-1), floored)


def _share_of_step(state: State, step: np.ndarray, floored: np.ndarray, r: float) -> float:
    """Return the share of a step of r white units that is taken: 1 / (1 + r), or more.

    Far from the mode, where all scores are clipped, a step may be twice as long as the last one was
    in its direction, and less so where noise hides the curvature.
    """
    least = 1 / (1 + r)
    if len(state.scored) < 2 or r <= 1:
        return least
    last = state.scored[-1].point - state.scored[-2].point
    along = inner(last, times(floored, step)) / state.number / r**2
    return float(np.clip(2 * (1 - state.report.edge) * along, least, 1.0))


def _with_scale(
    scale: OutcomeScale, state: State, step: np.ndarray, point: np.ndarray, floored: np.ndarray
) -> tuple[State, np.ndarray, np.ndarray]:
    """Take the own step of the scale of outcomes, and bring all curvatures to the new scale."""
    z, point = state.point, point.copy()
    point.flat[scale.latent] = z.flat[scale.latent] + scale.step(float(step.flat[scale.latent]))
    squares = vector_blocks(scale.units(z.reshape(-1), point.reshape(-1))) ** 2
    return state.in_units(squares), point, outer(squares**0.5, squares**0.5) * floored


def white(at: At) -> np.ndarray:
    """Return the coordinates of a round, (b, k, k)."""
    return at.whitening[:, None, None] if at.is_diagonal else at.whitening[None]


def _traces(state: State, sums: Sums, sd: float, share: float) -> tuple[Traces, float, float]:
    """Return sums, the share of the slope that is left, and variance of scores over their slope."""
    traces = state.traces
    if not state.at.of_precision:
        new = trace(sums.curvature), sums.information, sums.variance, 1.0
        traces = Traces(*(x / 2 + share * y for x, y in zip(traces, new, strict=True)))
    # of the information, a number, less the slope's trace, a sum of d
    sd *= (1 + state.at.point.size * (TRACE / SLOPE) ** 2) ** 0.5
    doubtful = 2 * sd * (share * traces.weight) ** 0.5 + 1e-9 * abs(traces.information)
    whole = max(traces.information + doubtful, np.finfo(float).tiny)
    kept = float(np.clip((traces.slope + doubtful) / whole, CONSTANTS.least_kept, 1.0))
    of_clipped = (traces.variance + doubtful) / whole
    return traces, kept, float(np.clip(of_clipped / kept**2, 1.0, 1 / kept**2))


def _filtered(before: np.ndarray, released: np.ndarray, noise: float) -> np.ndarray:
    """Bring a believed matrix to what it and a release with Wigner noise say together."""
    return positive(before + shrunk(released - before, noise), 1e-3)


def _with_curvature(
    known: Known, state: State, sums: Sums, sd: float, scored: Scored
) -> tuple[State, np.ndarray]:
    """Filter the curvature by a release of this noise; return also the curvature with a floor."""
    at, n, H, kept, W = state.at, state.number, state.curvature, state.report.kept, white(state.at)
    scales, back, least = at.scales(), scored.back, LEAST_NOISE * n**0.5
    # entries beside the diagonal are in the vector times the root of 2
    noise = max(sd / scales.curvature / 2**0.5, least) / n / kept
    edge = noise * W.shape[-1] ** 0.5
    slope = matrix_blocks(sums.curvature) / n / kept
    if at.of_precision:
        before = H if state.added_precision is None else state.added_precision
        Q = congruent(back, _filtered(congruent(W, before) / n, slope, noise)) * n
        state, after = state._replace(added_precision=Q), congruent(W, H) / n
    else:
        after = _filtered(congruent(W, H) / n, slope, noise)
    if at.direction is not None:
        along_sd = max(sd / scales.along, least) / n / kept
        path = vector_blocks(at.direction)
        after = with_path(after, path, sums.along / n / kept, along_sd, 2**0.5 * noise)
    if state.scored and edge > CONSTANTS.hidden:
        last, own_sd = state.scored[-1], noise / (1 + edge**2) ** 0.5
        x = scored.point - last.point
        between = congruent(W, last.noise + scored.noise + _bend(known, H, n, x)) / n**2
        fall = times(W, last.score - scored.score) / n
        after = with_secant(after, times(back.swapaxes(-1, -2), x), fall, between, own_sd)
    if known.null_space.size:
        null_space = np.linalg.solve(W[0].T, known.null_space)
        after = without_null_space(after, null_space, edge)
    if known.scale is not None:
        after = within_parts(after, [part.latents for part in known.parts])
    H = n * congruent(back, after)
    state = state._replace(
        curvature=H,
        scored=(*state.scored, scored._replace(curvature=H)),
        report=state.report._replace(edge=edge, noise=noise),
    )
    return state, n * congruent(back, positive(after, min(edge, 0.5)))


def _score_variance(
    known: Known, state: State, sums: Sums, sd: float, back: np.ndarray, kept: float
) -> np.ndarray | None:
    """Filter the variance of the sum of weighted scores (Binder 1983), or of many its trace."""
    if not known.products:
        return None
    H, n, at, W = state.curvature, state.number, state.at, white(state.at)
    scales = at.scales()
    noise = max(sd / scales.products / 2**0.5 / n, LEAST_NOISE) / kept**2
    J = H if state.score_variance is None else state.score_variance
    before = congruent(W, J) / n
    if at.is_diagonal:
        size = (trace(before) * noise**2 + sums.products.item() / n / kept**2) / (1 + noise**2)
        return np.asarray(max(size, 1e-6) / trace(before) * J)
    released = sums.products / np.outer(scales.score, scales.score) / n / kept**2
    return n * congruent(back, _filtered(before, matrix_blocks(released), noise))


def pooled(known: Known, state: State, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit the scores of all rounds by generalised least squares: g_s = H (z - z_s) + e_s.

    The covariance of e_s is that of the noise, a bend and a doubt of H; both grow with the distance
    x to m, (b, k). The doubt leaves out the path, along which H has a release of its own. It is
    common to all rounds, so that S has it once, at their average point. Return the estimate of H z,
    (b, k), and its covariance S.
    """
    H, P, n, rounds = state.curvature, known.prior_precision, state.number, state.scored
    path = (rounds[-1].point - rounds[0].point) * (len(H) == 1)  # of many it is not released
    h = times(H, path) / max(inner(path, times(H, path)), np.finfo(float).tiny) ** 0.5

    def doubt(x: np.ndarray) -> np.ndarray:
        whole = max(inner(x, times(H, x)), 0.0) * (H + P) - inner(x, h) ** 2 * outer(h, h)
        return np.asarray(state.report.noise**2 * whole)

    precision, meat, total, points = 0.0 * H, 0.0 * H, 0.0 * m, 0.0 * m
    for one in rounds:
        x = m - one.point
        own = one.noise + _bend(known, (H + one.curvature) / 2, n, x)
        weight = inverse(own + doubt(x))
        precision, meat = precision + weight, meat + weight @ own @ weight
        total = total + times(weight, one.score + times(H, one.point))
        points = points + times(weight, times(H + P, one.point))
    bread = inverse(precision)
    average = times(inverse(H + P), times(bread, points))
    return times(bread, total), bread @ meat @ bread + doubt(average - m)


def _bend(known: Known, H: np.ndarray, n: float, x: np.ndarray) -> np.ndarray:
    """Return the covariance of what the score changes by over x, (b, k), beside its slope H.

    The mean of H over x changes by half of `bend`: along H x, and spread over each part's latents.
    """
    along = times(H, x)
    r2 = max(inner(x, along), 0.0) / n
    half = min(CONSTANTS.bend * r2**0.5, 1.0) / 2
    parts = [outer(part.latents, part.latents) / part.size for part in known.parts]
    spread = np.sum(parts, axis=0) * (H + known.prior_precision)
    return np.asarray(half**2 * (outer(along, along) + n * r2 * spread))


def _at_location(known: Known, state: State, m: np.ndarray, S: np.ndarray) -> State:
    """Return scores in which those of the scale of outcomes are as at the location's mode m.

    They are b N (R - 1). R, the mean squared residual in units of the round's scale, holds the
    squared distance of the location from m, which has an error of the covariance S.
    """
    if known.scale is None:
        return state
    scale, H, rounds = known.scale, state.curvature, []
    location, of_one = vector_blocks(scale.location), scale.slope * state.number
    error = np.einsum("bij,bji->bi", inverse(H + known.prior_precision), S)[location].sum()
    for one in state.scored:
        score, x = one.score.copy(), np.where(location, m - one.point, 0.0)
        variance_ratio = np.exp(2 * scale.slope * (state.point - one.point).flat[scale.latent])
        distance = (inner(x, times(H, x)) + error) * variance_ratio / state.number
        R = 1 + score.flat[scale.latent] / of_one
        score.flat[scale.latent] -= of_one * min(distance, (1 - CONSTANTS.least_fall) * max(R, 0.0))
        rounds.append(one._replace(score=score))
    return state._replace(scored=tuple(rounds))


def _beside_prior(known: Known, state: State, fitted: np.ndarray, S: np.ndarray) -> Likelihood:
    """Return the likelihood that an estimate of H z with the covariance S leaves."""
    H, P = state.curvature, known.prior_precision
    J = state.report.excess * H if state.score_variance is None else state.score_variance
    G = H @ inverse(J + S)
    A, c = symmetric(G @ H), times(G, fitted)
    mean = np.linalg.solve(A + P, (c + times(P, known.prior_mean))[..., None])[..., 0]
    return Likelihood(A, c, mean)


def likelihoods(known: Known, state: State) -> tuple[Likelihood, Likelihood]:
    """Return the likelihood that all rounds leave, and the width that records alone would give it.

    Where one says nothing that numbers can hold, it is flat.
    """
    P, mean = known.prior_precision, known.prior_mean
    flat = Likelihood(0.0 * P, 0.0 * mean, mean)
    if not state.scored:
        return flat, flat
    sds, m = _bias(known, state), state.scored[-1].point
    bias, state = _of_sds(state.scored[-1].back, sds[-1]), _with_bias(state, sds)
    try:
        corrected = state
        for _ in range(4):
            fitted, S = pooled(known, corrected, m)
            noisy = _beside_prior(known, state, fitted, S + bias)
            m, corrected = noisy.mean, _at_location(known, state, noisy.mean, S)
        least = LEAST_NOISE**2 * (state.curvature + P)
        without = _beside_prior(known, state, fitted, least)
    except (np.linalg.LinAlgError, ArithmeticError):
        return flat, flat
    fine = [all(np.isfinite(x).all() for x in one) for one in (noisy, without)]
    return noisy if fine[0] else flat, without if fine[1] else flat


def _of_sds(back: np.ndarray, sds: np.ndarray) -> np.ndarray:
    """Return the covariance of independent errors of these sds in white coordinates."""
    return congruent(back, sds[..., None] ** 2 * np.eye(sds.shape[-1]))


def _with_bias(state: State, bias: np.ndarray) -> State:
    """Let rounds count less that leave out more than the latest one."""
    more = np.maximum(bias**2 - bias[-1] ** 2, 0.0)
    scored = (
        one._replace(noise=one.noise + _of_sds(one.back, own**0.5))
        for one, own in zip(state.scored, more, strict=True)
    )
    return state._replace(scored=tuple(scored))


def _bias(known: Known, state: State) -> np.ndarray:
    """Return what the norms of each round leave out, in white units, (rounds, b, k)."""
    bias = np.zeros((len(state.scored), *state.curvature.shape[:2]))
    if state.report.noise_unit == 0:
        return bias
    for k, own in enumerate(state.report.left_out):  # none before round 1
        for one, its in zip(state.scored, bias, strict=True):
            its[known.parts[k].latents] = own.at(one.norms[k])
    return bias


def _left_out(known: Known, state: State, sums: np.ndarray, weight: float) -> tuple[LeftOut, ...]:
    """Return what norms leave out of each part, from sums of counts, (parts, BINS)."""
    sd_unit = state.report.noise_unit * joint_norm(known.products) / COUNTS
    sd = sd_unit * (2 * len(known.parts)) ** 0.5 / max(weight, 1e-12) ** 0.5
    return tuple(
        left_out(own / max(weight, 1e-12), sd, part, state.number, known.is_centred)
        for own, part in zip(sums, known.parts, strict=True)
    )


def prepared(known: Known, state: State, point: np.ndarray, floored: np.ndarray) -> State:
    """Set the point, (d,), the coordinates and the bounds of the next round.

    ``floored`` is the curvature, with a floor where noise hides it.
    """
    n, P, noise_unit = state.number, known.prior_precision, state.report.noise_unit
    W = whitening(floored + P, n, [part.latents for part in known.parts])
    bounds = _bounds(known, state)
    c = vector_blocks(point) - (state.scored[0].point if state.scored else vector_blocks(point))
    along = np.linalg.solve(W.swapaxes(-1, -2), c[..., None]).reshape(-1)
    length = float(np.linalg.norm(along))
    dispersion = state.at.dispersion
    at = state.at._replace(
        point=point,
        whitening=W[:, 0, 0] if len(W) > 1 else W[0],
        score_bound=bounds[0],
        leverage_bound=_leverage_bound(known, state) if noise_unit else np.inf,
        direction=along / length if 0 < length < np.inf else None,
        dispersion=dispersion and dispersion._replace(bound=bounds[1]),
    )
    if known.estimating is not None:
        added = state.curvature if state.added_precision is None else state.added_precision
        of_q = symmetric(known.estimating.share(n) * added + P)
        root = np.linalg.inv(W @ np.linalg.cholesky(of_q))
        in_turn = state.t % CONSTANTS.rounds_of_precision == 0
        at = at._replace(
            root=root[:, 0, 0] if len(root) > 1 else root[0],
            of_precision=known.estimating.has_precision and len(W) == 1 and in_turn,
        )
    if not all(np.isfinite(x).all() for x in (at.point, at.whitening)):
        raise FloatingPointError("the next point or its coordinates are not finite")
    return state._replace(at=at)


def _bounds(known: Known, state: State) -> list[float]:
    """Return the clip norms of the next round, part by part: the least before any counts."""
    if state.report.noise_unit == 0:
        return [np.inf] * len(known.parts)
    if not state.lengths[1]:
        return [CONSTANTS.clip * part.size**0.5 for part in known.parts]
    noise, parts = _noise_of_scores(known, state), known.parts
    both = zip(state.report.left_out, parts, strict=True)
    return [own.best(noise / part.share**0.5) for own, part in both]


def _noise_of_scores(known: Known, state: State) -> float:
    """Return the noise on the sum of scores that were clipped to 1, of all rounds together."""
    return float(state.report.noise_unit * joint_norm(known.products) / sum(known.shares) ** 0.5)


def _leverage_bound(known: Known, state: State) -> float:
    """Return the squared norm from which on records weigh less: the least after a long step."""
    d = state.at.point.size
    least = CONSTANTS.leverage * d
    if state.report.length > 1:
        return least
    steady = CONSTANTS.steady * state.number * SLOPE / _noise_of_scores(known, state) / d**0.5
    return float(max(least, steady))


def covariance(known: Known, found: Likelihood) -> np.ndarray:
    """Return the covariance, (d, d), of the posterior beside the rounds' normal prior."""
    return dense(inverse(found.A + known.prior_precision))
