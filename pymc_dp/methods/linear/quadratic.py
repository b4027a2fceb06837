"""Scores and curvatures of records in the Gaussian latents of linear predictors, and clip norms.

Both are products of a row of the design and one number, so the norm of a record's vector is known
without forming it. A likelihood is first made quadratic in psi; then a record's moments are taken
at the current posterior; energies of residuals are bounded, so that they are right on average; each
part of the vector is shortened to its share of the clip norm. The clip norm is a public guess for
the first release, then a function of it: it matters most for features that are sparse or of odd
scale. Below it a fit is biased, above it only noisier.

Energies. Where e has a Gamma(k, tau) distribution, as half the squared residual of a Normal outcome
has with k = 1/2, a clipped sum of energies is too small and the precision comes out too large,
however many records there are. So a record contributes what has the expectation 0 under the model
at the public precision tau_0, and slope k in the logarithm of tau_0 / tau:

    u = (min(tau_0 e, c) - E min(G, c)) k / E[G; G < c],    G ~ Gamma(k, 1).

It is bounded whatever c. Source: conditionally unbiased bounded influence (Kuensch, Stefanski and
Carroll 1989); for k = 1/2 it is Huber's proposal 2.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import gammainc, gammaincinv

from pymc_dp.contributions.layout import Layout, Part
from pymc_dp.methods.conjugate.blocks import probe_rows
from pymc_dp.methods.linear.predictor import Features, Predictor, features, pg_weight
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


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    releases: int = 10
    noiseless_releases: int = 100  # without noise, more steps have no cost
    # the first clip norm, in typical lengths of a score, and its range
    first_clip: float = 1.2
    first_clip_range: tuple[float, float] = (1.0, 10.0)
    # later clip norms, in typical lengths: the least if noise alone counts, the least if noise is
    # accounted for and bias is not, and the largest
    least_clip: float = 1.5
    noise_aware_clip: float = 2.2
    largest_clip: float = 10.0
    # noise of the mean, in posterior standard deviations, that may come from clip norms up to
    # ``noise_aware_clip``, and from larger ones
    noise_of_aware_clip: float = 0.55
    noise_of_larger_clip: float = 0.2
    # the least share of the curvature in a record's vector, where clip norms are loose
    curvature_share: float = 0.5
    # shares of the clip norm that the energies of residuals and their coefficients take, and of the
    # typical length that the count takes
    energy_share: float = 0.3
    shape_share: float = 0.15
    count_share: float = 0.1
    # weights of energies in their average grow like this power of a release's number
    energy_power: int = 4
    # share of the records whose energies are cut off, where the model is right
    clipped_energies: float = 0.05
    least_shape: float = 0.25  # coefficients below this are taken as it: half a Normal outcome's
    # how far the first release may move the public guess of a length, and the standard deviations
    # of noise that its interval has on each side
    largest_change: float = 10.0
    interval: float = 2.0
    first_step: float = 1.0
    # eigenvalues of a curvature below this share of the noise's edge are raised to it
    step_floor: float = 0.5
    # rounds of updates over precisions and the Gaussian latents; they read no data
    rounds: int = 30
    # where a likelihood is no parabola, a step moves the latents by at most this many prior
    # standard deviations, as a root mean square
    trust_radius: float = 1.0


DEFAULTS = Defaults()


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
    energy: Any  # where parts are bounded, the sum of u, see `Bounded`
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
        each = [
            moments(batch, predictor, expect, _shortened(part, feature_bound), context)
            for predictor, expect, part in parts
        ]
        return bounded(predictors, each, context) if context.bounds else each

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
        quadratic = bound(batch, part, mean, variance)
        if not predictor.augmented:
            return quadratic
        shrink = (1 + np.pi * variance / 8) ** -0.5
        own = part.curvature * shrink / np.cosh(shrink * mean / 2) ** 2
        return quadratic._replace(weight=own)

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


class Bounded(NamedTuple):
    """The function u of a record's tau_0 e; numbers, or arrays over records."""

    shape: np.ndarray  # k
    largest: np.ndarray  # c
    centre: np.ndarray  # E min(G, c)
    slope: np.ndarray  # E[G; G < c] / k

    @classmethod
    def of(cls, shape: np.ndarray) -> "Bounded":
        """Cut off the same share of the records, whatever their shape."""
        largest = gammaincinv(shape, 1 - DEFAULTS.clipped_energies)
        below = gammainc(shape + 1, largest)
        above = 1 - gammainc(shape, largest)
        return cls(shape, largest, shape * below + largest * above, below)

    def __call__(self, energy: np.ndarray) -> np.ndarray:
        """Evaluate u at tau_0 e."""
        return np.asarray((np.clip(energy, 0.0, self.largest) - self.centre) / self.slope)

    @property
    def longest(self) -> np.ndarray:
        """The largest absolute value of u."""
        return np.asarray(np.maximum(self.centre, self.largest - self.centre) / self.slope)

    @property
    def loss(self) -> np.ndarray:
        """Variance of u over the k that G itself has, less 1."""
        below = self.shape * (self.shape + 1) * gammainc(self.shape + 2, self.largest)
        above = self.largest**2 * (1 - gammainc(self.shape, self.largest))
        variance = (below + above - self.centre**2) / self.slope**2
        return np.asarray(variance / self.shape - 1)


