"""Scores and curvatures of records in whitened coordinates, clipped consistently.

A score that is cut at a norm has no zero mean any more, however large epsilon is, and the estimate
that makes the sum of such scores vanish is biased. Conditionally unbiased bounded influence
(Künsch, Stefanski and Carroll 1989) subtracts before clipping what makes the mean vanish under the
model. Outcomes that the model draws for the record say what that is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions.gradients import each_gradient
from pymc_dp.contributions.outcomes import UNDRAWN, Draw, compile_draws
from pymc_dp.contributions.symmetric import smat, svec
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import OWNER, Batch, RowContribution, UnitVector
from pymc_dp.privacy.norms import clip_factors, row_norms

# draws of a record's outcomes: those that its weight follows from, and those that centre its score
WEIGHING, CENTRING = 3, 8
DRAWS = WEIGHING + CENTRING
# sweeps of the fixed point, and the longest excess that a draw may add to it, in clip norms
SWEEPS, LONGEST_EXCESS = 6, 8.0
# the joint vector's part for the variance of scores, over that of the score
VARIANCE = 0.1
# beyond so many latents the diagonal of curvatures is released alone
MANY_LATENTS = 150


class At(NamedTuple):
    """A point z, the coordinates of scores there, and the bounds of a vector's parts."""

    point: np.ndarray
    # W, shape (d, d): a score g becomes W g; its diagonal, (d,), for many latents
    whitening: np.ndarray
    score_bound: float  # norm that W g is clipped to
    curvature_bound: float  # norm that the slope of W g is clipped to, and weights follow from
    ratio: float  # of the curvature's part of the joint vector to the score's

    @property
    def clip_norm(self) -> float:
        """The largest norm of a record's whole vector."""
        return float(self.score_bound * (1 + self.ratio**2 + VARIANCE**2) ** 0.5)

    @property
    def curvature_scale(self) -> float:
        """The factor of curvatures in the vector."""
        if np.isinf(self.score_bound):
            return 1.0
        return self.ratio * self.score_bound / self.curvature_bound

    @property
    def variance_scale(self) -> float:
        """The factor of squared norms of scores in the vector."""
        return 1.0 if np.isinf(self.score_bound) else VARIANCE / self.score_bound


class Sums(NamedTuple):
    """Sums over records, in whitened coordinates."""

    score: np.ndarray  # (d,)
    curvature: np.ndarray  # (d, d): minus the slope of the expected score
    variance: float  # of the scores, their squared norms


def split(value: np.ndarray, at: At) -> Sums:
    """Split a released vector into its parts, without their scales."""
    d = at.point.size
    packed = value[d:-1] / at.curvature_scale
    curvature = np.diag(packed) if at.whitening.ndim == 1 else smat(packed)
    return Sums(value[:d], curvature, float(value[-1] / at.variance_scale))


