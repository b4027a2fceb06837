"""What a record says about the Gaussian latents of linear predictors: score and curvature.

Both have factors, a row of the design and one number, so the norm of a record's vector needs
neither of them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions import Contribution
from pymc_dp.contributions.contribution import Batch, row_norms
from pymc_dp.contributions.symmetric import smat, svec
from pymc_dp.methods.linear.features import Features, features
from pymc_dp.methods.linear.polya_gamma import pg_weight
from pymc_dp.methods.linear.predictor import Predictor
from pymc_dp.records import Records

Centre = Callable[[np.ndarray, np.ndarray], np.ndarray]
# (batch, features, mean of psi, its variance) -> residual around that mean, and weight
Expect = Callable[[Batch, Features, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def at_mean(rest: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """Take scores where the latents have their mean."""
    return psi


def at_origin(rest: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """Take scores where the latents are 0."""
    return rest


class Scales(NamedTuple):
    """Public factors that bring the parts of a record's vector to comparable norms."""

    curvature: float
    shape: float
    energy: float
    number: float


class Asked(NamedTuple):
    """The Gaussian posterior at which a batch is asked: public values.

    Attributes
    ----------
    mean : (d,)
    covariance : (d, d)
        Zero for the first release: Pólya-Gamma variables start at their largest mean.
    scales : Scales
    """

    mean: np.ndarray
    covariance: np.ndarray
    scales: Scales


class Sums(NamedTuple):
    """Sums over records for each of P predictors, at a noise precision of 1.

    Attributes
    ----------
    score : (P, d)
        sum A' (kappa - omega psi); in the absolute form without psi's part from the latents.
    curvature : (P, d, d)
        sum A' omega A.
    shape, energy : (P,)
        Statistics of the noise precisions.
    number : ()
        The number of records.
    """

    score: np.ndarray
    curvature: np.ndarray
    shape: np.ndarray
    energy: np.ndarray
    number: np.ndarray


