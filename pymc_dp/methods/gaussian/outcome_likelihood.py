"""The likelihood of all released scores, where outcomes are all that records are.

Without predictors or groups a public model says how every released score is distributed, whatever
the latents are: by the central limit theorem a sum over records is normal, with the mean and the
covariance that a record's clipped score has, and the noise is known. So the posterior is the prior
as it is written times this likelihood (Price et al. 2018, with expectations by importance
sampling). A normal distribution about the mode is not, where a level does not occur or where
noise hides what the few records say: there the likelihood has an end on one side alone.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.replace import clone_replace, vectorize_graph
from scipy.special import logsumexp, softmax

from pymc_dp.compiling.compile import function
from pymc_dp.contributions.drawn_scores import DrawnScores
from pymc_dp.contributions.outcomes import UNDRAWN, compile_draws, drawn_name
from pymc_dp.contributions.whitened import whitened_scores
from pymc_dp.methods.gaussian.expected_scores import made_up_outcomes
from pymc_dp.methods.gaussian.normal_latents import Graphs, cut_points, log_prior_of
from pymc_dp.methods.gaussian.state import Reported, State
from pymc_dp.model import Records
from pymc_dp.model.graphs import Tensor, pt
from pymc_dp.privacy.contribution import Batch, rows_along, unit_vector, with_draws

ROWS = 1500  # of made-up records, whether outcomes are few or many
FEW = 300  # of them, to find where the posterior is
NEAR = 64  # points of the posterior at which outcomes are drawn
# for the number of records, where it is not known: within so many sds of the noise on its count,
# and at least that sd over so much
NODES, WITHIN, HIDDEN = 7, 3.0, 20.0
STEP = 1e-4  # of differences, in sds of the latents
NEARLY_NONE = 1e-6  # the share of the noise that keeps covariances regular


class Table(NamedTuple):
    """Made-up outcomes, and what a record with each of them adds to each of k statistics."""

    batch: Batch
    base: np.ndarray  # logarithms of weights, (m,), under which they have no distribution
    added: np.ndarray  # (m, k)


class CompiledOutcomes(NamedTuple):
    """Functions of points, (n, d); slopes are compiled where chains need them first."""

    log_likelihood: Callable[..., np.ndarray]  # (batch, points) -> (n, m), of each outcome
    # (batch, points, weights (n, m)) -> slopes of weighted sums of these, (n, d)
    slope: Callable[..., np.ndarray]
    log_prior: Callable[[np.ndarray], np.ndarray]  # (n,)
    prior_slope: Callable[[np.ndarray], np.ndarray]  # (n, d)


class Numbers(NamedTuple):
    """How many records there may be."""

    values: np.ndarray
    shares: np.ndarray  # which sum to one

    @classmethod
    def of(cls, counted: float, sd: float) -> "Numbers":
        """Return what a noisy count says of a positive number, of whose size nothing else is known.

        Every magnitude is as likely, so that where noise hides the count few records are, too.

        >>> Numbers.of(100.0, 0.0)
        Numbers(values=array([100.]), shares=array([1.]))
        >>> Numbers.of(-5.0, 200.0).values.round()
        array([ 10.,  20.,  39.,  77., 153., 303., 600.])
        """
        if sd == 0:
            return cls(np.array([counted]), np.ones(1))
        least = max(counted - WITHIN * sd, sd / HIDDEN, 1.0)
        values = np.geomspace(least, max(counted, 0.0) + WITHIN * sd, NODES)
        return cls(values, softmax(-(((values - counted) / sd) ** 2) / 2))


class OutcomeLikelihood(NamedTuple):
    """Statistics of the released scores, and what a record of each outcome adds to them."""

    compiled: CompiledOutcomes
    table: Table
    observed: np.ndarray  # (k,)
    noise: np.ndarray  # their covariance without that of records, (k, k)
    numbers: Numbers  # of records

    def values(self, points: np.ndarray) -> np.ndarray:
        """Return the log posterior of points, (n, d), up to a constant."""
        _, mean, covariance = self.moments(points)
        log = np.stack([self._given(N, mean, covariance)[0] for N in self.numbers.values])
        shares = np.log(self.numbers.shares)[:, None]
        return np.asarray(self.compiled.log_prior(points) + logsumexp(log + shares, axis=0))

    def log_density(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log posterior of points, (n, d), up to a constant, and its gradient."""
        prior, slope = self.compiled.log_prior(points), self.compiled.prior_slope(points)
        V, (w, mean, covariance) = self.table.added, self.moments(points)
        values, of_mean, of_square = zip(
            *[self._given(N, mean, covariance) for N in self.numbers.values], strict=True
        )
        log = np.stack(values) + np.log(self.numbers.shares)[:, None]
        value = logsumexp(log, axis=0)
        chances = np.exp(log - value)
        B = np.einsum("kn,knij->nij", chances, np.stack(of_square))
        linear = np.einsum("kn,kni->ni", chances, np.stack(of_mean))
        # how the value changes with the weight of an outcome
        linear = linear - 2 * np.einsum("nij,nj->ni", B, mean)
        changes = linear @ V.T + np.einsum("nij,mi,mj->nm", B, V, V, optimize=True)
        changes = w * (changes - (w * changes).sum(axis=1, keepdims=True))
        return prior + value, slope + self.compiled.slope(self.table.batch, points, changes)

    def _given(
        self, number: float, mean: np.ndarray, covariance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log densities of the statistics of so many records, (n,).

        Return also their slopes in the mean of one record, (n, k), and in its second moments.
        """
        inverse = np.linalg.inv(number * covariance + self.noise)
        residual = self.observed - number * mean
        e = np.einsum("nij,nj->ni", inverse, residual)
        log = ((residual * e).sum(axis=1) - np.linalg.slogdet(inverse)[1]) / -2
        of_square = number / 2 * (e[:, :, None] * e[:, None, :] - inverse)
        return log, number * e, of_square

    def lost_to_noise(self, point: np.ndarray, sds: np.ndarray) -> np.ndarray:
        """Return how much more precise the posterior would be without noise, (d, d).

        ``point``, (d,), is where slopes are computed, and ``sds``, (d,), set the steps to it.
        """
        _, mean, covariance = self.moments(point[None])
        values = [self._given(N, mean, covariance)[0] for N in self.numbers.values]
        chances = softmax(np.concatenate(values) + np.log(self.numbers.shares))
        number = float(chances @ self.numbers.values)
        slopes = number * _slopes(self.means, point[None], sds)[0]
        of_records = number * covariance[0]
        without, within = of_records + NEARLY_NONE * self.noise, of_records + self.noise
        return np.asarray(slopes @ (np.linalg.inv(without) - np.linalg.inv(within)) @ slopes.T)

    def weights(self, points: np.ndarray) -> np.ndarray:
        """Return weights of outcomes, (n, m)."""
        batch, base, _ = self.table
        return weights_of(self.compiled.log_likelihood(batch, points) + base)

    def means(self, points: np.ndarray) -> np.ndarray:
        """Return the mean of what a record adds, (n, k)."""
        return np.asarray(self.weights(points) @ self.table.added)

    def moments(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return weights of outcomes, and mean and covariance of what a record adds."""
        w, V = self.weights(points), self.table.added
        mean = w @ V
        squares = (w @ (V[:, :, None] * V[:, None]).reshape(len(V), -1)).reshape(*mean.shape, -1)
        return w, mean, squares - mean[:, :, None] * mean[:, None, :]


def weights_of(log: np.ndarray) -> np.ndarray:
    """Return weights that sum to one; an outcome without a density has none."""
    log = np.where(np.isfinite(log), log, -np.inf)
    w = np.exp(log - log.max(axis=-1, keepdims=True))
    return np.asarray(w / w.sum(axis=-1, keepdims=True))


def compiled_outcomes(records: Records) -> CompiledOutcomes | None:
    """Compile the log likelihood of made-up outcomes and the log prior at many points.

    None where the graph of one point does not stand for many, and where the likelihood is that of
    an outcome given latents of its own record.
    """
    if records.local_latents:
        return None
    try:
        compiled = _compiled(records)
        batch, points = made_up_outcomes(records, 3), np.stack([records.start] * 2)
        with np.errstate(all="ignore"):
            shape = compiled.log_likelihood(batch, points).shape
    except (NotImplementedError, TypeError, ValueError):
        return None
    return compiled if shape == (2, 3) else None


def _compiled(records: Records) -> CompiledOutcomes:
    one, points = pt.vector("one", dtype="float64"), pt.matrix("points", dtype="float64")
    cut = cut_points(records, list(records.point), one)
    [each] = clone_replace([records.batch.log_likelihood()], cut)
    log: Tensor = vectorize_graph(each, {one: points})
    inputs = records.batch.inputs
    value = function([*inputs.values(), points], log, "python")

    @cache
    def slope() -> Any:
        weights = pt.matrix("weights", dtype="float64")
        known = pt.where(pt.neq(weights, 0), weights * log, 0.0)
        given = [*inputs.values(), points, weights]
        return function(given, pt.grad(known.sum(), points), "python")

    of_prior = cache(Graphs.of(records, ()).compiled_slope)
    return CompiledOutcomes(
        lambda batch, z: np.asarray(value(*[batch[n] for n in inputs], z)),
        lambda batch, z, w: np.asarray(slope()(*[batch[n] for n in inputs], z, w)),
        log_prior_of(records),
        lambda z: np.asarray(of_prior()(z, np.zeros((len(z), 1, 0)), np.ones((len(z), 1)))[1]),
    )


def outcome_likelihood(
    records: Records,
    scores: DrawnScores,
    compiled: CompiledOutcomes,
    state: State,
    rows: int,
    near: Iterable[np.ndarray] = (),
) -> OutcomeLikelihood:
    """Return the likelihood of all scores of the rounds; ``near``, (n, d), are likely points.

    Expectations are sums over outcomes that the model draws at these and at the rounds' points.
    """
    path = np.array([one.at.point for one in state.released])
    batch, base = _outcomes(records, compiled, np.array([*path, *near]), rows)
    added = _added(records, scores, state, batch, base, rows)
    good = np.isfinite(added).all(axis=1) & np.isfinite(base)
    batch = rows_along(records.batch.axes, batch, np.flatnonzero(good))
    base, added = base[good], added[good]
    if base.any():  # scores have no mean at their own points
        at_path, d = weights_of(compiled.log_likelihood(batch, path) + base), path.shape[1]
        means = [w @ added[:, t * d : (t + 1) * d] for t, w in enumerate(at_path)]
        added = added - np.concatenate(means)
    every = OutcomeLikelihood(
        compiled,
        Table(batch, base, added),
        np.concatenate([one.score for one in state.released]),
        _noise(state),
        Numbers.of(state.counted, state.number * state.number_sd),
    )
    return _reduced(every, path, state.learnt.reported)


def _outcomes(
    records: Records, compiled: CompiledOutcomes, points: np.ndarray, rows: int
) -> tuple[Batch, np.ndarray]:
    """Draw outcomes at points; where there are few different ones, each stands there once."""
    draw, axes, rng = compile_draws(records, 1), records.batch.axes, np.random.default_rng(0)
    if draw is None:
        raise ArithmeticError("no outcomes can be drawn")
    made, parts = made_up_outcomes(records, -(-rows // len(points))), []
    for point in points:
        drawn = draw(made, point, rng)
        batch = {n: np.moveaxis(drawn[drawn_name(n)][:, 0], 0, axes[n]) for n in records.drawn}
        parts.append(rows_along(axes, batch, np.flatnonzero(~drawn[UNDRAWN])))
    batch = {n: np.concatenate([x[n] for x in parts], axis=axes[n]) for n in records.drawn}
    flat = [np.moveaxis(x, axes[n], 0).reshape(x.shape[axes[n]], -1) for n, x in batch.items()]
    different = np.unique(np.concatenate(flat, axis=1), axis=0, return_index=True)[1]
    if 10 * len(different) < len(flat[0]):
        return rows_along(axes, batch, different), np.zeros(len(different))
    log = np.nan_to_num(compiled.log_likelihood(batch, points), nan=-np.inf)
    return batch, -logsumexp(log, axis=0)


def _added(
    records: Records,
    scores: DrawnScores,
    state: State,
    batch: Batch,
    base: np.ndarray,
    rows: int,
) -> np.ndarray:
    """Return what a record of each outcome adds to the score of each round, (m, rounds d)."""
    contribution, rng, axes = whitened_scores(scores), np.random.default_rng(0), records.batch.axes
    unit = unit_vector(contribution)
    m, parts = len(base), []
    repeats = max(rows // m, 1)  # draws that centre a score may be rare ones
    if not base.any():
        batch = rows_along(axes, batch, np.repeat(np.arange(m), repeats))
    for at, score, _ in state.released:
        held = contribution.prepare(with_draws(contribution, batch, at, rng), at)
        if base.any() and unit.rows is not None:
            each = unit.vectors(unit.rows(held, at), at)
        else:
            own = np.repeat(np.eye(m), repeats, axis=1) / repeats
            each = np.stack([contribution.weighted_sum(held, at, w) for w in own])
        parts.append(each[:, : len(score)])
    return np.concatenate(parts, axis=1)


def _noise(state: State) -> np.ndarray:
    """Return the covariance of the noise of all scores, and of what clipping leaves out."""
    noise = np.concatenate([np.full(len(x.score), x.noise_sd**2) for x in state.released])
    W = np.concatenate([x.at.score_scales[:, None] * x.at.whitening for x in state.released])
    bias = np.outer(state.bias, state.bias) * state.learnt.likelihood_curvature
    return np.asarray(np.diag(noise) + W @ bias @ W.T)


def _reduced(every: OutcomeLikelihood, path: np.ndarray, reported: Reported) -> OutcomeLikelihood:
    """Keep the combinations of scores whose means change with the latents, at any of the points."""
    middle, sds = reported.mean, np.sqrt(np.diag(reported.covariance + reported.noise))
    d, (batch, base, V) = path.shape[1], every.table
    of_records = every.numbers.values.max() * every.moments(middle[None])[2][0]
    root = np.linalg.inv(np.linalg.cholesky(of_records + every.noise))
    slopes = _slopes(every.means, path, sds).reshape(-1, V.shape[1]) @ root.T
    length = np.linalg.norm(slopes, axis=1, keepdims=True)
    slopes = np.divide(slopes, length, out=np.zeros_like(slopes), where=length > 0)
    own = np.linalg.svd(slopes.T, full_matrices=False)[0][:, : 2 * d].T @ root
    return every._replace(
        table=Table(batch, base, V @ own.T),
        observed=own @ every.observed,
        noise=own @ every.noise @ own.T,
    )


def _slopes(
    of_points: Callable[[np.ndarray], np.ndarray], points: np.ndarray, sds: np.ndarray
) -> np.ndarray:
    """Return the slopes of k functions at points, (n, d), by differences: (n, d, k)."""
    n, d = points.shape
    steps = STEP * sds
    moves = np.stack([np.diag(steps), -np.diag(steps)])
    values = of_points((points[:, None, None] + moves).reshape(-1, d)).reshape(n, 2, d, -1)
    return np.asarray((values[:, 0] - values[:, 1]) / (2 * steps[:, None]))
