"""First rounds in which all groups of an array shift together.

Where the effects of many groups begin far from their mode, what they have in common is far, and of
few coordinates noise hides little. The first rounds find it, beside all other latents, as if there
were one group; later rounds start there, and know the curvature along these shifts.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.subtensor import AdvancedSubtensor
from scipy.linalg import block_diag

from pymc_dp.contributions.drawn_scores import DrawnScores, Parted, PartedAt, Scores
from pymc_dp.contributions.outcomes import Draw
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.methods.gaussian.group_curvature import Groups
from pymc_dp.methods.gaussian.outcome_scale import OutcomeScale
from pymc_dp.methods.gaussian.state import Gradient
from pymc_dp.methods.gaussian.unseen import ROWS, scores_of_made_up
from pymc_dp.model import Records
from pymc_dp.privacy.norms import rounded_product


class Shifts(NamedTuple):
    """Points z = start + V u."""

    start: np.ndarray  # (d,)
    directions: np.ndarray  # V, (d, m): every latent has a part in one of them

    def point(self, u: np.ndarray) -> np.ndarray:
        """Return z, (..., d)."""
        return np.asarray(self.start + u @ self.directions.T)

    def gradient(self, of_point: Gradient) -> Gradient:
        """Return the gradient in u, (m,), of what has this gradient in z."""
        return lambda u: np.asarray(self.directions.T @ of_point(self.point(u)))

    def scores(self, scores: DrawnScores) -> DrawnScores:
        """Return scores in u: those of the groups added up."""
        V = self.directions

        def of_batch(batch: dict[str, np.ndarray], u: np.ndarray) -> Scores:
            weights, vectors = scores.of_batch(batch, self.point(u))
            if scores.channels:
                return Scores(weights, rounded_product(vectors, V))
            return Scores(rounded_product(weights, V), np.empty((0, len(weights), V.shape[1])))

        return scores._replace(
            d=V.shape[1],
            reach=scores.reach @ V > 0,
            dispersion=scores.dispersion @ V > 0,
            formed=scores.width,
            of_batch=of_batch,
            parted=scores.parted and self._parted(scores.parted),
            draw=self._draw(scores.draw),
            draw_for_units=self._draw(scores.draw_for_units),
        )

    def _parted(self, parted: PartedAt) -> PartedAt:
        def of_shifts(batch: dict[str, np.ndarray], u: np.ndarray) -> Parted:
            found = parted(batch, self.point(u))
            return found._replace(vectors=rounded_product(found.vectors, self.directions))

        return of_shifts

    def _draw(self, draw: Draw | None) -> Draw | None:
        if draw is None:
            return None
        return lambda batch, u, generator: draw(batch, self.point(u), generator)

    def scale(self, scale: OutcomeScale | None) -> OutcomeScale | None:
        """Return the scale of outcomes as a coordinate of u."""
        if scale is None:
            return None
        [latent] = np.flatnonzero(self.directions[scale.latent])
        return scale._replace(latent=int(latent), location=self.directions.T @ scale.location > 0)


def groups_that_never_meet(records: Records, groups: Groups) -> Groups | None:
    """Return the groups of which no record reads two; None where units' latents may join them."""
    return None if records.local_latents else groups


def find_groups(records: Records, scores: Callable[[], DrawnScores]) -> Groups | None:
    """Return which latents are groups, and V, (d, m); None where no array has any, or few.

    An array has groups along an axis where no record reads two of its places.

    **Privacy.** A function of the model's graph, and of the shapes and types of its columns. Sums
    of scores are clipped as scores are, whatever V is.
    """
    if records.size > DEFAULTS.most_with_shifts or not _may_have_groups(records):
        return None
    rng, rows = np.random.default_rng(0), ROWS + 2 * records.size
    made_up = scores_of_made_up(records, scores(), rng, rows)
    finite = np.all([np.isfinite(part).all(axis=1) for part in made_up], axis=0)
    read = np.any([part[finite] != 0 for part in made_up], axis=0)
    if len(read) < 2 * records.size:
        return None
    V = block_diag(*(_shifts_of(part) for part in records.split(read)))
    sizes = [start.size for start in records.point.values()]
    return Groups.of(V, sizes, read) if V.shape[1] <= DEFAULTS.most_shifts * len(V) else None


def _may_have_groups(records: Records) -> bool:
    """Whether records pick latents by an index: others cannot have groups."""
    latents = set(records.latents.values())
    return any(
        isinstance(node.op, AdvancedSubtensor)
        and not latents.isdisjoint(ancestors(node.inputs[:1]))
        for node in toposort(records.batch.terms)
    )


def _shifts_of(read: np.ndarray) -> np.ndarray:
    """Return the shifts of one array, (size, shifts), from what records read of it, (n, ...)."""
    shape = read.shape[1:]
    kept = list(shape)
    for axis in range(len(shape)):
        others = tuple(k for k in range(1, read.ndim) if k != axis + 1)
        if read.any(axis=others).sum(axis=1).max(initial=0) == 1:
            kept[axis] = 1
    places = np.arange(int(np.prod(kept))).reshape(kept)
    return np.asarray(np.eye(places.size)[np.broadcast_to(places, shape).ravel()])
