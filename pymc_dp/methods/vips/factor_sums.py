"""What a record says about loadings and intercept: its score, and one curvature for all rows.

With z~ = (z, 1) the score is E[(y - psi) z~'] and the curvature E[z~ z~'], whose last entry counts
the records. Both have factors, so the norm of a record's vector needs neither of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_dp.contributions import Contribution
from pymc_dp.contributions.contribution import Batch, row_norms
from pymc_dp.contributions.symmetric import smat, svec

# shares of the curvature and of the noise statistic in a record's vector
CURVATURE, ENERGY = 0.3, 0.1
# arrays of length J and of length K + 1 that are held for a record
HELD = 6


class Asked(NamedTuple):
    """The posterior at which a batch is asked: public values.

    Loadings and intercept stand side by side, shape (J, K + 1), in units in which a record's
    noise has precision ``precision``.

    Attributes
    ----------
    mean, variance : (J, K + 1)
    parameter : (K,)
        Of the latents' prior, as in `LatentPrior`.
    precision : float
    """

    mean: np.ndarray
    variance: np.ndarray
    parameter: np.ndarray
    precision: float


class Sums(NamedTuple):
    """Weighted sums over records.

    Attributes
    ----------
    score : (J, K + 1)
    curvature : (K + 1, K + 1)
    energy : float
        Squared residuals, in expectation.
    """

    score: np.ndarray
    curvature: np.ndarray
    energy: float


class Inference(NamedTuple):
    """How latents of one kind are inferred, and what their factors are.

    Attributes
    ----------
    infer : (slopes at psi = 0, Asked) -> beliefs
        Record by record.
    norms : (beliefs, Asked) -> three arrays of shape (rows,)
        Norms of each record's score, curvature and energy.
    sums : (beliefs, Asked, weights) -> Sums
    energies : bool
        Whether the energy is wanted: the noise's precision is a latent.
    """

    infer: Callable[[np.ndarray, Asked], Any]
    norms: Callable[[Any, Asked], tuple[np.ndarray, np.ndarray, np.ndarray]]
    sums: Callable[[Any, Asked, np.ndarray], Sums]
    energies: bool


def with_one(z: np.ndarray) -> np.ndarray:
    """Append a column of ones: (z, 1)."""
    return np.concatenate([z, np.ones((len(z), 1))], axis=1)


def size_of(shape: tuple[int, int], energies: bool) -> int:
    """Return the length of a record's vector: J (K + 1) scores, a triangle, and the energy."""
    j, n = shape[0], shape[1] + 1
    return j * n + n * (n + 1) // 2 + energies


def contribution(
    shape: tuple[int, int], slopes: Callable[[Batch], np.ndarray], inference: Inference
) -> Contribution:
    """Contribute score, curvature and energy; the context is an `Asked`."""

    def prepare(batch: Batch, asked: Asked) -> Any:
        return inference.infer(slopes(batch), asked)

    def norms(beliefs: Any, asked: Asked) -> np.ndarray:
        score, curvature, energy = inference.norms(beliefs, asked)
        parts = [score, CURVATURE * curvature, inference.energies * ENERGY * energy]
        return row_norms(np.stack(parts, axis=1))

    def weighted_sum(beliefs: Any, asked: Asked, weights: np.ndarray) -> np.ndarray:
        sums = inference.sums(beliefs, asked, weights)
        energy = [ENERGY * sums.energy] * inference.energies
        return np.concatenate([sums.score.ravel(), CURVATURE * svec(sums.curvature), energy])

    size = size_of(shape, inference.energies)
    return Contribution(size, HELD * (shape[0] + shape[1] + 1), norms, weighted_sum, prepare)


def split(value: np.ndarray, shape: tuple[int, int]) -> Sums:
    """Cut a released vector into sums, scales undone."""
    j, n = shape[0], shape[1] + 1
    score, curvature, energy = np.split(value, np.cumsum([j * n, n * (n + 1) // 2]))
    return Sums(score.reshape(j, n), smat(curvature) / CURVATURE, float(energy.sum()) / ENERGY)
