"""Scores and curvatures of records in the Gaussian latents of linear predictors.

Both are products of a row of the design and one number, so the norm of a record's vector is known
without forming it.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.linear.features import Features, features
from pymc_dp.methods.linear.link import pg_weight
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.methods.linear.residual_energy import Bounded
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Batch, FactoredContribution
from pymc_dp.privacy.norms import (
    SQUARES,
    clip_factors,
    joint_norms,
    product,
    rounded_product,
    row_norms,
)

# longest row of a design: the least double, times its outer product, is 1e-44
LONGEST_ROW = SQUARES[1]


class Quadratic(NamedTuple):
    """Likelihoods that are quadratic in psi, or were made so, around a mean of psi; (rows, J)."""

    residual: np.ndarray  # the slope at the mean
    weight: np.ndarray  # omega, the curvature


# (batch, features, mean of psi, its variance) -> Quadratic
Expect = Callable[[Batch, Features, np.ndarray, np.ndarray], Quadratic]


class Bounds(NamedTuple):
    """Norms that the two parts of a record's vector do not exceed; public values."""

    features: float  # of score and curvature, together
    noise: float  # of the statistics of each noise precision


class Context(NamedTuple):
    """The Gaussian posterior, or cavity, at which sums of a batch are taken: public values."""

    mean: np.ndarray
    # zero for the first release: Pólya-Gamma variables start at their largest mean
    covariance: np.ndarray
    layout: Layout  # of a record's vector
    precision: np.ndarray  # by predictor: the noise precision at which energies are centred
    # None where no part is shortened by itself: energies are then plain sums
    bounds: Bounds | None = None


class Sums(NamedTuple):
    """Sums over records for each of P predictors, at a noise precision of 1."""

    # sum A' (kappa - omega psi); in the absolute form without psi's part from the latents
    score: Any
    curvature: Any  # sum A' omega A
    shape: Any  # shape, energy: statistics of the noise precisions
    energy: Any  # where parts are bounded, the sum of u, see `residual_energy`
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

    # a record's score is score_factor * score_row, (rows,) and (rows, d). With several entries of
    # psi the row is A' r, summed once: entries may cancel, and differently in a norm and in a
    # weighted sum
    score_row: np.ndarray
    score_factor: np.ndarray
    design: np.ndarray  # A, (rows, J, d)
    weight: np.ndarray  # omega, (rows, J)
    shape: np.ndarray  # shape, energy: statistics of the noise precision
    energy: np.ndarray

    def shortened(self, features: np.ndarray, noise: np.ndarray) -> "Moments":
        """Multiply score and curvature, and the noise statistics, by one factor a record each."""
        return self._replace(
            score_factor=self.score_factor * features,
            weight=self.weight * features[:, None],
            shape=self.shape * noise,
            energy=self.energy * noise,
        )


def contribution(
    records: Records,
    predictors: tuple[Predictor, ...],
    d: int,
    expects: Sequence[Expect],
    feature_bound: float,
    backend: str,
) -> FactoredContribution:
    """Contribute scores, curvatures, noise statistics and a one; the context is a `Context`.

    ``expects`` makes each likelihood quadratic. Designs longer than ``feature_bound``, the declared
    public bound, are shortened to it.
    """
    compute = features(records, predictors, backend)

    def prepare(batch: Batch, context: Context) -> list[Moments]:
        parts = zip(predictors, expects, compute(batch), strict=True)
        found = [
            moments(batch, predictor, expect, _shortened(part, feature_bound), context)
            for predictor, expect, part in parts
        ]
        return bounded(predictors, found, context) if context.bounds else found

    def norms(parts: list[Moments], context: Context) -> np.ndarray:
        scales = scales_of(context)
        return joint_norms(
            *[norm for part in parts for norm in part_norms(part, scales)], scales.number
        )

    def weighted_sum(parts: list[Moments], context: Context, weights: np.ndarray) -> np.ndarray:
        sums = zip(*[part_sums(part, weights) for part in parts], strict=True)
        values = dict(zip(Sums._fields, [*map(np.stack, sums), weights.sum()], strict=True))
        return context.layout.pack(values)

    size = layout_of(len(predictors), d).size
    # J outer products a record, each a row of the sum, whose norms add up to sqrt(J) at most
    entries = max(prod(predictor.shape) for predictor in predictors)
    return FactoredContribution(size, 4 * d, norms, weighted_sum, prepare, parts_norm=entries**1.5)


def _shortened(part: Features, bound: float) -> Features:
    if np.isinf(bound):
        return part
    shares = clip_factors(row_norms(part.design), bound)
    return part._replace(design=part.design * shares[:, None, None])