def vector_size(d: int) -> int:
    """Return the length of the joint vector for ``d`` latents."""
    return d + (d if d > MANY_LATENTS else d * (d + 1) // 2) + 1


class DrawnScores(NamedTuple):
    """Scores of a batch at the observed and at all drawn outcomes; compiled once for all rounds."""

    d: int
    outcomes: int  # how many a record has: the observed one and the draws
    of_batch: Callable[[Batch, np.ndarray], np.ndarray]  # -> (rows, outcomes, d)
    draw: Draw | None
    together: bool  # whether the records of a unit are scored together


def drawn_scores(records: Records, backend: str) -> DrawnScores:
    """Compile the scores, and the draws where the model says how to draw."""
    gradients, draw = each_gradient(records, backend), _draws(records)
    drawn = records.outcomes.drawn if records.outcomes else {}
    read = {*records.batch.inputs, OWNER}

    def scores(batch: Batch, point: np.ndarray) -> np.ndarray:
        own = {name: values for name, values in batch.items() if name in read}
        found = [gradients(own, point)]
        for k in range(DRAWS if UNDRAWN in batch else 0):
            found.append(gradients(own | {n: batch[_key(n, k)] for n in drawn}, point))
        each = np.stack([np.asarray(g, "float64") for g in found], axis=1)
        if UNDRAWN in batch:
            each[batch[UNDRAWN]] = np.nan
        return each

    outcomes = 1 + (DRAWS if draw else 0)
    return DrawnScores(records.size, outcomes, scores, draw, records.of_units)


def whitened_scores(scores: DrawnScores) -> RowContribution:
    """Contribute the score, its slope and its squared norm; the context is an `At`.

    A record of weight w adds u = clip(w W g - a), where a is the shift that makes u zero on average
    over outcomes of the model at ``At.point``; w depends on other draws of the outcome, never on
    the outcome itself. By the likelihood's score identity the slope of E[u] is -E[u (W g)'], and
    the same draws estimate it.

    **Privacy.** The norm of a record's (or a unit's) vector is at most `At.clip_norm`, also before
    the wall clips it: the squares of its parts' bounds add up to the square of `At.clip_norm`.
    Draws are made for each record alone, from random numbers that never leave the wall.
    """
    d, count, of_batch, draw, together = scores
    return RowContribution(
        size=vector_size(d),
        width=3 * count * d + 2 * vector_size(d),
        rows=vectors,
        prepare=lambda batch, at: of_batch(batch, at.point),
        unit=_of_units(count, d, vectors),
        draw=draw and _at_point(draw),
        together=together,
    )


def vectors(scores: np.ndarray, at: At) -> np.ndarray:
    """Return records' vectors from scores (rows, 1 + draws, d), the observed outcome's first."""
    many = at.whitening.ndim == 1
    z = scores * at.whitening if many else scores @ at.whitening.T
    weighted, drawn = z[:, :1], z[:, :1]
    if scores.shape[1] > 1:
        lengths = (z[:, 1 : 1 + WEIGHING] ** 2).sum(axis=-1).mean(axis=1)
        with np.errstate(divide="ignore"):
            weights = np.fmin(1.0, at.curvature_bound / lengths)
        kept = np.concatenate([z[:, :1], z[:, 1 + WEIGHING :]], axis=1)
        weighted, drawn = weights[:, None, None] * kept, kept
    u = clip_consistently(weighted, at.score_bound)
    first = min(1, drawn.shape[1] - 1)  # means over drawn outcomes alone, where there are any
    curvature = _slopes(u[:, first:], drawn[:, first:], many)
    curvature *= clip_factors(row_norms(curvature), at.curvature_bound)[:, None]
    variance = (u[:, first:] ** 2).sum(axis=-1).mean(axis=1)
    return np.column_stack([u[:, 0], at.curvature_scale * curvature, at.variance_scale * variance])


def _slopes(u: np.ndarray, z: np.ndarray, many: bool) -> np.ndarray:
    """Average the products of clipped and whitened scores; symmetric parts as vectors."""
    if many:
        return np.asarray((u * z).mean(axis=1))
    slope = np.matmul(np.swapaxes(u, 1, 2), z) / u.shape[1]
    return svec((slope + np.swapaxes(slope, 1, 2)) / 2)


def clip_consistently(scores: np.ndarray, bound: float) -> np.ndarray:
    """Shift and clip vectors (rows, k, d) so that the clipped ones keep each row's mean.

    With e(v) = v - clip(v), the shift is the fixed point of a = -mean e(s_k - a): then the mean of
    clip(s_k - a) is that of s_k. The s_k of a row are exchangeable under the model and have zero
    mean, so that each clipped one has zero mean, too. Rows without excess are not shifted.

    >>> clipped = clip_consistently(np.array([[[3.0], [-1.0], [-1.0]]]), bound=2.0)
    >>> bool(abs(clipped).max() <= 2), clipped.round(1).ravel()
    (True, array([ 2. , -0.5, -0.5]))
    """
    if np.isinf(bound):
        return scores
    clipped: np.ndarray = scores * _factors(scores, bound)
    long = np.flatnonzero((clipped != scores).any(axis=(1, 2)))
    if long.size and scores.shape[1] > 1:
        some = scores[long]
        shift = np.zeros_like(some[:, :1])
        for _ in range(SWEEPS):
            moved = some - shift
            excess = moved * (1 - _factors(moved, bound))
            shift = -(excess * _factors(excess, LONGEST_EXCESS * bound)).mean(axis=1, keepdims=True)
        moved = some - shift
        clipped[long] = moved * _factors(moved, bound)
    return clipped


def _factors(vectors: np.ndarray, bound: float) -> np.ndarray:
    norms = row_norms(vectors.reshape(-1, vectors.shape[-1]))
    return np.asarray(clip_factors(norms, bound).reshape(*vectors.shape[:-1], 1))


def _draws(records: Records) -> Draw | None:
    draw = compile_draws(records)
    if draw is None:
        return None

    def draws(batch: Batch, point: np.ndarray, generator: np.random.Generator) -> Batch:
        each = [draw(batch, point, generator) for _ in range(DRAWS)]
        named = {_key(n, k): x for k, one in enumerate(each) for n, x in one.items()}
        failed = [named.pop(_key(UNDRAWN, k)) for k in range(DRAWS)]
        return named | {UNDRAWN: np.any(failed, axis=0)}

    return draws


def _at_point(draw: Draw) -> Callable[[Batch, At, np.random.Generator], Batch]:
    return lambda batch, at, generator: draw(batch, at.point, generator)


def _key(name: str, k: int) -> str:
    return f"{name}, draw {k}"


def _of_units(count: int, d: int, of_scores: Callable[[np.ndarray, Any], np.ndarray]) -> UnitVector:
    """Treat a unit like a record whose score, at each draw, is the sum of its records'."""
    return UnitVector(
        size=count * d,
        vectors=lambda sums, at: of_scores(sums.reshape(len(sums), count, d), at),
        rows=lambda each, at: each.reshape(len(each), count * d),
    )


# bins of |score|, by powers of two
LEAST, MOST = -32, 32
BINS = MOST - LEAST


def score_scales(scores: DrawnScores) -> RowContribution:
    """Contribute, for every latent, the share of draws with a score between powers of two.

    The context is a point. The vector has (d, BINS) entries; scores of 0 count in the first bin.

    **Privacy.** The shares of a latent add up to 1, so the norm of a record's (or a unit's) vector
    is at most sqrt(d).
    """
    d, count, of_batch, draw, together = scores
    return RowContribution(
        size=d * BINS,
        width=2 * count * d + d * BINS,
        rows=_shares_of_bins,
        prepare=of_batch,
        unit=_of_units(count, d, _shares_of_bins),
        draw=draw,
        together=together,
    )


def _shares_of_bins(every: np.ndarray, point: np.ndarray) -> np.ndarray:
    scores = every[:, min(1, every.shape[1] - 1) :]  # drawn outcomes alone, where there are any
    rows, count, d = scores.shape
    with np.errstate(divide="ignore", invalid="ignore"):
        places = np.floor(np.log2(np.abs(scores))) - LEAST
    good = np.isfinite(every).all(axis=(1, 2))
    places = np.clip(np.nan_to_num(places, neginf=0), 0, BINS - 1).astype(int)
    shares = np.zeros((rows, d, BINS))
    row, latent = np.ogrid[:rows, :d]
    for k in range(count):
        shares[row, latent, places[:, k]] += 1 / count
    return np.where(good[:, None], shares.reshape(rows, d * BINS), np.nan)
