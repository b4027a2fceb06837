"""A record's score and its curvature -d2 log p / dz2, for Newton steps."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from pymc_dp.contributions.contribution import Batch, Contribution, row_norms
from pymc_dp.contributions.gradients import each_gradient
from pymc_dp.contributions.symmetric import smat, svec
from pymc_dp.records import Records

# share of the curvature in a record's vector, beside a score of the longest norm
CURVATURE = 0.65
# the norm of the whole vector over that of its score
JOINT = (1 + CURVATURE**2) ** 0.5
# up to this many latents curvatures come from 2 d passes over the records; beyond, from one
MANY = 64
# how far scores are apart whose difference is a second derivative
STEP = 1e-4


class At(NamedTuple):
    """Where scores are taken, and how long a record's may be.

    Attributes
    ----------
    point : (d,)
    longest : float
        The norm that scores are shortened to.
    steepest : float
        The Frobenius norm that curvatures are shortened to.
    """

    point: np.ndarray
    longest: float
    steepest: float

    @property
    def clip_norm(self) -> float:
        """The largest norm of a record's whole vector."""
        return JOINT * self.longest

    @property
    def scale(self) -> float:
        """The factor of curvatures at which none exceeds its share."""
        return CURVATURE * self.longest / self.steepest


class Sums(NamedTuple):
    """Sums over records: scores (d,) and curvatures (d, d)."""

    score: np.ndarray
    curvature: np.ndarray


class Bent(NamedTuple):
    """Scores of some records, shape (rows, d), and their curvatures.

    ``norms`` are those of the curvatures, and ``add_up`` is their weighted sum.
    """

    score: np.ndarray
    norms: np.ndarray
    add_up: Callable[[np.ndarray], np.ndarray]


Scores = Callable[[Batch, np.ndarray], np.ndarray]
Curves = Callable[[Batch, np.ndarray], Bent]


def split(value: np.ndarray, at: At) -> Sums:
    """Cut a released vector into sums, scales undone."""
    d = at.point.size
    return Sums(value[:d], smat(value[d:]) / at.scale)


def curves(records: Records, backend: str) -> Curves:
    """Compile scores and curvatures of a batch's records."""
    scores = each_gradient(records, backend)
    curve = second_differences if records.size <= MANY else outer_products
    return lambda batch, point: curve(scores, batch, point)


def bend(slope: Callable[[np.ndarray], np.ndarray], point: np.ndarray) -> np.ndarray:
    """Negative derivatives of slopes, (d,) or (rows, d), by central differences.

    >>> bend(lambda z: -3 * z, np.zeros(1)).round(6)
    array([[3.]])
    """
    steps = STEP * np.eye(point.size)
    matrices = np.stack([slope(point - e) - slope(point + e) for e in steps], axis=-1)
    return (matrices + np.swapaxes(matrices, -1, -2)) / (4 * STEP)


def second_differences(scores: Scores, batch: Batch, point: np.ndarray) -> Bent:
    """Differentiate scores numerically: norms and sums read the same numbers."""
    matrices = bend(partial(scores, batch), point)
    return Bent(
        scores(batch, point),
        row_norms(matrices),
        lambda weights: np.tensordot(weights, matrices, axes=1),
    )


def outer_products(scores: Scores, batch: Batch, point: np.ndarray) -> Bent:
    """Take g g', whose mean is the curvature's where the model is right (Fisher's identity)."""
    g = scores(batch, point)
    return Bent(g, row_norms(g) ** 2, lambda weights: (g * weights[:, None]).T @ g)


def score_and_curvature(records: Records, bent: Curves) -> Contribution:
    """Contribute the score and the curvature's upper triangle; the context is an `At`.

    Scores and curvatures are shortened before they are put together: clipping the whole would
    shorten scores for the sake of curvatures.

    Notes
    -----
    **Privacy.** The norm of a record's vector is at most `At.clip_norm`, also before the wall clips
    it.
    """
    d = records.size

    def norms(part: Bent, at: At) -> np.ndarray:
        score = np.minimum(row_norms(part.score), at.longest)
        return np.hypot(score, at.scale * np.minimum(part.norms, at.steepest))

    def weighted_sum(part: Bent, at: At, weights: np.ndarray) -> np.ndarray:
        score = (weights * _shortening(row_norms(part.score), at.longest)) @ part.score
        bent = part.add_up(weights * _shortening(part.norms, at.steepest))
        return np.concatenate([score, at.scale * svec(bent)])

    return Contribution(
        size=d + d * (d + 1) // 2,
        width=2 * d * (d if d <= MANY else 1),
        norms=norms,
        weighted_sum=weighted_sum,
        prepare=lambda batch, at: bent(batch, at.point),
    )


def _shortening(norms: np.ndarray, longest: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.minimum(1.0, longest / norms)