def variational(predictor: Predictor) -> Expect:
    """Make a likelihood quadratic by Pólya-Gamma means omega at c^2 = E psi^2, if need be."""

    def expect(batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray) -> Quadratic:
        weight = part.curvature
        if predictor.augmented:
            weight = weight * pg_weight(np.sqrt(mean**2 + variance))
        return Quadratic(part.slope - weight * mean, weight)

    return expect


def own_curvature(predictor: Predictor) -> Expect:
    """Residuals as in `variational`, with the likelihood's own curvature b E[p (1 - p)].

    The expectation is that of a probit of the same slope (MacKay 1992).
    """
    bound = variational(predictor)

    def expect(batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray) -> Quadratic:
        found = bound(batch, part, mean, variance)
        if not predictor.augmented:
            return found
        shrink = (1 + np.pi * variance / 8) ** -0.5
        own = part.curvature * shrink / np.cosh(shrink * mean / 2) ** 2
        return found._replace(weight=own)

    return expect


def from_origin(expect: Expect) -> Expect:
    """Take scores where the latents are 0, not at their mean: A' (kappa - omega psi_0)."""

    def moved(batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray) -> Quadratic:
        residual, weight = expect(batch, part, mean, variance)
        return Quadratic(residual + weight * (mean - part.offset), weight)

    return moved


def moments(
    batch: Batch, predictor: Predictor, expect: Expect, part: Features, context: Context
) -> Moments:
    """E-step: moments of each record around the current psi."""
    count, entries, d = part.design.shape
    rows = part.design.reshape(-1, d)  # products of matrices: NumPy loops over stacks of small ones
    psi = part.offset + product(rows, context.mean).reshape(count, entries)
    spread = np.vecdot(rounded_product(rows, context.covariance), rows).reshape(count, entries)
    spread = np.maximum(spread, 0.0)
    residual, weight = expect(batch, part, psi, spread)
    energy = 0 * part.shape  # nan outside the support
    if predictor.precision:  # b - kappa psi + omega psi^2 / 2, in expectation
        energy = part.energy + (weight * (psi**2 + spread) / 2 - part.slope * psi).sum(axis=1)
    if entries == 1:
        score_row, score_factor = rows, residual[:, 0]
    else:
        score_row = np.einsum("njd,nj->nd", part.design, residual)
        score_factor = np.ones(count)
    return Moments(score_row, score_factor, part.design, weight, part.shape, energy)


def scales_of(context: Context) -> Sums:
    """Return the scale of each part of a record's vector."""
    return Sums(*[context.layout.parts[name].scale for name in Sums._fields])


def bounded(
    predictors: Sequence[Predictor], parts: list[Moments], context: Context
) -> list[Moments]:
    """Centre and bound the energies, and shorten each part of a record's vector to its bound.

    So what a record adds about the noise does not depend on its features: were the whole vector
    shortened by one factor, energies would count less the larger they are.

    **Privacy.** Score and curvature together are at most ``bounds.features`` long, the statistics
    of each of P noise precisions at most ``bounds.noise``, and the count is its scale s. Their
    squares add up to F^2 + P B^2 + s^2, which is the squared clip norm. The wall clips the whole
    vector all the same.
    """
    scales, bounds = scales_of(context), context.bounds
    if bounds is None:
        return parts
    centred = [
        _centred(part, precision) if predictor.precision else part
        for predictor, part, precision in zip(predictors, parts, context.precision, strict=True)
    ]
    lengths = [part_norms(part, scales) for part in centred]
    features = joint_norms(*[x for score, curve, *_ in lengths for x in (score, curve)])
    share = clip_factors(features, bounds.features)
    return [
        part.shortened(share, clip_factors(np.hypot(shape, energy), bounds.noise))
        for part, (_, _, shape, energy) in zip(centred, lengths, strict=True)
    ]


def _centred(part: Moments, precision: float) -> Moments:
    """Put u in the place of the energy; records that say nothing about the noise add 0."""
    says = part.shape != 0
    centred = Bounded.of(np.where(says, part.shape, 1.0))(precision * part.energy)
    return part._replace(energy=np.where(says, centred, 0.0))


def part_norms(part: Moments, scales: Sums) -> list[np.ndarray]:
    """Norms of a record's score and curvature, and its two noise statistics.

    Those of records beyond `LONGEST_ROW` are infinite: their weights would be so small that
    rounding doubles them, and sums longer than these norms.
    """
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