def energy_of(excess: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Estimate the sum of tau_0 e from the sum of u, given the sum of k.

    One step of Newton's method, in the logarithm where the sum is smaller than expected: a
    straight line would lead to energies below 0.

    >>> energy_of(np.array([5.0, -20.0]), np.array([10.0, 10.0])).round(2)
    array([15.  ,  1.35])
    """
    ratio = excess / shape
    return np.asarray(shape * np.where(ratio < 0, np.exp(np.minimum(ratio, 0.0)), 1 + ratio))


class Scale(NamedTuple):
    """The clip norm and what it was made for."""

    clip_norm: float
    radius: float  # typical length of a record's design
    residual: float  # typical residual kappa - omega psi, at a noise precision of 1
    curvature: float  # the largest omega of a probe record
    multiple: float  # the clip norm in typical lengths of a score
    fixed: bool  # whether it stays as it is: the caller chose it
    precisions: int  # how many noise precisions the predictors have
    # of the energy of a probe record's residual; the longest where there are several
    energy: Bounded

    @property
    def length(self) -> float:
        """Typical length of a score."""
        return self.residual * self.radius

    def following(self, precisions: Sequence[float]) -> Self:
        """Let the typical residual follow the noise precisions, where the model has any."""
        if not precisions:
            return self
        scale = self._replace(residual=float(min(precisions) ** -0.5))
        return scale if scale.fixed else scale._replace(clip_norm=scale.multiple * scale.length)


def first_scale(
    records: Records,
    predictors: tuple[Predictor, ...],
    d: int,
    clip_norm: float | None,
    feature_bound: float,
) -> Scale:
    """Guess for features of unit scale, from d and from the likelihood at probe rows."""
    rows = probe_rows(records, np.random.default_rng(0), [1])
    probes = features(records, predictors, "python")(rows)
    omega = max(*(float(np.nanmax(part.curvature)) for part in probes), 1e-12)
    radius = min(max(d, 1) ** 0.5, feature_bound)
    shapes = [at.shape[0] for p, at in zip(predictors, probes, strict=True) if p.precision]
    energy = Bounded.of(np.max(np.nan_to_num(shapes), initial=DEFAULTS.least_shape))
    fixed, multiple = clip_norm is not None, DEFAULTS.first_clip
    guess = Scale(1.0, radius, omega**0.5, omega, multiple, fixed, len(shapes), energy)
    if clip_norm is None:
        clip_norm = float(np.clip(DEFAULTS.first_clip * guess.length, *DEFAULTS.first_clip_range))
        return guess._replace(clip_norm=clip_norm, multiple=clip_norm / guess.length)
    if np.isfinite(clip_norm):
        guess = guess._replace(radius=clip_norm / (DEFAULTS.first_clip * guess.residual))
    return guess._replace(clip_norm=float(clip_norm))


def scaled(layout: Layout, scale: Scale) -> Layout:
    """Bring curvature, noise statistics and count to shares of a score's length."""
    length = scale.length
    share = max(min(1.0, DEFAULTS.least_clip / scale.multiple) ** 2, DEFAULTS.curvature_share)
    layout = layout.with_scales(
        curvature=share * length / (scale.curvature * scale.radius**2),
        number=DEFAULTS.count_share * min(DEFAULTS.first_clip * length, scale.clip_norm),
    )
    if bounds_of(layout, scale) is None:
        return layout
    each = scale.clip_norm / scale.precisions**0.5
    return layout.with_scales(
        shape=DEFAULTS.shape_share * each / float(scale.energy.shape),
        energy=DEFAULTS.energy_share * each / float(scale.energy.longest),
    )


def bounds_of(layout: Layout, scale: Scale) -> Bounds | None:
    """Share a clip norm among the parts of a vector, if there are noise precisions."""
    if not scale.precisions or np.isinf(scale.clip_norm):
        return None
    of_noise = DEFAULTS.energy_share**2 + DEFAULTS.shape_share**2
    left = (1 - of_noise) * scale.clip_norm**2 - layout.parts["number"].scale ** 2
    return Bounds(left**0.5, scale.clip_norm * (of_noise / scale.precisions) ** 0.5)


def rescaled(scale: Scale, first: Sums, noise: Sums, releases: int, least: float) -> Scale:
    """Take the typical length from the first release, as far as its noise allows.

    ``noise`` holds the variances of the entries of ``first``. The length moves to the nearest end
    of an interval for the root mean square of the records' lengths, so a release that is mostly
    noise does not change the guess. The clip norm is at least ``least`` typical lengths.
    """
    if scale.fixed:
        return scale
    d = first.score.shape[1]
    trace = np.trace(first.curvature, axis1=1, axis2=2).sum()
    doubt = DEFAULTS.interval * (noise.curvature * d * len(first.score)) ** 0.5
    doubt_of_count = DEFAULTS.interval * noise.number**0.5
    fewest, most = (max(first.number + x, 1.0) for x in (-doubt_of_count, doubt_of_count))
    upper = (max(trace + doubt, 0.0) / scale.curvature / fewest) ** 0.5
    lower = (max(trace - doubt, 0.0) / scale.curvature / most) ** 0.5
    change = DEFAULTS.largest_change
    radius = min(max(scale.radius, lower), upper)
    radius = float(np.clip(radius, scale.radius / change, scale.radius * change))
    one_release = noise.score**0.5 / scale.clip_norm / releases**0.5
    affordable = (fewest / d) ** 0.5 / max(one_release, 1e-12)
    lowest = np.clip(DEFAULTS.noise_of_aware_clip * affordable, least, DEFAULTS.noise_aware_clip)
    highest = DEFAULTS.largest_clip
    multiple = float(np.clip(DEFAULTS.noise_of_larger_clip * affordable, lowest, highest))
    clip_norm = multiple * scale.residual * radius
    return scale._replace(clip_norm=clip_norm, radius=radius, multiple=multiple)