def size_of(d: int, predictors: Sequence[Predictor]) -> int:
    """Return the length of a record's vector: P scores, P curvatures, P noise statistics, 1."""
    return len(predictors) * (d + d * (d + 1) // 2 + 2) + 1


def split(value: np.ndarray, d: int, count: int, scales: Scales) -> Sums:
    """Cut a released vector into sums for ``count`` predictors, scales undone."""
    triangle = d * (d + 1) // 2
    ends = np.cumsum([count * d, count * triangle, count, count])
    score, curvature, shape, energy, number = np.split(value, ends)
    return Sums(
        score.reshape(count, d),
        np.stack([smat(part) for part in curvature.reshape(count, -1)]) / scales.curvature,
        shape / scales.shape,
        energy / scales.energy,
        number[0] / scales.number,
    )


def noise_of(sd: float, scales: Scales) -> Sums:
    """Variance of the noise on an entry of each sum."""
    return Sums(*(sd / np.array([1.0, *scales])) ** 2)


class Moments(NamedTuple):
    """Records at the believed posterior; norms and sums read the same numbers.

    Attributes
    ----------
    score : (rows, d)
        A' r, summed over the entries of psi once: they may cancel, and would do so differently in
        a norm and in a weighted sum.
    root : (rows, J, d)
        Rows of A times sqrt |omega|, and ``sign``, (rows, J), of omega.
    shape, energy : (rows,)
        Statistics of the noise precision.
    """

    score: np.ndarray
    root: np.ndarray
    sign: np.ndarray
    shape: np.ndarray
    energy: np.ndarray


def contribution(
    records: Records,
    predictors: tuple[Predictor, ...],
    d: int,
    expects: Sequence[Expect],
    centre: Centre,
    feature_bound: float,
    backend: str,
) -> Contribution:
    """Contribute scores, curvatures, noise statistics and a one; the context is an `Asked`.

    ``expects`` makes each likelihood quadratic. ``centre`` picks, from psi without the latents and
    psi at their mean, where scores are taken. Designs longer than ``feature_bound`` are shortened
    to it.
    """
    compute = features(records, predictors, backend)

    def prepare(batch: Batch, asked: Asked) -> list[Moments]:
        parts = zip(predictors, expects, compute(batch), strict=True)
        return [
            moments(batch, predictor, expect, shortened(part, feature_bound), asked, centre)
            for predictor, expect, part in parts
        ]

    def norms(parts: list[Moments], asked: Asked) -> np.ndarray:
        every = [norm for part in parts for norm in part_norms(part, asked.scales)]
        return row_norms(np.stack([*every, np.full(len(every[0]), asked.scales.number)], axis=1))

    def weighted_sum(parts: list[Moments], asked: Asked, weights: np.ndarray) -> np.ndarray:
        sums = zip(*[part_sums(part, asked.scales, weights) for part in parts], strict=True)
        count = asked.scales.number * weights.sum()
        return np.concatenate([*map(np.concatenate, sums), [count]])

    return Contribution(size_of(d, predictors), 4 * d, norms, weighted_sum, prepare)


def shortened(part: Features, bound: float) -> Features:
    """Bring the norm of every record's design to at most ``bound``, the declared public bound."""
    if np.isinf(bound):
        return part
    return part._replace(
        design=part.design * np.fmin(1.0, bound / row_norms(part.design))[:, None, None]
    )


def variational(predictor: Predictor) -> Expect:
    """Make a likelihood quadratic by Pólya-Gamma means omega at c^2 = E psi^2, if need be."""

    def expect(
        batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        weight = part.curvature
        if predictor.augmented:
            weight = weight * pg_weight(np.sqrt(mean**2 + variance))
        return part.slope - weight * mean, weight

    return expect


def own_curvature(predictor: Predictor) -> Expect:
    """Residuals as in `variational`, with the likelihood's own curvature b E[p (1 - p)].

    The expectation is that of a probit of the same slope (MacKay 1992).
    """
    bound = variational(predictor)

    def expect(
        batch: Batch, part: Features, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        residual, weight = bound(batch, part, mean, variance)
        if predictor.augmented:
            shrink = (1 + np.pi * variance / 8) ** -0.5
            weight = part.curvature * shrink / np.cosh(shrink * mean / 2) ** 2
        return residual, weight

    return expect


def moments(
    batch: Batch,
    predictor: Predictor,
    expect: Expect,
    part: Features,
    asked: Asked,
    centre: Centre,
) -> Moments:
    """E-step: what each record says around the believed psi."""
    psi = part.offset + part.design @ asked.mean
    spread = np.einsum("njd,njd->nj", part.design @ asked.covariance, part.design)
    spread = np.maximum(spread, 0.0)
    residual, weight = expect(batch, part, psi, spread)
    # b - kappa psi + omega psi^2 / 2, in expectation
    energy = part.energy + (weight * (psi**2 + spread) / 2 - part.slope * psi).sum(axis=1)
    energy = energy if predictor.precision else 0 * part.shape  # nan outside the support
    residual = residual + weight * (psi - centre(part.offset, psi))
    score = np.einsum("njd,nj->nd", part.design, residual)
    root = part.design * np.sqrt(np.abs(weight))[:, :, None]
    return Moments(score, root, np.sign(weight), part.shape, energy)


def part_norms(part: Moments, scales: Scales) -> list[np.ndarray]:
    """Norms of a record's score, curvature and noise statistics."""
    if part.root.shape[1] == 1:
        curvature = row_norms(part.root) ** 2
    else:
        # signs can only make the sum of outer products shorter
        curvature = row_norms(part.root @ part.root.transpose(0, 2, 1))
    noise = np.hypot(scales.shape * part.shape, scales.energy * part.energy)
    return [row_norms(part.score), scales.curvature * curvature, noise]


def part_sums(part: Moments, scales: Scales, weights: np.ndarray) -> tuple[np.ndarray, ...]:
    """Weighted sums of scores, curvatures and noise statistics over records."""
    rows = part.root.reshape(-1, part.root.shape[2])
    weighted = (weights[:, None] * part.sign).ravel()
    return (
        weights @ part.score,
        scales.curvature * svec((rows * weighted[:, None]).T @ rows),
        scales.shape * np.atleast_1d(weights @ part.shape),
        scales.energy * np.atleast_1d(weights @ part.energy),
    )
